"""Letter: an event on its way from one machine to another, with the tensors that go beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from siafu.pipeline.events import Event
from siafu.pipeline.stamp import Stamp


@dataclass(frozen=True, slots=True, eq=False)
class Letter:
    """An event with its tensors.

    tensors:  PyTorch's, or NumPy's as they came over a wire
    places:   numbers that say where the tensors belong, as sender and receiver agree
    stamp:    from whom and for whom it is; None: it is for a process, not for a machine
    borrowed: the tensors' memory is the post's: a receiver that keeps them copies them
    """

    event: Event
    tensors: Mapping[str, Any] = field(default_factory=dict)
    places: tuple[int, ...] = ()
    borrowed: bool = False
    stamp: Stamp | None = None

    def owned(self, prefix: str = "") -> dict[str, Any]:
        """Tensors whose names begin with `prefix`. The receiver may keep them, and must not change them."""
        named = {name: each for name, each in self.tensors.items() if name.startswith(prefix)}
        if self.borrowed:
            named = {name: _copied(each) for name, each in named.items()}
        return {name.removeprefix(prefix): each for name, each in named.items()}


def _copied(tensor: Any) -> Tensor:
    return torch.from_numpy(np.array(tensor))


def named(prefix: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """`tensors` with their names as `Letter.owned` finds them again."""
    return {prefix + name: each for name, each in tensors.items()}
