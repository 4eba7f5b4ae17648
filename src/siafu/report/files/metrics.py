"""Measurements of each epoch, and the file that keeps them: one JSON object a line, only ever appended to."""

import json
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.base.storage.files import disk_errors
from siafu.objective.metric import Metric
from siafu.objective.score import Score
from siafu.report.files import run_lock

VERSION = 2
"""Of a line's fields: see docs/metrics.md."""


@dataclass(frozen=True, slots=True)
class EpochMetrics:
    """One epoch of one run: what it measured, and from `time` on what was done for it (docs/metrics.md says more).

    epoch:            counted from 1
    train_loss:       the loss that was trained on: training rows, dropout on, before this epoch's update
    val_loss:         after the update, dropout off; None: not evaluated in this epoch, or no such split
    train_accuracy, val_accuracy, test_accuracy: likewise; where the objective has another metric, such as micro-F1, that
    seconds:          forward, backward and update, without the evaluation
    evaluate_seconds: the evaluation alone; None: there was none
    time:             when it ended: seconds since 1970
    busy_seconds:     what its tasks took, over all threads, by kind
    staleness:        how often an interval entered an epoch since the one before, by its lead
    bytes_scattered:  rows sent to other servers since the one before
    lambdas:          what Lambdas did since the one before; None: there are none
    usd:              dollars from the run's start to here; None: it has no price
    lr:               learning rate of its update, of the first group of parameters; None: the run has one for all epochs
    bytes_read, bytes_written: moved from and to scratch files since the one before; None: no table is on disk
    disk_busy_seconds: for which the disk read or wrote scratch files since then
    disk_wait_seconds: for which computing waited for that; one of n threads that waits counts an n-th
    """

    epoch: int
    train_loss: float
    val_loss: float | None
    train_accuracy: float | None
    val_accuracy: float | None
    test_accuracy: float | None
    seconds: float
    evaluate_seconds: float | None
    time: float | None = None
    busy_seconds: dict[str, float] | None = None
    staleness: dict[str, int] | None = None
    bytes_scattered: int | None = None
    lambdas: dict[str, Any] | None = None
    usd: float | None = None
    lr: float | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    disk_busy_seconds: float | None = None
    disk_wait_seconds: float | None = None

    @property
    def evaluated(self) -> bool:
        return self.train_accuracy is not None or self.val_accuracy is not None

    def score(self, metric: Metric) -> Score:
        """How good it is on the validation rows, by the metric of its run's objective."""
        return Score(self.val_accuracy, self.val_loss, metric)


def hidden_share(busy: float, waited: float) -> float | None:
    """Share of a disk's busy seconds that no waiting stands against, from 0 to 1; None: it was not busy."""
    return None if busy <= 0 else max(0.0, 1 - waited / busy)


def best_epoch(history: Sequence[EpochMetrics], metric: Metric) -> EpochMetrics | None:
    """The epoch whose weights are kept: the best by `Score.beats`, of those that were evaluated."""
    best: EpochMetrics | None = None
    for epoch in history:
        if epoch.evaluated and is_better(epoch, best, metric):
            best = epoch
    return best


def is_better(new: EpochMetrics, old: EpochMetrics | None, metric: Metric) -> bool:
    """Whether `new`, the later of the two, takes the place of the best so far."""
    return old is None or new.score(metric).beats(old.score(metric))


class MetricsFile:
    """A run's `metrics.jsonl`, open to write, and by one process at a time.

    Each line is written by one call, so that a killed process leaves whole lines.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checksums = [0]  # of the lines so far, from none to all
        with disk_errors(path):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            run_lock.take(self._file, path.parent)
        except BaseException:
            os.close(self._file)
            raise

    def append(self, metrics: EpochMetrics) -> None:
        line = _line(metrics)
        with disk_errors(self.path):
            os.write(self._file, line)
        self._checksums.append(zlib.crc32(line, self._checksums[-1]))

    def checksum(self, epoch: int) -> int:
        """The CRC-32 of the lines up to `epoch`."""
        return self._checksums[epoch]

    def sync(self) -> None:
        """Bring every line to the disk."""
        with disk_errors(self.path):
            os.fsync(self._file)

    def read_until(self, epoch: int) -> list[EpochMetrics]:
        """The epochs up to `epoch`."""
        kept, _ = _read_lines(self._read(), until=epoch)
        if len(kept) != epoch:
            raise BadInput(
                f"{self.path} ends at epoch {len(kept)} but the checkpoint is of epoch {epoch}: "
                "it was damaged or changed by hand; copy the run again, or start it again with --overwrite"
            )
        return kept

    def check(self, epoch: int, checksum: int | None) -> None:
        """Refuse a file whose lines up to `epoch` have another checksum; None: theirs is not known."""
        _, size = _read_lines(self._read(), until=epoch)
        if checksum not in (None, zlib.crc32(self._read()[:size])):
            raise BadInput(
                f"{self.path} is corrupted: its checksum is not the one in the checkpoint; copy the run again, or "
                "start it again with --overwrite"
            )

    def keep_until(self, epoch: int) -> list[EpochMetrics]:
        """Drop what came after `epoch`, and any broken last line; what remains."""
        kept = self.read_until(epoch)
        lines = self._read().splitlines(keepends=True)[:epoch]
        os.truncate(self._file, sum(map(len, lines)))
        self._checksums = [0]
        for line in lines:
            self._checksums.append(zlib.crc32(line, self._checksums[-1]))
        return kept

    def _read(self) -> bytes:
        with disk_errors(self.path):
            return self.path.read_bytes()

    def close(self) -> None:
        os.close(self._file)


def read_metrics(path: Path) -> list[EpochMetrics]:
    """Every whole line of a metrics file."""
    try:
        return _read_lines(path.read_bytes())[0]
    except FileNotFoundError as error:
        raise BadInput(f"{path} is missing: the run was not copied whole; copy it again") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): copy the run again") from error


def _read_lines(data: bytes, until: float = math.inf) -> tuple[list[EpochMetrics], int]:
    """Epochs 1, 2, … up to `until` or the first line that is not the next, and how many bytes they take."""
    kept: list[EpochMetrics] = []
    size = 0
    for line in data.splitlines(keepends=True):
        metrics = _parse(line)
        if metrics is None or metrics.epoch != len(kept) + 1 or metrics.epoch > until:
            break
        kept.append(metrics)
        size += len(line)
    return kept, size


_FIELDS = tuple(each.name for each in fields(EpochMetrics))
_MEASURED = _FIELDS[: _FIELDS.index("time")]


def as_line(metrics: EpochMetrics) -> dict[str, Any]:
    """A line's fields, in their order."""
    values = {name: getattr(metrics, name) for name in _FIELDS}
    measured = {name: values.pop(name) for name in _MEASURED}
    return {**measured, "v": VERSION, **values}


def _line(metrics: EpochMetrics) -> bytes:
    return json.dumps(as_line(metrics), allow_nan=False, ensure_ascii=False).encode() + b"\n"


_COUNTED = (
    "time",
    "bytes_scattered",
    "usd",
    "lr",
    "bytes_read",
    "bytes_written",
    "disk_busy_seconds",
    "disk_wait_seconds",
)


def _parse(line: bytes) -> EpochMetrics | None:
    if not line.endswith(b"\n"):
        return None
    try:
        found: Any = json.loads(line, parse_constant=_refuse)
        # Fields that a later version knows are left alone.
        metrics = EpochMetrics(**{name: found[name] for name in _FIELDS if name in found})
    except (ValueError, TypeError, RecursionError):
        return None
    return metrics if _is_sound(metrics) else None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _is_sound(metrics: EpochMetrics) -> bool:
    """Whether the numbers that are reckoned with are numbers: a file may hold anything."""
    numbers = [getattr(metrics, name) for name in (*_MEASURED, *_COUNTED)]
    needed = (metrics.epoch, metrics.train_loss, metrics.seconds)
    tables = (metrics.busy_seconds, metrics.staleness)
    return (
        all(each is None or _is_number(each) for each in numbers)
        and None not in needed
        and type(metrics.epoch) is int
        and all(each is None or _is_table(each) for each in tables)
        and (metrics.lambdas is None or isinstance(metrics.lambdas, dict))
    )


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < math.inf
