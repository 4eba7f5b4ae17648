"""Sampler: draws samples of a graph's in-edges, the same for the same key, on any thread."""

from collections.abc import Sequence

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
    forget_numbers,
    number_sources,
    number_vertices,
    order_rows,
    pick_edges,
)
from siafu.sampling.sample import Sample

_MOST_EDGES = 2**32  # of a vertex: random numbers have 32 bits


class Sampler:
    """Draws for each vertex, once, some of its in-edges: uniformly, without replacement; all of them where there are no more.

    Any number of threads may sample at a time. Each holds an integer for every vertex of the graph.

    fanouts: the most edges that are drawn of a vertex, by its hops from the batch; ALL: every one
    seed:    with the epoch's and the batch's number, decides every draw
    """

    def __init__(self, graph: Graph, fanouts: Sequence[int], seed: int = 0) -> None:
        if not fanouts or any(each < 1 and each != ALL for each in fanouts):
            raise BadInput(f"fanout is {list(fanouts)}: give a number from 1 up for each layer, or all")
        self._indptr, self._indices = graph.indptr, graph.indices
        if graph.num_vertices and int(np.diff(graph.indptr).max()) >= _MOST_EDGES:
            raise BadInput("a vertex has 2**32 in-edges or more, which the sampler cannot draw from")
        self.fanouts, self._seed = tuple(fanouts), seed
        self._numbers = PerThread()

    def sample(self, batch: NDArray[np.int64], epoch: int = 0, number: int = 0) -> Sample:
        """The sample of a batch of vertices, none of which comes twice; number: of the batch in its epoch."""
        seed, numbers = np.uint64(self._seed % 2**64), self._own_numbers()
        key = np.uint64(batch_key(seed, np.uint64(epoch), np.uint64(number)))
        if number_vertices(batch, numbers) >= 0:
            numbers[:] = -1
            raise BadInput("a batch has a vertex twice: give each once")
        found, sizes, drawn = batch, [len(batch)], 0
        indptr, picked, sources = [np.zeros(1, np.int64)], list[IntArray](), list[IntArray]()
        for fanout in self.fanouts:
            frontier = found[sizes[-2] if len(sizes) > 1 else 0 :]
            starts = np.empty(len(frontier) + 1, np.int64)
            edges = np.empty(count_picks(self._indptr, frontier, fanout, starts), np.int64)
            pick_edges(self._indptr, frontier, key, starts, edges)
            grown = np.empty(len(found) + len(edges), np.int64)
            grown[: len(found)] = found
            named = np.empty(len(edges), self._indices.dtype)
            known = number_sources(self._indices, edges, numbers, grown, len(found), named)
            order_rows(starts, named, edges)
            found = grown[:known]
            sizes.append(known)
            indptr.append(starts[1:] + drawn)
            drawn += len(edges)
            picked.append(edges)
            sources.append(named)
        forget_numbers(found, numbers)
        return _joined(found.copy(), tuple(sizes), indptr, sources, picked)

    def _own_numbers(self) -> NDArray[np.int32]:
        """[V] -1: this thread's."""
        known = self._numbers.values
        if "numbers" not in known:
            known["numbers"] = np.full(len(self._indptr) - 1, -1, np.int32)
        found: NDArray[np.int32] = known["numbers"]
        return found


def _joined(
    vertices: NDArray[np.int64],
    sizes: tuple[int, ...],
    indptr: Sequence[IntArray],
    sources: Sequence[IntArray],
    picked: Sequence[IntArray],
) -> Sample:
    """The sample of all hops; those of the last have no edges."""
    pointers = np.concatenate(indptr)
    square = np.full(len(vertices) + 1, pointers[-1], np.int64)
    square[: len(pointers)] = pointers
    return Sample(vertices, sizes, Csr(square, np.concatenate(sources), np.concatenate(picked)))
