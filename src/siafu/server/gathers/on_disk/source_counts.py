"""SourceCounts: sources that the edges of a group of rows read, counted before any row is gathered."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.kernels import edge_ends, rows_within

Ids = NDArray[np.int64]
Ranges = Sequence[tuple[int, int]]

_EDGES_AT_ONCE = 1 << 20  # that are looked at: their ends are copied


class SourceCounts(NamedTuple):
    """The most that a group has: sources, its own rows among them; and edges."""

    sources: int
    edges: int


def mark_sources(
    indptr: Ids, indices: NDArray[np.int32], picked: Ids | None, first: int, last: int, sources: int
) -> NDArray[np.bool_]:
    """[sources] whether the edges of rows first:last read them, of those rows that are `picked`; None: all."""
    found = np.zeros(sources, np.bool_)
    at, end = (first, last) if picked is None else np.searchsorted(picked, (first, last)).tolist()
    while at < end:
        stop = int(rows_within(indptr, picked, at, end, _EDGES_AT_ONCE))
        read: NDArray[Any]
        if picked is None:
            read = indices[indptr[at] : indptr[stop]]
        else:
            read, _, _ = edge_ends(indptr, indices, None, picked, at, stop)
        found[read] = True
        at = stop
    return found


def count_sources(
    indptr: Ids, indices: NDArray[np.int32], picked: Ids | None, groups: Ranges, sources: int
) -> SourceCounts:
    """Of groups of rows that edges lead to, from so many sources."""
    most = edges = 0
    for first, last in groups:
        marked = mark_sources(indptr, indices, picked, first, last, sources)
        others = np.count_nonzero(marked) - np.count_nonzero(marked[first:last])
        most = max(most, int(others) + last - first)
        edges = max(edges, int(indptr[last] - indptr[first]))
    return SourceCounts(most, edges)


def count_targets(indptr: Ids, indices: NDArray[np.int32], groups: Ranges) -> SourceCounts:
    """The same of groups of rows that edges start from, without a copy of the edges by their start.

    indices: ascend within a row, as everywhere
    """
    ends = np.array([last for _, last in groups])
    others, edges = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
    at, rows = 0, len(indptr) - 1
    while at < rows:
        stop = int(rows_within(indptr, None, at, rows, _EDGES_AT_ONCE))
        row = np.repeat(np.arange(at, stop), np.diff(indptr[at : stop + 1]))
        group = np.searchsorted(ends, indices[indptr[at] : indptr[stop]], side="right")
        edges += np.bincount(group, minlength=len(groups))
        new = np.ones(len(row), np.bool_)
        new[1:] = (row[1:] != row[:-1]) | (group[1:] != group[:-1])
        new &= np.searchsorted(ends, row, side="right") != group
        others += np.bincount(group[new], minlength=len(groups))
        at = stop
    own = np.array([last - first for first, last in groups])
    return SourceCounts(int((others + own).max()), int(edges.max()))
