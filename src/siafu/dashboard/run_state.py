"""RunState: how a run stands, as one line of a table; and RunWatch, which keeps it true."""

import json
import math
import os
import stat
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from siafu.dashboard.rows import Row, parse_row
from siafu.dashboard.tail import Tail
from siafu.report.files import run_lock
from siafu.report.files.stop_file import StopFile

Status = Literal["running", "stopping", "finished", "stopped", "broken"]
_JSON_BYTES = 1 << 22  # a larger file is none of ours


@dataclass(frozen=True, slots=True)
class RunState:
    """How a run stands.

    id:            names it in addresses: a hash of `name`, which may hold anything
    status:        running; stopping: asked to, and it has not yet; finished; stopped: it can go on from its checkpoint;
                   broken: its files cannot be read
    epoch, epochs: how many are done, and how many there may be
    updated:       when it last wrote of an epoch, seconds since 1970; None: never
    best_epoch:    of the highest validation accuracy so far, of equals that of the lowest loss; its accuracies follow
    last:          what the last epoch measured, as in metrics.jsonl
    """

    id: str
    name: str
    status: Status
    dataset: str | None = None
    model: str | None = None
    mode: str | None = None
    metric: str | None = None
    epoch: int = 0
    epochs: int | None = None
    updated: float | None = None
    best_epoch: int | None = None
    best_val_accuracy: float | None = None
    best_test_accuracy: float | None = None
    last: Row | None = None

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class RunWatch:
    """One run that is looked at again and again; each look reads only what is new."""

    def __init__(self, path: Path, run_id: str, name: str) -> None:
        self.path = path
        self._metrics = path / "metrics.jsonl"
        self._tail = Tail(self._metrics)
        self._best: Row | None = None
        self._last: Row | None = None
        self._config_stamp: tuple[int, int, int] | None = None
        self._described = RunState(run_id, name, "broken")

    def look(self, until: float = math.inf) -> RunState:
        """How the run stands now; as far as it can be read `until` then (`time.monotonic`), the rest at the next look."""
        described = self._describe()
        if described is None:
            return replace(self._described, status="broken")
        self._read_rows(until)
        best, last = self._best, self._last
        return replace(
            described,
            status=self._status(),
            epoch=0 if last is None else last["epoch"],
            updated=_modified(self._metrics) if last is not None else None,
            best_epoch=None if best is None else best["epoch"],
            best_val_accuracy=None if best is None else _number(best, "val_accuracy"),
            best_test_accuracy=None if best is None else _number(best, "test_accuracy"),
            last=last,
        )

    def _status(self) -> Status:
        if run_lock.is_held(self._metrics):
            return "stopping" if StopFile(self.path).there else "running"
        return "finished" if (self.path / "summary.json").is_file() else "stopped"

    def _describe(self) -> RunState | None:
        """What the run was asked for; it is read again when it changes."""
        path = self.path / "config.json"
        try:
            found = path.stat(follow_symlinks=False)
        except OSError:
            return None
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if stamp != self._config_stamp:
            config = read_object(path)
            if config is None:
                return None
            self._described = _described(self._described, config)
            self._config_stamp = stamp
        return self._described

    def _read_rows(self, until: float) -> None:
        while time.monotonic() < until:
            added = self._tail.read()
            if added.restarted:
                self._best = self._last = None
            for row in filter(None, map(parse_row, added.lines)):
                self._last = row
                if _better(row, self._best):
                    self._best = row
            if not added.more:
                return


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a small file; None if there is none that can be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _JSON_BYTES:
            return None
        value = json.loads(os.read(file, _JSON_BYTES), parse_constant=lambda name: None)
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(file)
    return value if isinstance(value, dict) else None


def _described(state: RunState, config: dict[str, Any]) -> RunState:
    graph, model, training = (
        value if isinstance(value := config.get(name), dict) else {}
        for name in ("graph", "model", "training")
    )
    epochs = training.get("epochs")
    return replace(
        state,
        dataset=_text(graph.get("name")),
        model=_text(model.get("name")),
        mode=_text(training.get("mode")),
        metric=_text(graph.get("metric")),
        epochs=epochs if isinstance(epochs, int) else None,
    )


def _better(row: Row, best: Row | None) -> bool:
    accuracy = _number(row, "val_accuracy")
    if accuracy is None:
        return False
    return best is None or _merit(row) > _merit(best)


def _merit(row: Row) -> tuple[float, float]:
    return (_number(row, "val_accuracy") or 0.0, -(_number(row, "val_loss") or 0.0))


def _number(row: Row, field: str) -> float | None:
    value = row.get(field)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
