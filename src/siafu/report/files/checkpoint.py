"""A checkpoint: tensors and a JSON object in one safetensors file, replaced in one rename.

The JSON stands in the file's own header, so that tensors and state can never be of two different moments; beside it
stands a checksum of the whole file.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.base.storage.files import replacing
from siafu.report.files import checksum

_STATE = "siafu"
_LENGTH = 8  # bytes that say how long the header is


def save_tensors(path: Path, tensors: dict[str, Tensor], state: dict[str, Any] | None = None) -> None:
    """Write `tensors` and `state` to `path`, whole or not at all."""
    # Two names for one memory are two tensors in the file: safetensors refuses to store views of each other.
    apart = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(state or {}, allow_nan=False)
    data = save(apart, metadata={_STATE: text, checksum.KEY: checksum.BLANK})
    with replacing(path) as file:
        file.write(checksum.sealed(data, _header_end(data)))


def load_tensors(path: Path, *, may_lack_checksum: bool = False) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors that `save_tensors` wrote, to the bit.

    may_lack_checksum: the file may be one of a Siafu that wrote none
    """
    if not path.is_file():
        raise BadInput(f"{path} is missing: the run was not copied whole; copy it again")
    try:
        return _parsed(path.read_bytes(), may_lack_checksum)
    except (SafetensorError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{path} is corrupted ({reason}): copy the run again, or train it again") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): copy the run again") from error


def is_whole(path: Path) -> bool:
    """Whether the file is there with a checksum that is right."""
    try:
        load_tensors(path)
    except BadInput:
        return False
    return True


def _parsed(data: bytes, may_lack_checksum: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    end = _header_end(data)
    unchecked = may_lack_checksum and not checksum.is_sealed(data, end)
    if not unchecked and not checksum.is_whole(data, end):
        raise ValueError("its checksum is wrong")
    state = json.loads(json.loads(data[_LENGTH:end])["__metadata__"][_STATE])
    if not isinstance(state, dict):
        raise ValueError("its state is no JSON object")
    return load(data), state


def _header_end(data: bytes) -> int:
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    if not _LENGTH <= end <= len(data):
        raise ValueError("it is truncated")
    return end
