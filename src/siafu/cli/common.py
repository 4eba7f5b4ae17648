"""What several commands share: sizes as people write them, saved runs, and a progress bar."""

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from siafu.base.errors import BadInput
from siafu.base.memory import parse_size as parse_size

if TYPE_CHECKING:
    from siafu.graph import Graph
    from siafu.training.run import Run

_PLAIN_SECONDS = 5.0  # between lines where there is no terminal to redraw


def load_run_and_graph(path: Path, dataset: str | None) -> "tuple[Run, Graph]":
    """A saved run, and the graph to use it on: `dataset`, or the one it was trained on."""
    import siafu

    run = siafu.Run.load(path)
    source = dataset or run.config["dataset"]
    if source is None:
        raise BadInput(f"{path} does not say where its graph is: name the dataset or store after the run")
    return run, siafu.load(source)


class ProgressBar:
    """A `siafu.graph.progress.Progress` on stderr: a bar with rate and time left on a terminal, else plain lines.

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
        self._started: dict[str, float] = {}
        self._told = time.monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        unit = self._unit if self._unit in stage else stage.split()[-1]
        began = self._started.setdefault(stage, now)
        speed = done / max(now - began, 1e-9)
        rate = f"{speed / 1e6:.1f} M {unit}/s"
        if self._bar is not None:
            if stage not in self._tasks:
                self._tasks[stage] = self._bar.add_task(stage, total=total or None, rate="")
            self._bar.update(self._tasks[stage], completed=done, total=total or None, rate=rate)  # type: ignore[arg-type]
        elif now - self._told >= _PLAIN_SECONDS:
            self._told = now
            share = f"{100 * done / total:.0f} %, " if total else f"{done:,} {unit}, "
            left = f", {(total - done) / speed:.0f} s left" if total and speed > 0 else ""
            print(f"{stage}: {share}{rate}{left}", file=sys.stderr, flush=True)

    def __enter__(self) -> "ProgressBar":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
