"""Hubs: rows with so many edges that one thread would still sum them when the others are done.

The edges of a hub are cut into groups. Threads sum the groups, each on its own, and the groups' sums are added in the order of
the groups, in float64. A group ends at a source, and which sources those are follows from the row's own edges alone: the bits
are the same on any number of threads, in any interval, with buckets, and where edges that count for nothing are left out.
Short sums, added in float64, are also closer to the true sum than one long sum in float32.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.base.threads import run_all, thread_count

HUB_EDGES = 1 << 16
"""A row with at least so many edges is a hub."""
GROUP_EDGES = 1 << 11
"""Edges of a group, about: enough to make the addition of its sum cheap."""
SHARED_EDGES = 1 << 18
"""A hub with at least so many edges is shared by threads: fewer are summed in about the time that threads need to wake."""
_CHUNKS_PER_THREAD = 4

Ids = NDArray[np.int64]


class Hub(NamedTuple):
    """A row with very many edges, in pieces.

    row:    its number
    indptr: [pieces + 1] where the edges of each piece begin
    groups: the pieces that are summed, ascending; the others are stored self-loops, where another weight takes their place
    """

    row: int
    indptr: Ids
    groups: Ids

    @property
    def edges(self) -> int:
        return int(self.indptr[-1] - self.indptr[0])


class HubEdges(NamedTuple):
    """Hubs of some rows, and the edges that their pieces are made of.

    hubs:    by row, ascending
    places:  [hubs] where each is among the rows that are gathered for
    indices: of the edges
    weights: of the edges; None: every edge weighs 1
    """

    hubs: list[Hub]
    places: Ids
    indices: NDArray[Any]
    weights: NDArray[Any] | None

    def within(self, first: int, last: int) -> list[Hub]:
        """The hubs at the places from `first` up to `last`."""
        return self.hubs[slice(*np.searchsorted(self.places, (first, last)))]

    def between(self, first: int, last: int) -> list[tuple[int, int]]:
        """Ranges of the places from `first` up to `last` that no hub stands in."""
        found = []
        for place in self.places[slice(*np.searchsorted(self.places, (first, last)))].tolist():
            found.append((first, place))
            first = place + 1
        return [(low, high) for low, high in (*found, (first, last)) if low < high]


def hub_rows(indptr: Ids) -> Ids:
    """The rows that are hubs, ascending."""
    if len(indptr) < 2 or indptr[-1] - indptr[0] < HUB_EDGES:
        return np.empty(0, np.int64)
    found: Ids = _long_rows(indptr, HUB_EDGES)
    return found


def cut_hubs(
    rows: Ids,
    whole: tuple[Ids, NDArray[Any]],
    left: tuple[Ids, NDArray[Any]] | None = None,
    *,
    self_loops: bool,
) -> list[Hub]:
    """Hubs in pieces.

    rows:  the hubs, in `whole`
    whole: indptr and indices of all edges, which say where groups end
    left:  indptr and indices of the edges that are summed, numbered as in `whole`; None: all
    self_loops: whether edges from a row to itself count
    """
    found = []
    indptr, indices = whole
    left_indptr, left_indices = whole if left is None else left
    for row in rows.tolist():
        ends = np.unique(indices[indptr[row] + GROUP_EDGES : indptr[row + 1] : GROUP_EDGES])
        if not self_loops:
            ends = np.union1d(ends, np.array([row, row + 1], ends.dtype))
        low, high = left_indptr[row], left_indptr[row + 1]
        cuts = low + np.searchsorted(left_indices[low:high], ends)
        pieces = np.concatenate([[low], cuts, [high]]).astype(np.int64)
        groups = np.arange(len(pieces) - 1)
        if not self_loops:
            groups = np.delete(groups, np.searchsorted(ends, row) + 1)
        found.append(Hub(row, pieces, groups))
    return found


def without_hubs(indptr: Ids, rows: Ids) -> Ids:
    """`indptr` as if hubs had no edges: for whoever shares out the other rows."""
    if not len(rows):
        return indptr
    counts = np.diff(indptr)
    counts[rows] = 0
    return np.concatenate([indptr[:1], indptr[0] + np.cumsum(counts)])


def over_groups(hub: Hub, count: int, work: Callable[[int, int], None]) -> None:
    """`work(first, last)` over `count` groups or pieces of a hub: on every thread where that pays, else here."""
    if hub.edges < SHARED_EDGES or thread_count() == 1:
        work(0, count)
        return
    chunks = min(count, thread_count() * _CHUNKS_PER_THREAD)
    bounds = [count * k // chunks for k in range(chunks + 1)]
    run_all(lambda chunk: work(*chunk), itertools.pairwise(bounds))


@kernel
def add_groups(groups: Any, sums: Any, out: Any, row: int) -> None:
    """Add the groups' sums to a row, in their order, in float64."""
    columns = out.shape[1]
    total = np.empty(columns, np.float64)
    for c in range(columns):
        total[c] = out[row, c]
    for g in groups:
        for c in range(columns):
            total[c] += sums[g, c]
    for c in range(columns):
        out[row, c] = total[c]


@kernel
def _long_rows(indptr: Any, edges: int) -> Any:
    count = 0
    for i in range(len(indptr) - 1):
        count += indptr[i + 1] - indptr[i] >= edges
    rows = np.empty(count, np.int64)
    count = 0
    for i in range(len(indptr) - 1):
        if indptr[i + 1] - indptr[i] >= edges:
            rows[count] = i
            count += 1
    return rows
