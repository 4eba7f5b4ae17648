"""WriteBehind: rows written to their tables by a thread of its own, in the order in which they come."""

import queue
import threading
from collections import Counter
from collections.abc import Callable

from siafu.kernels import Table
from siafu.tables.row_table import RowTable


class WriteBehind:
    """Takes rows, which are copied, and writes them while others are made.

    most: bytes that may wait; whoever brings more waits for the disk
    """

    def __init__(self, most: int) -> None:
        self._room, self._most, self._waiting = threading.Condition(), most, 0
        self._of: Counter[RowTable] = Counter()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="siafu-write", daemon=True)
        self._thread.start()

    def buffer(self, table: RowTable, first: int, rows: int) -> Table:
        """Memory for rows that `put` will write from `first` on; waits until there is room. What is in it means nothing."""
        size = rows * table.row_bytes
        with self._room:
            if not self._has_room(size):
                with table.waiting():
                    self._room.wait_for(lambda: self._has_room(size))
            self._waiting += size
            self._of[table] += size
        return table.lent_rows(rows, first)

    def zeros(self, table: RowTable, first: int, rows: int) -> Table:
        """The same, filled with zeros."""
        found = self.buffer(table, first, rows)
        found[:] = 0
        return found

    def put(self, table: RowTable, first: int, rows: Table) -> None:
        """Write rows that `buffer` gave, which are not touched any more."""
        self._raise()

        def job() -> None:
            try:
                table.write(first, rows)
            finally:
                self._leave(table, len(rows) * table.row_bytes)

        self._jobs.put(job)

    def flush(self, table: RowTable | None = None) -> None:
        """Return when all is written, or all of one table, or raise what went wrong."""
        with self._room:
            if table is not None:
                self._room.wait_for(lambda: self._of[table] == 0)
            elif self._waiting:
                slow = next(each for each, size in self._of.items() if size)
                with slow.waiting(all_threads=True):
                    self._room.wait_for(lambda: self._waiting == 0)
        self._raise()

    def close(self) -> None:
        """End the thread after what waits is written."""
        self._jobs.put(None)
        self._thread.join()

    def _has_room(self, size: int) -> bool:
        return self._waiting == 0 or self._waiting + size <= self._most

    def _leave(self, table: RowTable, size: int) -> None:
        with self._room:
            self._waiting -= size
            self._of[table] -= size
            self._room.notify_all()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException as error:  # raised where somebody waits for it
                self._error = self._error or error

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
