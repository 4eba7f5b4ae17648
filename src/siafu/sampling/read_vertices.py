"""ReadVertices: vertices whose features a sample reads, each once, and where the sources of its edges are among them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.threads import PerThread
from siafu.sampling.vertex_numbers import VertexNumbers


class ReadVertices:
    """Finds them. Any number of threads may call at a time; each holds an integer for every vertex of the graph.

    vertices: of the graph
    """

    def __init__(self, vertices: int) -> None:
        self._vertices, self._numbers = vertices, PerThread()

    def of(
        self, vertices: NDArray[np.int64], sources: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The vertices of a sample and then its leaves; and the place of each source among them."""
        known = self._numbers.values
        if "numbers" not in known:
            known["numbers"] = VertexNumbers(self._vertices)
        numbers: VertexNumbers = known["numbers"]
        numbers.begin(vertices)
        reads = np.empty(len(vertices) + len(sources) + 1, np.int64)
        reads[: len(vertices)] = vertices
        rows = sources.copy()
        count = numbers.number(rows, reads, len(vertices))
        return reads[:count].copy(), rows
