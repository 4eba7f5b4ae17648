"""A run's directory: what is in it, and who may write there.

RUN/config.json             what was asked for: data, model, options; never what came of it
RUN/facts.json              what was found when it began: the machine, what a stage costs, how even the partition is
RUN/metrics.jsonl           one line an epoch
RUN/trace.json              tasks as spans, of some epochs, for Perfetto
RUN/checkpoint.safetensors  where to go on from: weights, the best weights, optimizer and random state
RUN/model.safetensors       the best weights; there when the run has finished
RUN/story.jsonl             what happened to a run that failed, and what waited; gone once it goes on
RUN/stop                    a request to stop, from the dashboard; there only until it is heeded
RUN/summary.json            what came of it; written last: a run that has one has finished

Of what is read back for an answer every bit is checked: config.json and the files of tensors hold checksums of
themselves, a checkpoint one of the metrics up to its epoch, model.safetensors those of metrics and summary. Runs of
version 1 were written without, and are read without.
"""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.base.storage.absent import RUN_CONFIG, STORE_MANIFEST, is_file, refuse_absent_run
from siafu.base.storage.files import disk_errors, refuse_unwritable, replacing
from siafu.options import Options
from siafu.report.files import checksum
from siafu.report.files.metrics import MetricsFile
from siafu.report.files.stop_file import StopFile
from siafu.report.flat import flat

VERSION = 2
_CHECKED = 2  # the first version whose files have checksums
_FORMAT = "siafu run"
_LOG = re.compile(r"[a-z]+-[0-9]+\.log")
_AGAIN = "copy the run again, or train it again"
# What may change between a run and its continuation: how far it goes, where its data lies, who runs it.
# The graph's fingerprint says whether features are the same; an earlier import kept no names of them.
_MAY_CHANGE = ("siafu", "torch", "dataset", "graph.name", "graph.feature_names", "training.epochs")


class RunDirectory:
    """A run on disk. `start` and `resume` open one to write, and keep it locked until `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint.safetensors"
        self.model = path / "model.safetensors"
        self.metrics_path = path / "metrics.jsonl"
        self.trace_path = path / "trace.json"
        self.story = path / "story.jsonl"
        self.logs = path / "logs"
        self.stop_file = StopFile(path)
        self._config = path / RUN_CONFIG
        self._facts = path / "facts.json"
        self._summary = path / "summary.json"
        self._metrics: MetricsFile | None = None

    @classmethod
    def start(
        cls, path: Path, config: dict[str, Any], *, overwrite: bool = False, resumable: bool = True
    ) -> "RunDirectory":
        """A new run at `path`; another run there is refused, or with `overwrite` replaced.

        resumable: whether who trains this run could go on with one that was cut off
        """
        run = cls(path)
        run.refuse_to_replace(overwrite=overwrite, resumable=resumable)
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        with run._locked():
            # Somebody may have trained here between our look and our lock.
            run.refuse_to_replace(overwrite=overwrite, resumable=resumable)
            run._remove_old()
            run._write_config(config, VERSION)
        return run

    @classmethod
    def resume(
        cls,
        path: Path,
        config: dict[str, Any],
        refuse: Callable[["RunDirectory"], None] | None = None,
    ) -> "RunDirectory":
        """The run at `path`, to go on with; refused if it was asked for something else than `config`, or by `refuse`."""
        run = cls(path)
        if not run.exists:
            raise BadInput(f"{path} holds no run to resume: start it without --resume")
        run.config()
        with run._locked():
            old = run.config()
            changed = list(_changes(old, {"format": _FORMAT, "version": old["version"], **config}))
            if changed:
                raise BadInput(
                    f"cannot resume {path} with other settings: {'; '.join(changed[:3])}; "
                    "give the same ones, or start a new run with another --out"
                )
            if refuse is not None:
                refuse(run)
            run.stop_file.clear()
            # Its version stays: files of an earlier session are without checksums still.
            run._write_config(config, old["version"])
        return run

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Be the only one that writes here, until `close`, or until the block fails."""
        self._metrics = MetricsFile(self.metrics_path)
        try:
            yield
        except BaseException:
            self._metrics.close()
            self._metrics = None
            raise

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
        """The run's settings."""
        refuse_absent_run(self.path)
        if not self.exists:
            inner = sorted(self.path.glob("*/config.json"))
            if is_file(self.path / STORE_MANIFEST):
                raise BadInput(
                    f"{self.path} is a store, not a run: name the directory that 'siafu train {self.path}' said it saved in"
                )
            hint = (
                f"it holds several, name one: {inner[0].parent}" if inner else "it is not a run's directory"
            )
            raise BadInput(f"{self.path} has no {self._config.name}: {hint}")
        return read_run_config(self._config)

    @property
    def may_lack_checksums(self) -> bool:
        """Whether the run began with a Siafu that wrote none."""
        return bool(self.config()["version"] < _CHECKED)

    def checksums(self, summary: dict[str, Any]) -> dict[str, int]:
        """Checksums of the files that are complete when the run ends with this summary."""
        return {
            self.metrics_path.name: zlib.crc32(_read(self.metrics_path)),
            self._summary.name: zlib.crc32(_json(summary)),
        }

    def check(self, checksums: Mapping[str, Any]) -> None:
        """Refuse files that are not those of which these are the checksums."""
        for path in (self.metrics_path, self._summary):
            if checksums.get(path.name) != zlib.crc32(_read(path)):
                raise BadInput(
                    f"{path} is corrupted: its checksum is not the one in {self.model.name}; {_AGAIN}"
                )

    def summary(self) -> dict[str, Any]:
        """The run's summary."""
        if not self.finished:
            raise BadInput(
                f"{self.path} has not finished: go on with 'siafu train … --out {self.path} --resume'"
            )
        return _read_json(self._summary)

    def facts(self) -> dict[str, Any]:
        """Facts found when the run began; {}: nothing is known, or the file is no longer readable."""
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
        """A run that finished or failed goes on: it has no summary until it has finished again, and no story."""
        self._summary.unlink(missing_ok=True)
        self.story.unlink(missing_ok=True)

    def close(self) -> None:
        """Let others write."""
        if self._metrics is not None:
            self.stop_file.clear()
            self._metrics.close()
            self._metrics = None

    def _write_config(self, config: dict[str, Any], version: int) -> None:
        told = {"format": _FORMAT, "version": version, **config, checksum.KEY: checksum.BLANK}
        with replacing(self._config) as file:
            file.write(checksum.sealed(_json(told)))

    def _remove_old(self) -> None:
        """Remove the run that is here: the summary first, so that it never counts as finished.

        Its config stays until the new one takes its place: if this is cut short, what is left is still known as a run.
        """
        with disk_errors(self.path):
            for stale in (
                self._summary,
                self.checkpoint,
                self.model,
                self.trace_path,
                self.story,
                self._facts,
            ):
                stale.unlink(missing_ok=True)
            for log in self.logs.glob("*.log"):
                if _LOG.fullmatch(log.name):
                    log.unlink()
        with suppress(OSError):
            self.logs.rmdir()
        self.stop_file.clear()
        self.metrics.keep_until(0)

    def refuse_to_replace(self, *, overwrite: bool, resumable: bool = True) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise BadInput(f"{self.path} is a file: name a directory for the run with --out")
        if not self.path.exists():
            refuse_unwritable(self.path)
            return
        if not self._is_run():
            strangers = [entry.name for entry in self.path.iterdir() if not _is_of_a_killed_start(entry)]
            if strangers:
                raise BadInput(
                    f"{self.path} is not a run of this siafu and holds other files ({min(strangers)}): choose another --out"
                )
            return
        if overwrite:
            return
        if self.finished:
            raise BadInput(
                f"{self.path} holds a finished run: choose another out (--out), or replace it with overwrite=True (--overwrite)"
            )
        way = "go on with resume=True (--resume), or " if resumable else ""
        raise BadInput(
            f"{self.path} holds a run that has not finished: {way}replace it with overwrite=True (--overwrite)"
        )

    def _is_run(self) -> bool:
        """Whether the config says so; a damaged one does, as long as that much of it can be read."""
        try:
            config = _parsed(_read(self._config), self._config)
        except BadInput:
            return False
        version = config.get("version")
        return config.get("format") == _FORMAT and type(version) is int and 1 <= version <= VERSION


def read_run_config(path: Path) -> dict[str, Any]:
    """Settings of a run, from its config.json."""
    content = _read(path)
    config = _parsed(content, path)
    if config.get("format") != _FORMAT:
        raise BadInput(f"{path} does not describe a siafu run")
    version = config.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise BadInput(
            f"{path.parent} is a run of version {version}, this siafu reads up to {VERSION}: "
            "upgrade with pip install -U siafu"
        )
    if (version >= _CHECKED or checksum.is_sealed(content)) and not checksum.is_whole(content):
        raise BadInput(f"{path} is corrupted: its checksum is wrong; {_AGAIN}")
    config.pop(checksum.KEY, None)
    return config


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
    with replacing(path) as file:
        file.write(_json(value))


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False).encode() + b"\n"


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():  # a pipe would be waited for
            raise BadInput(f"{path} is missing: the run was not copied whole; copy it again")
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): copy the run again") from error


def _read_json(path: Path) -> dict[str, Any]:
    return _parsed(_read(path), path)


def _parsed(content: bytes, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not readable JSON ({error}): {_AGAIN}") from error
    if not isinstance(value, dict):
        raise BadInput(f"{path} holds no JSON object: {_AGAIN}")
    return value


def _is_of_a_killed_start(entry: Path) -> bool:
    """Whether a run that was killed before it had a config may have left it."""
    begun = entry.name == "metrics.jsonl" and entry.is_file() and entry.stat().st_size == 0
    return begun or (entry.name.startswith(".config.json.") and entry.name.endswith(".partial"))


def _changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    if "objective" not in old:  # an earlier Siafu's run: the metric of its graph tells it
        new = {name: value for name, value in new.items() if name != "objective"}
    before, after = flat(_complete(old)), flat(_complete(new))
    for key in sorted(before.keys() | after.keys()):
        if key not in _MAY_CHANGE and before.get(key) != after.get(key):
            yield f"{key} was {before.get(key)}, now {after.get(key)}"


def _complete(config: dict[str, Any]) -> dict[str, Any]:
    """With every option: one that is younger than the run was not there to be chosen, and is what it is by default.

    Gathers of a run that is older than layouts went by vertices.
    """
    training = config.get("training")
    younger = Options(layout="vertices").as_json()
    return {**config, "training": younger | training} if isinstance(training, dict) else config
