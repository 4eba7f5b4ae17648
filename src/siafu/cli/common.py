"""Helpers of several commands: lines on stderr, JSON, saved runs, tables and a progress bar."""

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siafu.base.compiling import told_of_compiling
from siafu.base.dataset_names import refuse_unknown_name
from siafu.base.errors import BadInput
from siafu.base.hardware.memory import parse_size
from siafu.base.loading import loading
from siafu.base.storage.absent import refuse_absent_dataset
from siafu.report.files.run_directory import RunDirectory

if TYPE_CHECKING:
    from siafu.graph import Graph
    from siafu.training.run import Run

_PLAIN_SECONDS = 5.0  # between lines where there is no terminal to redraw
_LEAST_SECONDS = 1.0  # of a stage before its rate is told
_PIPED_WIDTH = 300  # of a table that is not on a terminal: a line for each row, to grep

WORD: dict[str, Any] = {"no_wrap": True}
NUMBER: dict[str, Any] = {"no_wrap": True, "justify": "right"}
"""Columns of `show_table`."""


def say(line: str) -> None:
    """Print a line on stderr."""
    print(line, file=sys.stderr, flush=True)


def show(found: dict[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print a command's result on stdout: as one JSON object, or as lines for people."""
    if as_json:
        print(json.dumps(found))
        return
    for line in lines:
        print(line)


def show_table(
    columns: Mapping[str, dict[str, Any]],
    rows: Iterable[Sequence[str]],
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print a table without borders.

    columns: by title, as rich's `add_column` takes them
    styles:  of rows, by their first cell
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title, options in columns.items():
        table.add_column(title, **options)
    for row in rows:
        table.add_row(*row, style=(styles or {}).get(row[0]))
    Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH).print(table)


def printable(text: str) -> str:
    """A text without what would move the cursor or change colours: names of files may be any bytes."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def bytes_of(size: str | None) -> int | None:
    """Bytes of a size like 2GB; None stays None."""
    return None if size is None else parse_size(size)


def find_store(given: Path) -> Path:
    """Path of a store, by its path or by the name that it has in the cache."""
    from siafu.graph import is_store
    from siafu.graph.datasets import cached_store

    named = cached_store(str(given))
    return named if given.name == str(given) and not given.exists() and is_store(named) else given


def refuse_unknown_dataset(dataset: str) -> None:
    """Refuse a dataset that is not there, a path or a name, before anything heavy is imported."""
    refuse_absent_dataset(dataset)
    refuse_unknown_name(dataset)

    with loading():
        from siafu.graph.datasets import refuse_unknown

    refuse_unknown(dataset)


def load_run_and_graph(path: Path, dataset: str | None) -> "tuple[Run, Graph]":
    """A saved run, and the graph to use it on: `dataset`, or the one it was trained on."""
    RunDirectory(path).config()  # refused before PyTorch is loaded
    if dataset is not None:
        refuse_unknown_dataset(dataset)

    with loading():
        import siafu.training.run

    run = siafu.Run.load(path)
    source = dataset or run.config["dataset"]
    if source is None:
        raise BadInput(f"{path} does not say where its graph is: name the dataset or store after the run")
    graph = siafu.load(source)
    if dataset is None:
        training = run.config["training"]
        graph = graph.split_as(training.get("split"), training.get("split_seed", 0))
    return run, graph


def told_rate(count: int, seconds: float, unit: str) -> str:
    """Such as '9.3 M edges/s', or '8,300 edges/s'."""
    speed = count / max(seconds, 1e-9)
    return f"{speed / 1e6:.1f} M {unit}/s" if speed >= 1e5 else f"{speed:,.0f} {unit}/s"


class ProgressBar:
    """A `siafu.graph.progress.ProgressCallback` on stderr: a bar with rate and time left on a terminal, else plain lines.

    Use it as a context manager and pass it where a Progress is wanted.
    """

    def __init__(self, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._unit = unit
        self._bar = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
        self._tasks: dict[str, object] = {}
        self._started: dict[str, tuple[float, int]] = {}
        self._told = time.monotonic()
        self._compiled: set[str] = set()
        self._told_of_compiling = told_of_compiling(self._compiling)

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        unit = self._unit if self._unit in stage else stage.split()[-1]
        began, before = self._started.setdefault(stage, (now, done))
        passed = now - began
        # A rate over less than a second, and a time left by it, would be far off.
        rate = told_rate(done - before, passed, unit) if passed >= _LEAST_SECONDS else ""
        if self._bar is not None:
            if stage not in self._tasks:
                self._tasks[stage] = self._bar.add_task(stage, total=total or None, rate="")
            self._bar.update(self._tasks[stage], completed=done, total=total or None, rate=rate)  # type: ignore[arg-type]
        elif now - self._told >= _PLAIN_SECONDS:
            self._told = now
            share = f"{100 * done / total:.0f} %" if total else f"{done:,} {unit}"
            more = (
                f"{passed * (total - done) / (done - before):.0f} s left"
                if rate and done > before and total
                else ""
            )
            print(
                f"{stage}: {', '.join(each for each in (share, rate, more) if each)}",
                file=sys.stderr,
                flush=True,
            )

    def _compiling(self, what: str) -> None:
        """Say once that something is compiled: the first import on a machine waits for it."""
        if what not in self._compiled:
            self._compiled.add(what)
            line = f"compiling {what}: once, the cache keeps it"
            say(line) if self._bar is None else self._bar.console.print(line, highlight=False)

    def __enter__(self) -> "ProgressBar":
        if self._bar is not None:
            self._bar.start()
        self._told_of_compiling.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._told_of_compiling.__exit__(None, None, None)
        if self._bar is not None:
            self._bar.stop()
