"""EdgeBuckets: edges in the order in which a gather by groups walks them, in mapped scratch files: each is read once a gather."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.storage.mapped import read_soon
from siafu.base.threads import run_all
from siafu.graph.csr import Allocate, Csr
from siafu.kernels import count_buckets, fill_buckets, first_edges

Ids = NDArray[np.int64]
Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class EdgeBuckets:
    """Edges by group of rows, then by partition of their sources, then by row.

    first:   number of each group by its first row
    counts:  of each group, [partitions, rows]: edges of each row
    starts:  of each group, [partitions + 1]: where its buckets begin
    indices: of all edges; weights: likewise, or None
    """

    first: dict[int, int]
    counts: Sequence[NDArray[np.uint32]]
    starts: Sequence[Ids]
    indices: NDArray[Any]
    weights: NDArray[Any] | None

    @classmethod
    def of(
        cls,
        edges: Csr,
        weights: NDArray[Any] | None,
        rows: tuple[Ids | None, Ids],
        groups: Ranges,
        partitions: Ranges,
        allocate: Allocate,
    ) -> "EdgeBuckets":
        """Copy the edges; sources ascend within a row.

        weights: of the edges, as they are summed; None: each weighs 1
        rows:    those that are gathered for, ascending, None: all; and those that are left out
        """
        bounds = np.array([partitions[0][0], *(last for _, last in partitions)], np.int64)
        counts: list[NDArray[np.uint32]] = [
            allocate(len(partitions) * (last - first), np.uint32).reshape(len(partitions), last - first)
            for first, last in groups
        ]

        def count(group: int) -> None:
            first, last = groups[group]
            begun = _first_edges(edges, first, last, *rows)
            count_buckets(edges.indptr[first : last + 1], edges.indices, begun, bounds, counts[group])

        run_all(count, range(len(groups)))
        sizes = np.array([each.sum(axis=1, dtype=np.int64) for each in counts])
        ends = np.concatenate([[0], np.cumsum(sizes)])
        starts = [ends[g * len(partitions) : (g + 1) * len(partitions) + 1] for g in range(len(groups))]
        indices = allocate(int(ends[-1]), edges.indices.dtype)
        weighed = None if weights is None else allocate(int(ends[-1]), weights.dtype)

        def fill(group: int) -> None:
            begun, places = _first_edges(edges, *groups[group], *rows), starts[group][:-1].copy()
            fill_buckets(edges.indices, weights, begun, counts[group], places, indices, weighed)

        run_all(fill, range(len(groups)))
        return cls({first: g for g, (first, _) in enumerate(groups)}, counts, starts, indices, weighed)

    def bucket(self, first: int, partition: int) -> tuple[Ids, NDArray[Any], NDArray[Any] | None]:
        """Edges of the group that begins with row `first` from one partition, by row; the next bucket is read ahead."""
        group = self.first[first]
        counts, starts = self.counts[group], self.starts[group]
        if partition + 2 < len(starts):
            self._read_soon(counts[partition + 1], slice(starts[partition + 1], starts[partition + 2]))
        inside = slice(starts[partition], starts[partition + 1])
        indptr = np.zeros(counts.shape[1] + 1, np.int64)
        np.cumsum(counts[partition], out=indptr[1:])
        return indptr, self.indices[inside], None if self.weights is None else self.weights[inside]

    def _read_soon(self, counts: NDArray[np.uint32], inside: slice) -> None:
        read_soon(counts)
        read_soon(self.indices[inside])
        if self.weights is not None:
            read_soon(self.weights[inside])


def rows_between(rows: Ids | None, first: int, last: int) -> Ids | None:
    """Those of some rows that are in a group, counted from its first; None stands for all."""
    return None if rows is None else rows[slice(*np.searchsorted(rows, (first, last)))] - first


def _first_edges(edges: Csr, first: int, last: int, needed: Ids | None, left_out: Ids) -> Ids:
    """The first edge that counts of each row of a group."""
    indptr = edges.indptr[first : last + 1]
    at = first_edges(indptr, rows_between(needed, first, last))
    apart = left_out[(left_out >= first) & (left_out < last)] - first
    at[apart] = indptr[apart + 1]
    return at
