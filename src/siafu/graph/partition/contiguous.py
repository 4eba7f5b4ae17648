"""The contiguous partition: ranges of vertices. For graphs whose order already keeps neighbours together."""

import numpy as np

from siafu.graph.graph import Graph
from siafu.graph.partition.intervals import intervals
from siafu.graph.partition.partition import Owners, owner_dtype


def contiguous_owners(graph: Graph, parts: int) -> Owners:
    """Server s owns the s-th of `parts` ranges, which are alike in vertices and edges together."""
    sizes = [last - first for first, last in intervals(graph.indptr, parts)]
    return np.repeat(np.arange(parts, dtype=owner_dtype(parts)), sizes)
