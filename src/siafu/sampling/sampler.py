"""Sampler: draws samples of a graph's in-edges, the same for the same key, on any thread."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.threads import PerThread
from siafu.graph import Graph
from siafu.graph.csr import Csr, IntArray
from siafu.sampling.picks import (
    ALL,
    batch_key,
    count_picks,
    order_rows,
    pick_edges,
    read_sources,
)
from siafu.sampling.sample import Sample
from siafu.sampling.vertex_numbers import VertexNumbers

_MOST_EDGES = 2**32  # of a vertex: random numbers have 32 bits


class Sampler:
    """Draws for each vertex, once, some of its in-edges: uniformly, without replacement; all of them where there are no more.

    Any number of threads may sample at a time. Each holds an integer for every vertex of the graph.

    fanouts: the most edges that are drawn of a vertex, by its hops from the batch; ALL: every one
    seed:    with the epoch's and the batch's number, decides every draw
    leaves:  whether the vertices of the last hop are left without numbers (`Sample.drawn`); the draws are the same
    """

    def __init__(self, graph: Graph, fanouts: Sequence[int], seed: int = 0, *, leaves: bool = False) -> None:
        if not fanouts or any(each < 1 and each != ALL for each in fanouts):
            raise BadInput(f"fanout is {list(fanouts)}: give a number from 1 up for each layer, or all")
        self._indptr, self._indices = graph.indptr, graph.indices
        if graph.num_vertices and int(np.diff(graph.indptr).max()) >= _MOST_EDGES:
            raise BadInput("a vertex has 2**32 in-edges or more, which the sampler cannot draw from")
        self.fanouts, self._seed, self._leaves = tuple(fanouts), seed, leaves
        self._numbers = PerThread()

    def sample(self, batch: NDArray[np.int64], epoch: int = 0, number: int = 0) -> Sample:
        """The sample of a batch of vertices, none of which comes twice; number: of the batch in its epoch."""
        seed, numbers = np.uint64(self._seed % 2**64), self._own_numbers()
        key = np.uint64(batch_key(seed, np.uint64(epoch), np.uint64(number)))
        if numbers.begin(batch) >= 0:
            raise BadInput("a batch has a vertex twice: give each once")
        found, sizes, edges = batch, [len(batch)], _none(self._indices)
        numbered = self.fanouts[:-1] if self._leaves else self.fanouts
        for fanout in numbered:
            before, first = len(edges.indices), len(edges.indptr) - 1
            edges = self._drawn(edges, found[first:], fanout, key)
            found = self._own_room(found, len(edges.indices) - before + 1)
            sources = edges.indices[before:]
            sizes.append(numbers.number(sources, found, sizes[-1]))
            order_rows(edges.indptr[first:] - before, sources, edges.weights[before:])  # type: ignore[index]
            found = found[: sizes[-1]]
        square = _square(edges, len(found))
        if not self._leaves:
            return Sample(found.copy(), tuple(sizes), square)
        read = np.empty_like(edges.indices)
        read_sources(self._indices, edges.weights, read, 0, len(read))
        last = found[len(edges.indptr) - 1 :]
        drawn = self._drawn(edges._replace(indices=read), last, self.fanouts[-1], key)
        return Sample(found.copy(), tuple(sizes), square, drawn)

    def _drawn(self, edges: Csr, vertices: NDArray[np.int64], fanout: int, key: np.uint64) -> Csr:
        """The edges, and after them those that are drawn for some more vertices, by the graph's numbers."""
        before, rows = len(edges.indices), len(edges.indptr)
        indptr = _longer(edges.indptr, len(vertices))
        starts = np.empty(len(vertices) + 1, np.int64)
        count = count_picks(self._indptr, vertices, fanout, starts)
        indices, places = _longer(edges.indices, count), _longer(edges.weights, count)
        pick_edges(self._indptr, self._indices, vertices, key, starts, places[before:], indices[before:])
        np.add(starts[1:], before, out=indptr[rows:])
        return Csr(indptr, indices, places)

    def _own_numbers(self) -> VertexNumbers:
        """This thread's."""
        known = self._numbers.values
        if "numbers" not in known:
            known["numbers"] = VertexNumbers(len(self._indptr) - 1)
        found: VertexNumbers = known["numbers"]
        return found

    def _own_room(self, found: NDArray[np.int64], more: int) -> NDArray[np.int64]:
        """The vertices found so far, with room for more, in memory of this thread that is used again."""
        known, wanted = self._numbers.values, len(found) + more
        room: NDArray[np.int64] = known.get("found", found[:0])
        if len(room) < wanted:
            known["found"] = np.empty(wanted * 5 // 4, np.int64)
        if not np.may_share_memory(known["found"], found):
            known["found"][: len(found)] = found
        grown: NDArray[np.int64] = known["found"]
        return grown


def _none(indices: IntArray) -> Csr:
    """No edges of no vertices; their weights are to be places."""
    return Csr(np.zeros(1, np.int64), np.empty(0, indices.dtype), np.empty(0, np.int64))


def _longer(array: Any, more: int) -> NDArray[Any]:
    """A copy with room for more items at its end."""
    found = np.empty(len(array) + more, array.dtype)
    found[: len(array)] = array
    return found


def _square(edges: Csr, vertices: int) -> Csr:
    """The edges with a row for each vertex; those of the last hop have none."""
    indptr = np.full(vertices + 1, edges.indptr[-1], np.int64)
    indptr[: len(edges.indptr)] = edges.indptr
    return edges._replace(indptr=indptr)
