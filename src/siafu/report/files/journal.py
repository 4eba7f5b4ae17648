"""Journal: writes a run's metrics and trace from a thread of its own, so that training does not wait for a disk."""

import queue
import threading
from collections.abc import Callable
from typing import NamedTuple

from siafu.report.files.metrics import EpochMetrics, MetricsFile
from siafu.report.files.trace_file import TraceFile
from siafu.runtime.happenings import EpochActivity

_TRACED_AT_ONCE = 64
"""Epochs whose spans may wait to be written: more are left out, and counted."""


class _Epoch(NamedTuple):
    metrics: EpochMetrics
    activity: EpochActivity
    traced: bool


class Journal:
    """Metrics and trace of a run. One thread uses it; another writes.

    Every line of metrics is written: where that fails, the next call raises what was wrong. A trace that cannot be
    written is given up, and said so once.

    open_trace: opens the trace, or raises; None: there is none
    troubled:   hears, in words, why there will be no trace; in the thread that uses the journal
    """

    def __init__(
        self,
        metrics: MetricsFile,
        open_trace: Callable[[], TraceFile] | None,
        troubled: Callable[[str], None],
    ) -> None:
        self._metrics, self._troubled = metrics, troubled
        self._trace: TraceFile | None = None
        self._trouble: str | None = None
        self._error: BaseException | None = None
        self._waiting: queue.SimpleQueue[_Epoch | threading.Event | None] = queue.SimpleQueue()
        if open_trace is not None:
            self._try(lambda: self._set_trace(open_trace()))
        self._thread = threading.Thread(target=self._work, name="siafu-journal", daemon=True)
        self._thread.start()

    def add(self, metrics: EpochMetrics, activity: EpochActivity) -> None:
        """An epoch has ended."""
        self._raise()
        traced = self._waiting.qsize() < _TRACED_AT_ONCE
        self._waiting.put(_Epoch(metrics, activity, traced))

    def sync(self) -> None:
        """Bring every line to the disk."""
        self._drain()
        self._metrics.sync()

    def keep_until(self, epoch: int) -> None:
        """Drop what was written of later epochs."""
        self._drain()
        self._metrics.keep_until(epoch)
        if self._trace is not None:
            trace = self._trace
            self._try(lambda: trace.keep_until(epoch))

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left. Does not raise: whoever must know that all is written calls `sync` before."""
        self._waiting.put(None)
        self._thread.join()
        if self._trace is not None:
            self._try(self._trace.close)
        self._tell()

    def _drain(self) -> None:
        written = threading.Event()
        self._waiting.put(written)
        written.wait()
        self._raise()

    def _raise(self) -> None:
        self._tell()
        if self._error is not None:
            raise self._error

    def _tell(self) -> None:
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            self._troubled(trouble)

    # In the thread that writes

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
            else:
                self._write(item)

    def _write(self, epoch: _Epoch) -> None:
        if self._error is None:
            try:
                self._metrics.append(epoch.metrics)
            except BaseException as error:  # raised where the run can end by it
                self._error = error
        write = None if self._trace is None else self._trace.add if epoch.traced else self._trace.drop
        if write is not None:
            self._try(lambda: write(epoch.metrics.epoch, epoch.activity))

    def _set_trace(self, trace: TraceFile) -> None:
        self._trace = trace

    def _try(self, what: Callable[[], object]) -> None:
        """Do something with the trace; if that fails there is none from now on."""
        try:
            what()
        except Exception as error:
            self._trace = None
            self._trouble = f"the run goes on without its trace: {' '.join(str(error).split())}"
