"""A run's directory: what is in it, and who may write there.

RUN/config.json             what was asked for: data, model, options; never what came of it
RUN/facts.json              what was found when it began: the machine, what a stage costs, how even the partition is
RUN/metrics.jsonl           one line an epoch
RUN/trace.json              tasks as spans, of some epochs, for Perfetto
RUN/checkpoint.safetensors  where to go on from: weights, the best weights, optimizer and random state
RUN/model.safetensors       the best weights; there when the run has finished
RUN/stop                    a request to stop, from the dashboard; there only until it is heeded
RUN/summary.json            what came of it; written last: a run that has one has finished
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.base.files import disk_errors, replacing
from siafu.report.files import stop_file
from siafu.report.files.metrics import MetricsFile
from siafu.report.files.stop_file import StopFile
from siafu.report.flat import flat

VERSION = 1
_FORMAT = "siafu run"
_FILES = (
    "config.json",
    "facts.json",
    "metrics.jsonl",
    "trace.json",
    "report.html",
    "checkpoint.safetensors",
    "model.safetensors",
    "summary.json",
    "logs",
    stop_file.NAME,
)
# What may change between a run and its continuation: how far it goes, where its data lies, who runs it.
_MAY_CHANGE = ("siafu", "torch", "dataset", "graph.name", "training.epochs")


class RunDirectory:
    """A run on disk. `start` and `resume` open one to write, and keep it locked until `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint.safetensors"
        self.model = path / "model.safetensors"
        self.metrics_path = path / "metrics.jsonl"
        self.trace_path = path / "trace.json"
        self.logs = path / "logs"
        self.stop_file = StopFile(path)
        self._config = path / "config.json"
        self._facts = path / "facts.json"
        self._summary = path / "summary.json"
        self._metrics: MetricsFile | None = None

    @classmethod
    def start(cls, path: Path, config: dict[str, Any], *, overwrite: bool = False) -> "RunDirectory":
        """A new run at `path`; another run there is refused, or with `overwrite` replaced."""
        run = cls(path)
        run._refuse_to_replace(overwrite=overwrite)
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        run._metrics = MetricsFile(run.metrics_path)
        # The lock is held: nobody else writes here now. The summary goes first, so that a run which is being
        # replaced never counts as finished.
        stale_files = (run._summary, run._config, run._facts, run.checkpoint, run.model, run.trace_path)
        for stale in stale_files:
            stale.unlink(missing_ok=True)
        shutil.rmtree(run.logs, ignore_errors=True)
        run.stop_file.clear()
        run._metrics.keep_until(0)
        run._write_config(config)
        return run

    @classmethod
    def resume(cls, path: Path, config: dict[str, Any]) -> "RunDirectory":
        """The run at `path`, to go on with; refused if it was asked for something else than `config`."""
        run = cls(path)
        if not run.exists:
            raise BadInput(f"{path} holds no run to resume: start it without --resume")
        changed = list(_changes(run.config(), {"format": _FORMAT, "version": VERSION, **config}))
        if changed:
            raise BadInput(
                f"cannot resume {path} with other settings: {'; '.join(changed[:3])}; "
                "give the same ones, or start a new run with another --out"
            )
        run._metrics = MetricsFile(run.metrics_path)
        run.stop_file.clear()
        run._write_config(config)
        return run

    @property
    def exists(self) -> bool:
        return self._config.is_file()

    @property
    def finished(self) -> bool:
        return self._summary.is_file()

    @property
    def metrics(self) -> MetricsFile:
        if self._metrics is None:
            raise ValueError("only a run that was started or resumed can be written to")
        return self._metrics

    def config(self) -> dict[str, Any]:
        """What the run was asked for."""
        if not self.path.is_dir():
            raise BadInput(f"no run at {self.path}: give the directory that 'siafu train' named")
        if not self.exists:
            inner = sorted(self.path.glob("*/config.json"))
            hint = (
                f"it holds several, name one: {inner[0].parent}" if inner else "it is not a run's directory"
            )
            raise BadInput(f"{self.path} has no {self._config.name}: {hint}")
        config = _read_json(self._config)
        if config.get("format") != _FORMAT:
            raise BadInput(f"{self._config} does not describe a siafu run")
        if not isinstance(config.get("version"), int) or config["version"] > VERSION:
            raise BadInput(
                f"{self.path} is a run of version {config.get('version')}, this siafu reads up to {VERSION}: "
                "upgrade with pip install -U siafu"
            )
        return config

    def summary(self) -> dict[str, Any]:
        """What came of the run."""
        if not self.finished:
            raise BadInput(
                f"{self.path} has not finished: go on with 'siafu train … --out {self.path} --resume'"
            )
        return _read_json(self._summary)

    def facts(self) -> dict[str, Any]:
        """What was found when the run began; {}: nothing is known, or the file is no longer readable."""
        try:
            return _read_json(self._facts)
        except (OSError, BadInput):
            return {}

    def write_facts(self, facts: dict[str, Any]) -> None:
        write_json(self._facts, facts)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Mark the run as finished, with what came of it."""
        write_json(self._summary, summary)

    def reopen(self) -> None:
        """A finished run goes on: it has no summary until it has finished again."""
        self._summary.unlink(missing_ok=True)

    def close(self) -> None:
        """Let others write."""
        if self._metrics is not None:
            self.stop_file.clear()
            self._metrics.close()
            self._metrics = None

    def _write_config(self, config: dict[str, Any]) -> None:
        write_json(self._config, {"format": _FORMAT, "version": VERSION, **config})

    def _refuse_to_replace(self, *, overwrite: bool) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise BadInput(f"{self.path} is a file: name a directory for the run with --out")
        if not self.path.exists():
            return
        strangers = [entry.name for entry in self.path.iterdir() if not _is_ours(entry.name)]
        if strangers and not self.exists:
            raise BadInput(
                f"{self.path} is not a run and holds other files ({sorted(strangers)[0]}): choose another --out"
            )
        if self.finished and not overwrite:
            raise BadInput(
                f"{self.path} holds a finished run: choose another out, or overwrite it (on the command line --out, --overwrite)"
            )
        if self.exists and not overwrite:
            raise BadInput(
                f"{self.path} holds a run that has not finished: resume or overwrite it (on the command line --resume, --overwrite)"
            )


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
    with replacing(path) as file:
        file.write(json.dumps(value, indent=1, allow_nan=False).encode() + b"\n")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise BadInput(
            f"{path} is not readable JSON ({error}): copy the run again, or train it again"
        ) from error
    if not isinstance(value, dict):
        raise BadInput(f"{path} holds no JSON object: copy the run again, or train it again")
    return value


def _is_ours(name: str) -> bool:
    return name in _FILES or (name.startswith(".") and name.endswith(".partial"))


def _changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    before, after = flat(old), flat(new)
    for key in sorted(before.keys() | after.keys()):
        if key not in _MAY_CHANGE and before.get(key) != after.get(key):
            yield f"{key} was {before.get(key)}, now {after.get(key)}"
