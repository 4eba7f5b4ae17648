"""What a vertex costs a server beside its edges: the one measure that every balance here uses."""

import numpy as np
from numpy.typing import NDArray


def default_vertex_cost(num_vertices: int, num_edges: int) -> int:
    """How many edges one vertex weighs: the average in-degree, so that all vertices together weigh as much as all
    edges do, and neither can be far out of balance.
    """
    return max(1, round(num_edges / max(1, num_vertices)))


def vertex_costs(indptr: NDArray[np.int64], vertex_cost: int | None = None) -> NDArray[np.int64]:
    """[V] the cost of each vertex with its in-edges, in edges."""
    vertices, edges = len(indptr) - 1, int(indptr[-1] - indptr[0])
    each = default_vertex_cost(vertices, edges) if vertex_cost is None else vertex_cost
    return np.diff(indptr) + each
