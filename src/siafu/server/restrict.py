"""Edges and rows that are left when only some rows of a gather are needed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.graph.csr import Allocate, Csr
from siafu.graph.partition import ByServer
from siafu.kernels import over_rows

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


def edges_to(edges: Csr, wanted: Mask, *, at_most: float, allocate: Allocate = np.empty) -> Csr | None:
    """The edges whose column is wanted, rows and columns numbered as before; None if more than a share stays.

    allocate: makes the arrays that have a number for each edge
    """
    rows = len(edges.indptr) - 1
    indptr = np.zeros(rows + 1, np.int64)
    over_rows(
        edges.indptr, 1, lambda first, last: _count(edges.indptr, edges.indices, wanted, indptr, first, last)
    )
    np.cumsum(indptr, out=indptr)
    if indptr[-1] > at_most * len(edges.indices):
        return None
    indices = allocate(int(indptr[-1]), edges.indices.dtype)
    weights = None if edges.weights is None else allocate(int(indptr[-1]), edges.weights.dtype)
    over_rows(
        edges.indptr,
        1,
        lambda first, last: _copy(*edges, wanted, indptr, indices, weights, first, last),
    )
    return Csr(indptr, indices, weights)


def rows_read(edges: Csr, rows: Ids, columns: int) -> Mask:
    """[columns] whether the edges of some rows lead there."""
    read = np.zeros(columns, np.bool_)
    _mark(edges.indptr, edges.indices, rows, read)
    return read


def rows_read_by(out_edges: Csr, servers: NDArray[Any], wanted: Mask, server: int, parts: int) -> ByServer:
    """Own rows, by every other server that has a wanted column of theirs.

    servers: [columns] who owns each column of `out_edges`
    """
    seen = np.zeros((parts, len(out_edges.indptr) - 1), np.bool_)
    _mark_readers(out_edges.indptr, out_edges.indices, servers, wanted, seen)
    seen[server] = False
    rows = [np.flatnonzero(mask) for mask in seen]
    starts = np.concatenate([[0], np.cumsum([len(own) for own in rows])])
    return ByServer(starts, np.concatenate(rows))


@kernel
def _count(indptr: Any, indices: Any, wanted: Any, counts: Any, first: int, last: int) -> None:
    for i in range(first, last):
        for e in range(indptr[i], indptr[i + 1]):
            counts[i + 1] += wanted[indices[e]]


@kernel
def _copy(
    indptr: Any,
    indices: Any,
    weights: Any,
    wanted: Any,
    new_indptr: Any,
    out: Any,
    out_weights: Any,
    first: int,
    last: int,
) -> None:
    for i in range(first, last):
        at, end = new_indptr[i], new_indptr[i + 1]
        for e in range(indptr[i], indptr[i + 1]):
            # Written whether wanted or not, and overwritten then: no branch that nobody can foresee.
            if at < end:
                out[at] = indices[e]
                if weights is not None:
                    out_weights[at] = weights[e]
            at += wanted[indices[e]]


@kernel
def _mark(indptr: Any, indices: Any, rows: Any, read: Any) -> None:
    for i in rows:
        for e in range(indptr[i], indptr[i + 1]):
            read[indices[e]] = True


@kernel
def _mark_readers(indptr: Any, indices: Any, servers: Any, wanted: Any, seen: Any) -> None:
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            if wanted[indices[e]]:
                seen[servers[indices[e]], i] = True
