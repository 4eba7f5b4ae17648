"""SpilledRows: rows of one interval that are on disk."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from siafu.kernels import Table
from siafu.server.rows.interval_rows import IntervalRows, spread
from siafu.tables import ComingRows, NamedTables
from siafu.tables.pages import PAGE
from siafu.tables.row_stream import SPAN_BYTES

SPANS = 2
"""Of a table in memory: the one in use, and the next."""


@dataclass(slots=True)
class _Span:
    """Rows that are read together.

    begin:       the first that is read
    first, last: those that still count: what was written since then does not
    blocks:      how many it was asked for
    """

    begin: int
    first: int
    last: int
    blocks: int
    coming: ComingRows

    def has(self, where: slice) -> bool:
        return bool(self.first <= where.start and where.stop <= self.last)


class SpilledRows(IntervalRows):
    """The rows of one interval, on disk but for what belongs to others. Some blocks at a time are read ahead: they come in ascending
    order, and differ by a row at most. Other blocks are read when they are asked for.

    first: the interval's first row
    """

    def __init__(self, first: int, count: int, disk: NamedTables) -> None:
        super().__init__(count)
        self._first, self._disk = first, disk
        self._spilled: set[str] = set()
        self._spans: dict[str, list[_Span]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}

    def put(self, name: str, where: slice, rows: Tensor) -> None:
        self._drop(name, where)
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
        found = self._block(name, where)
        # With nothing between rows, as they are in memory: products of matrices shall have the same bits.
        return torch.from_numpy(found).reshape(len(found), *self._shapes[name])

    def has(self, name: str) -> bool:
        return name in self._spilled or super().has(name)

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._there.pop(name, None)
            self._spilled.discard(name)
            self._spans.pop(name, None)

    def _block(self, name: str, where: slice) -> Table:
        """Some rows, once they are read; what comes after them is read meanwhile."""
        spans = self._spans.setdefault(name, [])
        while spans and not spans[0].has(where):
            del spans[0]
        if not spans:
            spans.append(self._asked(name, where.start, where.stop, 1))
        span = spans[0]
        if len(spans) < SPANS:
            self._ask_ahead(name, where, spans)
        with self._disk.waiting():
            rows = span.coming.result()
        if where.stop == self._count:
            del self._spans[name]
        return rows[where.start - span.begin : where.stop - span.begin]

    def _ask_ahead(self, name: str, where: slice, spans: list[_Span]) -> None:
        """Have the blocks read that come after those of the span which `where` is of, its first block as a rule."""
        (span,) = spans
        longest = where.stop - where.start + 1
        first = where.start + span.blocks * (longest - 2)
        first = max(where.stop, first if first <= span.last else span.last - longest)
        room = (SPAN_BYTES - 2 * PAGE) // self._disk.row_bytes(name) - 2 * span.blocks
        blocks = max(1, room // longest)
        last = min(self._count, where.start + (span.blocks + blocks) * longest)
        if span.last < last:
            spans.append(self._asked(name, first, last, blocks))

    def _asked(self, name: str, first: int, last: int, blocks: int) -> _Span:
        coming = self._disk.read_ahead(name, self._first + first, self._first + last)
        return _Span(first, first, last, blocks, coming)

    def _drop(self, name: str, where: slice) -> None:
        """Forget what was read of rows that are written anew, and of those before them."""
        spans = self._spans.get(name, [])
        for span in spans:
            if where.start < span.last and span.first < where.stop:
                span.first = where.stop
        spans[:] = [span for span in spans if span.first < span.last]
