"""RunState: the state of a run, as one line of a table; and RunWatch, which keeps it up to date."""

import json
import math
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from siafu.dashboard.rows import Row, parse_row
from siafu.dashboard.tail import Tail, open_plain
from siafu.objective.metric import ACCURACY, Metric, metric_of_run
from siafu.objective.score import Score
from siafu.report.files import run_lock
from siafu.report.files.stop_file import StopFile

Status = Literal["running", "stopping", "finished", "stopped", "broken"]
_JSON_BYTES = 1 << 22  # a larger file is none of ours


@dataclass(frozen=True, slots=True)
class RunState:
    """State of a run.

    id:            names it in addresses: a hash of `name`, which may hold anything
    status:        running; stopping: asked to, and it has not yet; finished; stopped: it can go on from its checkpoint;
                   broken: its files cannot be read
    epoch, epochs: how many are done, and how many there may be
    updated:       when it last wrote of an epoch, seconds since 1970; None: never
    metric:        the name of what its accuracies are; for people, metric_words, and metric_unit: percent or number
    best_epoch:    of the best validation accuracy so far, of equals that of the lowest loss; its accuracies follow
    last:          what the last epoch measured, as in metrics.jsonl
    """

    id: str
    name: str
    status: Status
    dataset: str | None = None
    model: str | None = None
    mode: str | None = None
    metric: str | None = None
    metric_words: str = ACCURACY.words
    metric_unit: str = ACCURACY.unit
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
    """Watches one run; each look reads only what is new."""

    def __init__(self, path: Path, run_id: str, name: str) -> None:
        self.path = path
        self._metrics = path / "metrics.jsonl"
        self._tail = Tail(self._metrics)
        self._best: Row | None = None
        self._last: Row | None = None
        self._config_stamp: tuple[int, int, int] | None = None
        self._described = RunState(run_id, name, "broken")
        self._metric = ACCURACY

    def look(self, until: float = math.inf) -> RunState:
        """The run's state now. Reading stops at the time `until` (`time.monotonic`); the rest is read at the next look."""
        described = self._describe()
        if described is None:
            return replace(self._described, status="broken")
        self._read_rows(until)
        best, last = self._best or {}, self._last
        return replace(
            described,
            status=self._status(),
            epoch=0 if last is None else last["epoch"],
            updated=_modified(self._metrics) if last is not None else None,
            best_epoch=best.get("epoch"),
            best_val_accuracy=_number(best, "val_accuracy"),
            best_test_accuracy=_number(best, "test_accuracy"),
            last=last,
        )

    def _status(self) -> Status:
        if run_lock.is_held(self._metrics):
            return "stopping" if StopFile(self.path).there else "running"
        return "finished" if (self.path / "summary.json").is_file() else "stopped"

    def _describe(self) -> RunState | None:
        """The run's options from config.json, which is read again when it changes."""
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
            self._metric = metric_of_run(config)
            self._config_stamp = stamp
        return self._described

    def _read_rows(self, until: float) -> None:
        while time.monotonic() < until:
            added = self._tail.read()
            if added.restarted:
                self._best = self._last = None
            for row in filter(None, map(parse_row, added.lines)):
                self._last = row
                if _better(row, self._best, self._metric):
                    self._best = row
            if not added.more:
                return


def read_object(path: Path) -> dict[str, Any] | None:
    """Read the JSON object in a small file; None: there is none, or it cannot be read."""
    try:
        with open_plain(path) as (file, found):
            if found.st_size > _JSON_BYTES:
                return None
            value = json.loads(os.read(file, _JSON_BYTES), parse_constant=lambda name: None)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _described(state: RunState, config: dict[str, Any]) -> RunState:
    graph, model, training = (
        value if isinstance(value := config.get(name), dict) else {}
        for name in ("graph", "model", "training")
    )
    epochs, metric = training.get("epochs"), metric_of_run(config)
    return replace(
        state,
        dataset=_text(graph.get("name")),
        model=_text(model.get("name")),
        mode=_text(training.get("mode")),
        metric=_text(graph.get("metric")),
        metric_words=metric.words,
        metric_unit=metric.unit,
        epochs=epochs if isinstance(epochs, int) else None,
    )


def _better(row: Row, best: Row | None, metric: Metric) -> bool:
    score = _score(row, metric)
    if score.accuracy is None:
        return False
    return best is None or score.beats(_score(best, metric))


def _score(row: Row, metric: Metric) -> Score:
    return Score(_number(row, "val_accuracy"), _number(row, "val_loss"), metric)


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
