"""Sample: some vertices, and for each of them some of its in-edges, drawn once for all layers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.graph.csr import Csr


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Vertices hop by hop from those of a batch, and the edges between them (MariusGNN's DENSE).

    Vertices have numbers of their own here, 0 to N - 1: first the batch's, then those that are found one edge away, then two, and so
    on. Those of the last hop have no edges here. A layer that needs fewer hops takes the first rows of everything.

    vertices:  [N] int64, in the graph's numbers
    sizes:     vertices within 0, 1, … hops; the first is the batch's size, the last is N
    edges:     in-edges of the vertices, by their numbers here, ascending; `weights` are the edges' places in the graph, int64
    drawn:     in-edges of all N vertices, those of the last hop too, by the graph's numbers, as they were drawn; `weights` as
               above. A source that only the last hop has found is a *leaf*, without a number here. None: the last hop has no edges
    """

    vertices: NDArray[np.int64]
    sizes: tuple[int, ...]
    edges: Csr
    drawn: Csr | None = None

    @property
    def places(self) -> NDArray[Any]:
        """[E] the place of each edge among those of the graph."""
        assert self.edges.weights is not None
        return self.edges.weights

    @property
    def num_edges(self) -> int:
        """Edges that were drawn."""
        return len((self.drawn or self.edges).indices)
