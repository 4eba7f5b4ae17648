"""FirstInput: how a model's first layer gets its features from a sample, and which way takes least."""

from collections.abc import Sequence
from typing import Literal

from siafu.graph import Graph
from siafu.program.density import MOST_DENSITY, sampled_density
from siafu.sampling.picks import ALL

FirstInput = Literal["gathered", "sparse", "rows"]
"""`gathered`: the loader runs the first gather, from the table of features (`FirstGather`).
`sparse`: the model multiplies features without their zeros, and gathers the products (`SparseFeatures`).
`rows`: the model gets the features of all vertices of the sample.
"""

# Nanoseconds of a core: a number of a dense product, of a sparse one there and back, of a gather.
_DENSE, _SPARSE, _GATHERED = 0.02, 0.18, 0.09


def first_input(
    graph: Graph, fanouts: Sequence[int], batch: int, width: int, *, multiplies: bool
) -> FirstInput:
    """The way that takes least, of a model whose first gather can be of the features.

    width:      columns of the first layer
    multiplies: whether that can multiply the features first
    """
    density = sampled_density(graph, gathered=False)
    if not multiplies or density > MOST_DENSITY:
        return "gathered"
    degree = graph.num_edges / max(1, graph.num_vertices)
    reached = [float(min(batch, graph.num_vertices))]
    for fanout in fanouts:
        drawn = degree if fanout == ALL else min(fanout, degree)
        reached.append(min(reached[-1] * (1 + drawn), graph.num_vertices))
    rows, leaves = reached[-2:]
    features = graph.num_features
    dense = rows * features * (2 * width * _DENSE + drawn * _GATHERED)
    sparse = leaves * features * density * width * _SPARSE + 2 * rows * drawn * width * _GATHERED
    return "sparse" if sparse < dense else "gathered"
