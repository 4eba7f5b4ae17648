"""WriteBehind: rows written to their tables by a thread of its own, neighbours together."""

import threading
from collections.abc import Callable
from contextlib import nullcontext

from siafu.kernels import Table
from siafu.tables.row_table import RowTable

REQUEST_BYTES = 4 << 20
"""As much is written at a time, if as much comes: disks take large requests faster, and each costs the processor time."""


class _Run:
    """Rows that follow each other and are written together.

    closed:  nothing more is added: somebody waits for it, or it is being written
    written: also where that failed
    """

    def __init__(self, table: RowTable, first: int) -> None:
        self.table, self.first, self.last = table, first, first
        self.pieces: list[Table] = []
        self.closed = self.written = False

    @property
    def size(self) -> int:
        """Bytes."""
        return (self.last - self.first) * self.table.row_bytes

    def add(self, rows: Table) -> None:
        self.pieces.append(rows)
        self.last += len(rows)


class WriteBehind:
    """Takes rows and writes them while others are made.

    most: bytes that may wait; whoever brings more waits for the disk

    No wait can last for ever. Threads wait in `put` and `flush` alone, for the writing thread, and for rows that were put before; it takes
    no lock of theirs and waits for none of them. Memory that `buffer` gave counts for nothing until it is put: whoever has it may wait
    for any lock, also for one whose owner flushes.
    """

    def __init__(self, most: int) -> None:
        self._changed, self._most, self._waiting = threading.Condition(), most, 0
        self._runs: list[_Run] = []  # in the order in which they were begun
        self._asked: list[int] = []  # bytes of those that wait for room
        self._ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="siafu-write", daemon=True)
        self._thread.start()

    def buffer(self, table: RowTable, first: int, rows: int) -> Table:
        """Memory for rows that `put` will write from `first` on. What is in it means nothing."""
        return table.lent_rows(rows, first)

    def zeros(self, table: RowTable, first: int, rows: int) -> Table:
        """The same, filled with zeros."""
        found = self.buffer(table, first, rows)
        found[:] = 0
        return found

    def put(self, table: RowTable, first: int, rows: Table) -> None:
        """Write rows that `buffer` gave, which are not touched any more; waits until there is room.

        It waits for what is to be written to the same rows, too: what came later shall stay.
        """
        last, size = first + len(rows), len(rows) * table.row_bytes
        with self._changed:

            def may_go() -> bool:
                return self._has_room(size) and not self._overlapping(table, first, last)

            if not may_go():
                self._close(self._overlapping(table, first, last))
                self._asked.append(size)
                with table.waiting():
                    self._wait(may_go)
                self._asked.remove(size)
            self._raise()
            if not size:
                return
            found = (run for run in self._runs if run.table is table and run.last == first and not run.closed)
            run = next(found, None)
            if run is None:
                run = _Run(table, first)
                self._runs.append(run)
            run.add(rows)
            self._waiting += size
            self._changed.notify_all()

    def flush(self, table: RowTable | None = None, first: int = 0, last: int | None = None) -> None:
        """Return when all that was put is written, or all of some rows of one table; or raise what went wrong."""
        with self._changed:
            found = [
                *(
                    self._runs
                    if table is None
                    else self._overlapping(table, first, table.rows if last is None else last)
                )
            ]
            self._close(found)
            slow = found[0].table.waiting(all_threads=True) if found and table is None else nullcontext()
            with slow:
                self._wait(lambda: all(run.written for run in found))
        self._raise()

    def close(self) -> None:
        """End the thread after what waits is written."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()

    def _has_room(self, size: int) -> bool:
        return self._waiting == 0 or self._waiting + size <= self._most

    def _overlapping(self, table: RowTable, first: int, last: int) -> list[_Run]:
        return [run for run in self._runs if run.table is table and run.first < last and first < run.last]

    def _close(self, runs: list[_Run]) -> None:
        for run in runs:
            run.closed = True

    def _wait(self, ready: Callable[[], bool]) -> None:
        """Wait for the writing thread; the lock is held."""
        self._changed.notify_all()
        self._changed.wait_for(ready)

    def _next(self) -> _Run | None:
        """The run to write now, if any: one that somebody waits for, else the longest, since it gains least by more."""
        if not self._runs:
            return None
        demanded = next((run for run in self._runs if run.closed), None)
        if demanded is not None:
            return demanded
        longest = max(self._runs, key=lambda run: run.size)
        is_due = self._ended or 2 * self._waiting > self._most or not all(map(self._has_room, self._asked))
        return longest if is_due or longest.size >= REQUEST_BYTES else None

    def _work(self) -> None:
        while (run := self._taken()) is not None:
            try:
                run.table.write_together(run.first, run.pieces)
            except BaseException as error:  # raised where somebody waits for it
                self._error = self._error or error
            finally:
                self._leave(run)

    def _taken(self) -> _Run | None:
        """The next to be written; None: all is, and there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._next() is not None or (self._ended and not self._runs))
            run = self._next()
            if run is not None:
                run.closed = True
            return run

    def _leave(self, run: _Run) -> None:
        with self._changed:
            run.written = True
            run.pieces.clear()  # their memory is lent again
            self._runs.remove(run)
            self._waiting -= run.size
            self._changed.notify_all()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
