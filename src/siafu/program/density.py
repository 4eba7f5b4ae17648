"""Density of features: the share of their numbers that is not zero, by a sample, and what it makes worth doing."""

from weakref import WeakKeyDictionary

import numpy as np

from siafu.graph import Graph

MOST_DENSITY = 0.35
"""Products with sparser rows are faster than dense ones, forth and back (measured at 16 to 64 columns)."""
_SAMPLE = 512  # vertices
_NEIGHBOURS = 64  # that are looked at of each
_SAMPLED: WeakKeyDictionary[Graph, dict[bool, float]] = WeakKeyDictionary()

_GATHERED = 1.5
"""Time of a number that a gather adds, in those of a nonzero's product: 87 ps beside 59 (PubMed, 64 columns, a core)."""
_LEAST = 5e7
"""Products that an epoch must save, one way: fewer take less time than the tasks that come on top."""
_READ = 32
"""Columns whose products take as long as reading a nonzero and its place, which each takes once (measured at 16 to 128)."""


def saved_by_sparse_products(graph: Graph) -> float:
    """Products for each column of the first layer that an epoch saves, one way, if its linear map reads features of mostly zeros
    and its gather runs in every epoch, instead of a map that reads gathered rows, which have fewer zeros; 0: none.
    """
    if graph.x is None or not graph.num_vertices:
        return 0.0
    before = sampled_density(graph, gathered=False)
    if before > MOST_DENSITY:
        return 0.0
    # Rows above the limit are held with their zeros: their products take as long as those at the limit.
    after = min(MOST_DENSITY, sampled_density(graph, gathered=True))
    numbers = graph.num_vertices * graph.num_features
    saved = numbers * (after - before) - _GATHERED * (graph.num_edges + graph.num_vertices)
    return max(0.0, saved)


def pays_off(saved: float, columns: int) -> bool:
    """Whether so many products for each of so many columns are worth a gather in every epoch."""
    return saved * (columns + _READ) >= _LEAST


def sampled_density(graph: Graph, *, gathered: bool) -> float:
    """Share of nonzeros in the features of a few vertices, or in the sums over their in-edges."""
    known = _SAMPLED.setdefault(graph, {})
    if gathered not in known:
        known[gathered] = _sample(graph, gathered=gathered)
    return known[gathered]


def _sample(graph: Graph, *, gathered: bool) -> float:
    assert graph.x is not None, "a program that reads features has some"
    picked = np.unique(np.linspace(0, graph.num_vertices - 1, _SAMPLE, dtype=np.int64))
    shares = []
    for vertex in picked:
        near = [vertex]
        if gathered:
            lo, hi = int(graph.indptr[vertex]), int(graph.indptr[vertex + 1])
            near += list(graph.indices[lo : min(hi, lo + _NEIGHBOURS)])
        shares.append(float((graph.x[np.sort(near)] != 0).any(axis=0).mean()))
    return float(np.mean(shares))
