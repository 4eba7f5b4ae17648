"""Sums and maxima as the ordered sum of buckets, bit for bit equal to one walk.

A *bucket* is the edges into some rows from one range of sources, whose rows are in memory while others need not be. Sources
ascend within a row, so a bucket's edges of a row stand together. A number for each row, `at`, says which edge comes next:
adding the buckets in ascending order adds the edges of each row in the order of one walk.

    start_sums · add_bucket for each range of sources, ascending · finish_sums

Arrays of targets (indptr, at, out, factors) have the rows that are gathered for and no others; `own` is the number of the first
of them among the sources. Rows that nobody needs have `at` at their last edge's end.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.kernels.hubs import Hub, add_groups, over_groups
from siafu.kernels.llvm.emit import MAX_TILE
from siafu.kernels.llvm.tiles import accumulate_listed, add_where_equal, ask_for, maximise, value_of
from siafu.kernels.rows import Table, zero_table
from siafu.kernels.sums import finish_sum, start_sum

_LISTED = 1024  # edges whose sources are listed before their rows are read: far more than are asked for early
_VISITS = 512  # rows of a list
_SOON = 8  # visits: how early a visit's sums are asked for


def first_edges(indptr: NDArray[np.int64], needed: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """`at` before the first bucket; needed: rows that are gathered for, ascending; None: all."""
    if needed is None:
        return indptr[:-1].copy()
    at = indptr[1:].copy()
    at[needed] = indptr[needed]
    return at


@kernel
def start_sums(rows: Any, self_weight: Any, out: Any, first: int, last: int) -> None:
    """Sums before the first bucket; rows: the targets' own, which count if there are self-loops; else None."""
    for i in range(first, last):
        start_sum(rows, self_weight, out, i)


@kernel
def add_bucket(
    indptr: Any,
    indices: Any,
    weights: Any,
    rows: Any,
    low: int,
    high: int,
    own: int,
    at: Any,
    out: Any,
    first: int,
    last: int,
) -> None:
    """Add the rows of the sources from `low` up to `high` to the sums first:last, in this thread.

    rows: of those sources, the first is that of `low`
    own:  number of the first target among the sources: edges from a row to itself are left out; -1: they count
    at:   the next edge of each row; moves to the first from `high` on
    """
    columns = out.shape[1]
    near = np.empty(_LISTED, np.int32)
    near_weights = np.empty(_LISTED, out.dtype)
    visited, ends = np.empty(_VISITS, np.int64), np.empty(_VISITS, np.int64)
    row = first
    while row < last:
        row, visits = _list_bucket(
            indptr, indices, weights, low, high, own, at, row, last, near, near_weights, visited, ends
        )
        if visits == 0:
            continue
        begin, end = 0, ends[visits - 1]
        for v in range(visits):
            if v + _SOON < visits:
                ask_for(out, visited[v + _SOON], columns)
            for c in range(0, columns, MAX_TILE):
                tile = min(columns - c, MAX_TILE)
                if weights is None:
                    accumulate_listed(out, visited[v], rows, near, begin, ends[v], end, c, tile, None)
                else:
                    accumulate_listed(out, visited[v], rows, near, begin, ends[v], end, c, tile, near_weights)
            begin = ends[v]


@kernel
def finish_sums(scale: Any, out: Any, first: int, last: int) -> None:
    """Sums after the last bucket: times each row's factor."""
    for i in range(first, last):
        finish_sum(scale, out, i)


class HubSum:
    """The sum of one hub, bucket by bucket; threads share a bucket where that pays.

    out: where its row is, begun by `start_sums`; `end` is to be called before `finish_sums`
    """

    def __init__(
        self, hub: Hub, indices: NDArray[Any], weights: NDArray[Any] | None, out: Table, row: int
    ) -> None:
        self._hub, self._indices, self._weights = hub, indices, weights
        self._out, self._row = out, row
        self._at = first_edges(hub.indptr, hub.groups)
        self._sums = zero_table(len(self._at), out.shape[1], out.dtype)

    def add(self, rows: Table, low: int, high: int) -> None:
        """Add the rows of the sources from `low` up to `high`; the first of `rows` is that of `low`."""
        edges = self._hub.indptr, self._indices, self._weights

        def work(first: int, last: int) -> None:
            add_bucket(*edges, rows, low, high, -1, self._at, self._sums, first, last)

        over_groups(self._hub, len(self._at), work)

    def end(self) -> None:
        """Add the groups' sums to the row."""
        add_groups(self._hub.groups, self._sums, self._out, self._row)


@kernel
def start_maxima(indptr: Any, out: Any, ties: Any, first: int, last: int) -> None:
    """Maxima before the first bucket: 0 for a row without edges."""
    for i in range(first, last):
        start = -np.inf if indptr[i] < indptr[i + 1] else 0.0
        for c in range(out.shape[1]):
            out[i, c] = start
            ties[i, c] = 0


@kernel
def maximise_bucket(
    indptr: Any,
    indices: Any,
    rows: Any,
    low: int,
    high: int,
    at: Any,
    out: Any,
    ties: Any,
    first: int,
    last: int,
) -> None:
    """`add_bucket` for maxima, and how many rows reach them."""
    columns = out.shape[1]
    near = np.empty(_LISTED, np.int32)
    visited, ends = np.empty(_VISITS, np.int64), np.empty(_VISITS, np.int64)
    row = first
    while row < last:
        row, visits = _list_bucket(
            indptr, indices, None, low, high, -1, at, row, last, near, None, visited, ends
        )
        begin = 0
        for v in range(visits):
            for c in range(0, columns, MAX_TILE // 2):
                tile = min(columns - c, MAX_TILE // 2)
                maximise(out, ties, visited[v], rows, near, begin, ends[v], c, tile)
            begin = ends[v]


@kernel
def share_out_bucket(
    indptr: Any,
    indices: Any,
    own_rows: Any,
    maxima: Any,
    shares: Any,
    low: int,
    high: int,
    at: Any,
    out: Any,
    first: int,
    last: int,
) -> None:
    """The adjoint of maxima: add the shares of the targets from `low` up to `high` whose maximum a row reaches.

    own_rows:       what the forward gather read of the rows that are gathered for
    maxima, shares: of those targets
    """
    columns = out.shape[1]
    near = np.empty(_LISTED, np.int32)
    visited, ends = np.empty(_VISITS, np.int64), np.empty(_VISITS, np.int64)
    row = first
    while row < last:
        row, visits = _list_bucket(
            indptr, indices, None, low, high, -1, at, row, last, near, None, visited, ends
        )
        begin = 0
        for v in range(visits):
            for c in range(0, columns, MAX_TILE // 2):
                tile = min(columns - c, MAX_TILE // 2)
                add_where_equal(out, visited[v], own_rows, maxima, shares, near, begin, ends[v], c, tile)
            begin = ends[v]


@kernel
def pick_bucket(ids: Any, rows: Any, low: int, high: int, out: Any) -> None:
    """out[e] = the row of source ids[e], where it is one from `low` up to `high`: what an edge function reads."""
    for e in range(len(ids)):
        if low <= ids[e] < high:
            for c in range(out.shape[1]):
                out[e, c] = value_of(rows, ids[e] - low, c)


@kernel
def _list_bucket(
    indptr: Any,
    indices: Any,
    weights: Any,
    low: int,
    high: int,
    own: int,
    at: Any,
    row: int,
    last: int,
    near: Any,
    near_weights: Any,
    visited: Any,
    ends: Any,
) -> tuple[int, int]:
    """List a bucket's next edges: the row to go on with, and how many rows have edges in the list.

    near:    places of the sources among the bucket's
    visited: rows; ends: where the edges of each end in the list
    """
    count, visits = 0, 0
    while row < last and visits < len(visited):
        begin, e, end = count, at[row], indptr[row + 1]
        itself = own + row if own >= 0 else -1
        while e < end and count < len(near) and indices[e] < high:
            if indices[e] != itself:
                near[count] = indices[e] - low
                if weights is not None:
                    near_weights[count] = weights[e]
                count += 1
            e += 1
        at[row] = e
        if count > begin:
            visited[visits], ends[visits] = row, count
            visits += 1
        if count == len(near) and e < end and indices[e] < high:
            break  # the list is full: this row goes on in the next
        row += 1
    return row, visits
