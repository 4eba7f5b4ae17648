"""Reverse Cuthill-McKee order: neighbours near each other along a search through the graph, level by level.

E. Cuthill, J. McKee: Reducing the bandwidth of sparse symmetric matrices, ACM 1969; reversed after A. George.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.graph.csr import Csr, IntArray


def rcm_order(edges: Csr, back: Csr | None = None) -> IntArray:
    """[V] the vertex that comes first, second, and so on.

    back: the same edges by their other end; None: they are symmetric
    """
    degrees = np.diff(edges.indptr) if back is None else np.diff(edges.indptr) + np.diff(back.indptr)
    starts = np.argsort(degrees, kind="stable").astype(np.int32)
    other: Any = (None, None) if back is None else (back.indptr, back.indices)
    return _search(edges.indptr, edges.indices, other[0], other[1], degrees, starts)[::-1].copy()


@kernel
def _search(
    indptr: Any,
    indices: Any,
    back_indptr: Any,
    back_indices: Any,
    degrees: NDArray[np.int64],
    starts: IntArray,
) -> IntArray:
    """Breadth first from the vertex of lowest degree of each component; who is found together, by rising degree."""
    order = np.empty(len(degrees), np.int32)
    seen = np.zeros(len(degrees), np.bool_)
    end = 0
    for start in starts:
        if seen[start]:
            continue
        seen[start] = True
        order[end] = start
        at, end = end, end + 1
        while at < end:
            v, first = order[at], end
            at += 1
            for e in range(indptr[v], indptr[v + 1]):
                if not seen[indices[e]]:
                    seen[indices[e]] = True
                    order[end] = indices[e]
                    end += 1
            if back_indptr is not None:
                for e in range(back_indptr[v], back_indptr[v + 1]):
                    if not seen[back_indices[e]]:
                        seen[back_indices[e]] = True
                        order[end] = back_indices[e]
                        end += 1
            if end - first > 1:
                found = order[first:end].copy()
                order[first:end] = found[np.argsort(degrees[found], kind="mergesort")]
    return order
