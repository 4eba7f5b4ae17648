"""SpilledRows: rows of one interval that are on disk."""

from collections.abc import Iterable

import torch
from torch import Tensor

from siafu.kernels import Table
from siafu.server.rows.interval_rows import IntervalRows, spread
from siafu.tables import ComingRows, NamedTables


class SpilledRows(IntervalRows):
    """The rows of one interval, on disk but for what belongs to others. Blocks are read ahead: they come in ascending order.

    first: the interval's first row
    """

    def __init__(self, first: int, count: int, disk: NamedTables) -> None:
        super().__init__(count)
        self._first, self._disk = first, disk
        self._spilled: set[str] = set()
        self._coming: dict[str, tuple[slice, ComingRows]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}

    def put(self, name: str, where: slice, rows: Tensor) -> None:
        self._drop_ahead(name, where)
        self._shapes[name] = tuple(rows.shape[1:])
        self._disk.write(name, self._first + where.start, rows.detach().reshape(len(rows), -1).numpy())
        self._there.pop(name, None)
        self._spilled.add(name)

    def add(self, name: str, where: slice, rows: Tensor) -> None:
        if not self.has(name) or name in self._begun:
            self._begun.add(name)
            self.put(name, where, rows)
            if where.stop == self._count:
                self._begun.remove(name)
        else:
            self.put(name, where, self.get(name, where) + rows)

    def add_some(self, name: str, where: slice, which: Tensor | None, rows: Tensor) -> None:
        if which is not None:
            rows = spread(rows, which, where.stop - where.start)
        self.add(name, where, rows)

    def add_whole(self, name: str, rows: Tensor) -> None:
        known = self.get(name, slice(0, self._count)) if self.has(name) else None
        self._spilled.discard(name)
        self._there[name] = rows if known is None else known + rows

    def pass_sum(self, name: str, where: slice, rows: Tensor) -> None:
        known = self.get(name, where) if self.has(name) else None
        self.pass_by(name, where.start, rows if known is None else known + rows)

    def get(self, name: str, where: slice) -> Tensor:
        if name in self._passing or name not in self._spilled:
            return super().get(name, where)
        found = self._came(name, where)
        if found is None:
            with self._disk.waiting():
                found = self._disk.read(name, self._first + where.start, self._first + where.stop)
        self._ask_for(name, where)
        # With nothing between rows, as they are in memory: products of matrices shall have the same bits.
        return torch.from_numpy(found).reshape(len(found), *self._shapes[name])

    def has(self, name: str) -> bool:
        return name in self._spilled or super().has(name)

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._there.pop(name, None)
            self._spilled.discard(name)
            self._coming.pop(name, None)

    def _came(self, name: str, where: slice) -> Table | None:
        """Rows that were read ahead, if they are these."""
        coming = self._coming.pop(name, None)
        if coming is None:
            return None
        span, future = coming
        if not span.start <= where.start <= where.stop <= span.stop:
            return None
        with self._disk.waiting():
            rows = future.result()
        return rows[where.start - span.start : where.stop - span.start]

    def _ask_for(self, name: str, where: slice) -> None:
        """Have the next block read: blocks of an interval differ by a row."""
        stop = min(self._count, where.stop + where.stop - where.start + 1)
        if where.stop < stop:
            span = slice(where.stop, stop)
            first = self._first
            self._coming[name] = span, self._disk.read_ahead(name, first + span.start, first + span.stop)

    def _drop_ahead(self, name: str, where: slice) -> None:
        if name in self._coming:
            span, _ = self._coming[name]
            if where.start < span.stop and span.start < where.stop:
                del self._coming[name]
