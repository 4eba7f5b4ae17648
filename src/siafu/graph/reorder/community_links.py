"""Room for Rabbit order's work: the links of vertices to communities, and the tables in which they are added up."""

from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.graph.csr import IntArray


class CommunityLinks:
    """Edges to communities, added up, of the vertices that looked for one.

    They are no more than the graph has edges: those of a vertex that joined another are dropped when that one has taken
    them over.
    """

    def __init__(self, edges: int) -> None:
        self._count = 0
        self._lock = Lock()
        size = edges + edges // 2 + 1
        self.ends, self.weights = np.empty(size, np.int32), np.empty(size, np.float32)

    def make_room(self, links: int, firsts: NDArray[np.int64], lasts: NDArray[np.int64]) -> None:
        """Let so many be appended: what was dropped makes room.

        firsts, lasts: [V] where a vertex's links begin and end; they are moved along
        """
        if self._count + links <= len(self.ends):
            return
        held = np.flatnonzero(lasts > firsts)
        held = held[np.argsort(firsts[held])]
        self._count = _move_down(held, firsts, lasts, self.ends, self.weights)
        if (size := self._count + links) > len(self.ends):
            self.ends, self.weights = _grown(self.ends, size), _grown(self.weights, size)

    def append(self, ends: IntArray, weights: NDArray[np.float32]) -> int:
        """Add some, from any thread; where they begin."""
        with self._lock:
            begin = self._count
            self._count += len(ends)
        self.ends[begin : begin + len(ends)] = ends
        self.weights[begin : begin + len(ends)] = weights
        return begin


LinkArrays = tuple[Any, Any, Any, Any, Any, Any, Any]


class LinkTable:
    """A hash table of communities, for one thread: small ones stay in its cache.

    keys, sums: the communities, -1 where free, and the sum of the links to each
    slots:      those that are taken, in order
    roots, weights: of the links that are added up
    ends, summed:   the sums of all vertices of a chunk, one after the other
    """

    def __init__(self) -> None:
        self._resize(1 << 10)
        self._widen(1 << 12)

    def _resize(self, links: int) -> None:
        size = 1 << (2 * links - 1).bit_length()
        self.keys, self.sums = np.full(size, -1, np.int32), np.empty(size, np.float32)
        self.slots, self.roots = np.empty(links, np.int32), np.empty(links, np.int32)
        self.weights = np.empty(links, np.float32)

    def _widen(self, links: int) -> None:
        self.ends, self.summed = np.empty(links, np.int32), np.empty(links, np.float32)

    def arrays(self, links: int, most: int) -> LinkArrays:
        """Work arrays for vertices that have so many links together, and one of them at most so many."""
        if most > len(self.roots):
            self._resize(2 * most)
        if links > len(self.ends):
            self._widen(2 * links)
        return self.keys, self.sums, self.slots, self.roots, self.weights, self.ends, self.summed


def _grown(values: NDArray[Any], size: int) -> NDArray[Any]:
    out = np.empty(size, values.dtype)
    out[: len(values)] = values
    return out


@kernel
def _move_down(held: Any, begin: Any, end: Any, ends: Any, weights: Any) -> int:
    """Close the gaps between the links of the vertices `held`, which ascend by `begin`; where the last ends."""
    at = 0
    for v in held:
        first, count = begin[v], end[v] - begin[v]
        for k in range(count):
            ends[at + k] = ends[first + k]
            weights[at + k] = weights[first + k]
        begin[v], end[v] = at, at + count
        at += count
    return at
