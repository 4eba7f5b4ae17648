"""VertexNumbers: numbers of vertices in the order in which a batch finds them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.sampling.picks import number_sources, number_vertices

_MOST = 2**31 - 1


class VertexNumbers:
    """Numbers vertices, batch after batch, for one thread.

    The table has a slot of four bytes for each vertex: `base` and the vertex's number. Every batch has a base above all slots of those
    before it. A vertex is known if its slot is not below the base, so that nothing has to be forgotten between batches.

    vertices: of the graph
    """

    def __init__(self, vertices: int) -> None:
        self._slots = np.full(vertices, -1, np.int32)
        self._base = self._above = 0  # of this batch, and of the next

    def begin(self, vertices: NDArray[np.int64]) -> int:
        """Number the vertices of a new batch in their order; the place of the first that comes twice, or -1."""
        if self._above > _MOST - len(self._slots):
            self._slots[:] = -1
            self._above = 0
        self._base = self._above
        self._above += len(vertices)
        return int(number_vertices(vertices, self._slots, self._base))

    def number(self, sources: NDArray[Any], found: NDArray[np.int64], known: int) -> int:
        """Number the sources of edges as they are found, in place; how many vertices are known then.

        found: the vertex of each number; the first `known` are there. One longer than it can become
        """
        count = int(number_sources(sources, self._slots, self._base, found, known))
        self._above = self._base + count
        return count
