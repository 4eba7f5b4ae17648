"""Checkpoint: what a training needs to go on as if it had never stopped; and when one is due."""

import time
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """With its tensors, its counters and the history up to its epoch, training goes on as if it had never stopped."""

    epoch: int
    tensors: dict[str, Tensor]
    counters: dict[str, Any]


class CheckpointDue:
    """Whether a checkpoint is due: when called, and the last time it was is long enough ago."""

    def __init__(self, every: float | None) -> None:
        self._every, self._last = every, time.monotonic()

    def __call__(self) -> bool:
        now = time.monotonic()
        if self._every is None or now - self._last < self._every:
            return False
        self._last = now
        return True
