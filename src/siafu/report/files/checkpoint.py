"""A checkpoint: tensors and a JSON object in one safetensors file, replaced in one rename.

The JSON stands in the file's own header, so that tensors and state can never be of two different moments.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.base.files import replacing

_STATE = "siafu"


def save_tensors(path: Path, tensors: dict[str, Tensor], state: dict[str, Any] | None = None) -> None:
    """Write `tensors` and `state` to `path`, whole or not at all."""
    # Two names for one memory are two tensors in the file: safetensors refuses to store views of each other.
    apart = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    data = save(apart, metadata={_STATE: json.dumps(state or {})})
    with replacing(path) as file:
        file.write(data)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_tensors` wrote."""
    if not path.is_file():
        raise BadInput(f"{path} is missing: the run was not copied whole; copy it again")
    try:
        with safe_open(str(path), framework="pt") as file:
            state = json.loads((file.metadata() or {})[_STATE])
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118 (no mapping)
    except (SafetensorError, KeyError, ValueError) as error:
        raise BadInput(f"{path} is corrupted ({error}): copy the run again, or train it again") from error
