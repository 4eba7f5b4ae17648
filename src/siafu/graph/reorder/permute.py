"""A graph's arrays in another order of its vertices."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.base.threads import run_all
from siafu.graph.csr import IntArray, id_dtype
from siafu.graph.graph import Graph
from siafu.graph.stores.content import SPLITS

_BLOCK_BYTES = 64 << 20  # of an array that is made at once
_CHUNKS = 16  # of a block, each in one thread

_Block = NDArray[Any]


def places_of(order: IntArray) -> IntArray:
    """[V] the place of each vertex, of the vertex at each place."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=order.dtype)
    return places


def permuted(graph: Graph, order: IntArray) -> Iterator[tuple[str, Iterator[_Block]]]:
    """Each array of the graph by its name, in blocks of rows: vertices are numbered by their places.

    order: [V] the vertex at each place
    """
    places = places_of(order)
    indptr = np.concatenate([[0], np.cumsum(np.diff(graph.indptr)[order])])
    yield "indptr", iter([indptr])
    yield "indices", (block for block, _ in _edges(graph, order, places, indptr))
    if graph.edge_weight is not None:
        yield "edge_weight", (block for _, block in _edges(graph, order, places, indptr))
    for name in ("edge_attr", "edge_type"):
        if (of_edges := getattr(graph, name)) is not None:
            yield name, (of_edges[numbers] for numbers in _numbers(graph, order, places, indptr))
    for name in ("x", "y"):
        if (values := getattr(graph, name)) is not None:
            yield name, _rows(values, order)
    for name in SPLITS:
        if (ids := getattr(graph, name)) is not None:
            yield name, iter([np.sort(places[ids]).astype(np.int64)])


def _rows(values: _Block, order: IntArray) -> Iterator[_Block]:
    size = max(1, _BLOCK_BYTES // max(1, values[:1].nbytes))
    for start in range(0, len(order), size):
        yield values[order[start : start + size]]


def _edges(
    graph: Graph, order: IntArray, places: IntArray, indptr: NDArray[np.int64]
) -> Iterator[tuple[_Block, Any]]:
    """The sources of each row by their places, ascending, and their weights."""
    for first, last in _spans(indptr, len(order)):
        yield _edge_block(graph, graph.edge_weight, order, places, indptr, first, last)


def _numbers(
    graph: Graph, order: IntArray, places: IntArray, indptr: NDArray[np.int64]
) -> Iterator[IntArray]:
    """The places in the graph of the same edges."""
    numbers = np.arange(graph.num_edges, dtype=id_dtype(graph.num_edges))
    for first, last in _spans(indptr, len(order)):
        yield _edge_block(graph, numbers, order, places, indptr, first, last)[1]


def _spans(indptr: NDArray[np.int64], rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows whose edges are made at once."""
    step = _BLOCK_BYTES // 8
    cuts = np.searchsorted(indptr, np.arange(0, int(indptr[-1]) + step, step))
    bounds = np.unique(np.concatenate([[0], np.minimum(cuts, rows), [rows]]))
    yield from itertools.pairwise(bounds.tolist())


def _edge_block(
    graph: Graph,
    carried: Any,
    order: IntArray,
    places: IntArray,
    indptr: NDArray[np.int64],
    first: int,
    last: int,
) -> tuple[_Block, Any]:
    """Sources of some rows, and what their edges carry: one value each, or None."""
    count = int(indptr[last] - indptr[first])
    indices = np.empty(count, graph.indices.dtype)
    weights = None if carried is None else np.empty(count, carried.dtype)
    into = indptr, indices, weights, first

    def work(span: tuple[int, int]) -> None:
        _fill(graph.indptr, graph.indices, carried, order, places, *into, *span)

    rows = [first + (last - first) * k // _CHUNKS for k in range(_CHUNKS + 1)]
    run_all(work, list(itertools.pairwise(rows)))
    return indices, weights


@kernel
def _fill(
    indptr: Any,
    indices: Any,
    weights: Any,
    order: Any,
    places: Any,
    new_indptr: Any,
    out: Any,
    out_weights: Any,
    begin: int,
    first: int,
    last: int,
) -> None:
    """_Block `first` to `last` of the new order into `out`, which begins with row `begin`."""
    for i in range(first, last):
        lo = new_indptr[i] - new_indptr[begin]
        hi = new_indptr[i + 1] - new_indptr[begin]
        v = order[i]
        for k in range(hi - lo):
            out[lo + k] = places[indices[indptr[v] + k]]
        if weights is None:
            out[lo:hi].sort()
        else:
            sorting = np.argsort(out[lo:hi], kind="mergesort")
            out[lo:hi] = out[lo:hi][sorting]
            out_weights[lo:hi] = weights[indptr[v] : indptr[v + 1]][sorting]
