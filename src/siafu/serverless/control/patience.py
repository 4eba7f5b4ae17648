"""Patience: how long to wait for a task before its Lambda is late."""

from dataclasses import dataclass

from siafu.serverless.control.ids import Seconds

_MEMORY = 32  # tasks: the mean follows a change of pace within about as many


@dataclass(slots=True)
class _Mean:
    value: Seconds
    samples: int = 1


class Patience:
    """Time until a task is late: a multiple of the running mean of its kind.

    ratio:   multiple of the mean
    floor:   the shortest time
    default: time for a kind that has no mean yet
    """

    def __init__(self, ratio: float, floor: Seconds, default: Seconds) -> None:
        self._ratio = ratio
        self._floor = floor
        self._default = default
        self._means: dict[str, _Mean] = {}

    def of(self, kind: str, attempt: int = 1) -> Seconds:
        """Seconds until a task is late. Each further attempt gets twice as long, so that a long task gets done."""
        mean = self._means.get(kind)
        first = self._default if mean is None else max(self._floor, self._ratio * mean.value)
        return first * 2.0 ** (attempt - 1)

    def knows(self, kind: str) -> bool:
        """Whether a task of this kind has been done."""
        return kind in self._means

    def learn(self, kind: str, seconds: Seconds) -> None:
        """Add the time that a task of this kind took, from offer to result."""
        mean = self._means.get(kind)
        if mean is None:
            self._means[kind] = _Mean(min(seconds, self._default))
            return
        # One that was late counts as just late: a straggler, or a clock that jumps, must not make all wait longer.
        counted = min(seconds, max(self._floor, self._ratio * mean.value))
        mean.samples = min(mean.samples + 1, _MEMORY)
        mean.value += (counted - mean.value) / mean.samples
