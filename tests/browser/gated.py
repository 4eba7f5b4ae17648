"""A real training whose epochs are let through by the test, so that a browser sees it at work without anybody waiting."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import siafu
from siafu.base.errors import SiafuError
from siafu.report.files.metrics import EpochMetrics
from siafu.report.files.stop_file import StopFile
from siafu.report.progress import Progress
from tests.sessions import gcn
from tests.toys import toy_graph


class Gate(Progress):
    """Lets as many epochs through as it was told to."""

    def __init__(self) -> None:
        self._let_through = threading.Semaphore(0)
        self._open = threading.Event()

    def let_through(self, epochs: int) -> None:
        self._let_through.release(epochs)

    def open(self) -> None:
        self._open.set()
        self._let_through.release()

    def epoch_ended(self, metrics: EpochMetrics) -> None:
        self._let_through.acquire()
        if self._open.is_set():
            self._let_through.release()


class Training(threading.Thread):
    """A training in a thread of this process; `ended` is what came of it."""

    def __init__(self, out: Path, **options: Any) -> None:
        super().__init__(name="training")
        self.gate = Gate()
        self.ended: siafu.Run | SiafuError | None = None
        self._options = {"out": out, "checkpoint_every": 0.0, "progress": self.gate, **options}

    def run(self) -> None:
        graph = toy_graph()
        try:
            self.ended = siafu.train(graph, gcn(graph), **self._options)
        except SiafuError as error:
            self.ended = error


@contextmanager
def training(out: Path, **options: Any) -> Iterator[Training]:
    """A training that has begun, and is over when the block is."""
    thread = Training(out, **options)
    thread.start()
    try:
        yield thread
    finally:
        if thread.is_alive():
            StopFile(out).ask()
        thread.gate.open()
        thread.join()
