"""RowStream: rows of a table on disk as tasks read them: block after block of a range, each span of blocks read ahead."""

import bisect
import itertools
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

from siafu.base.threads import PerThread
from siafu.kernels import Table
from siafu.tables.page_pool import lent_buffer
from siafu.tables.row_table import RowTable

SPAN_BYTES = 4 << 20
"""About as much is read at a time."""
SPANS_A_THREAD = 3
"""In memory: the one in use, the next, and a block that lies across both."""
_READERS = 2


@cache
def _ahead() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_READERS, thread_name_prefix="siafu-ahead")


@dataclass(slots=True)
class _Place:
    """Where a thread reads: the span in its hands, and the one that comes."""

    span: int = -1
    rows: Table | None = None
    coming: tuple[int, Future[Table]] | None = None


class RowStream:
    """Any thread reads; the rows of a range that it asks for one after the other come without waiting.

    ranges: of rows, that follow each other and cover all: nothing is read ahead beyond the end of one
    """

    def __init__(self, table: RowTable, ranges: Sequence[tuple[int, int]]) -> None:
        self.table = table
        self._spans = list(spans_of(table.row_bytes, ranges))
        self._starts = [first for first, _, _ in self._spans]
        self._places = PerThread()

    def read(self, first: int, last: int) -> Table:
        """Rows first:last, to be read only; they lie as in a table."""
        if first == last:
            return self.table.buffer(0)
        span = bisect.bisect_right(self._starts, first) - 1
        rows, begin = self._span(span), self._spans[span][0]
        if last <= self._spans[span][1]:
            return rows[first - begin : last - begin]
        across = self.table.buffer(last - first)
        while first < last:
            begin, end, _ = self._spans[span]
            stop = min(end, last)
            across[len(across) - (last - first) :][: stop - first] = self._span(span)[
                first - begin : stop - begin
            ]
            first, span = stop, span + 1
        return across

    def _span(self, number: int) -> Table:
        place: _Place = self._places.values.setdefault("place", _Place())
        if place.span != number:
            coming, place.coming = place.coming, None
            place.rows = None  # its memory is free before more is taken
            known = coming is not None and coming[0] == number
            with self.table.waiting():
                place.rows = coming[1].result() if known and coming is not None else self._load(number)
            place.span = number
            ahead = number + 1
            if ahead < len(self._spans) and self._spans[ahead][2] == self._spans[number][2]:
                place.coming = ahead, _ahead().submit(self._load, ahead)
        assert place.rows is not None
        return place.rows

    def _load(self, number: int) -> Table:
        first, last, _ = self._spans[number]
        return self.table.read(first, last, lent_buffer(self.table.buffer_bytes(last - first)))


def spans_of(row_bytes: int, ranges: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int, int]]:
    """Spans that are read at a time, as first and last row, and the number of the range that each is of."""
    found = []
    for number, (first, last) in enumerate(ranges):
        count = -(-(last - first) * row_bytes // SPAN_BYTES)
        bounds = [first + (last - first) * k // count for k in range(count + 1)] if count else []
        found += [(low, high, number) for low, high in itertools.pairwise(bounds)]
    return found
