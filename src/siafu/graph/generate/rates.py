"""Rates: edge probabilities that give a graph the number of edges of its shape."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.graph.generate.population import Population
from siafu.graph.generate.shapes import Shape

_BINS = 128
_HALVINGS = 60
_MANY = 256  # communities


class Rates(NamedTuple):
    """The factors that turn a product of two weights into the probability of an edge, up to 1.

    within: [C], for pairs of one community, a factor for each
    across: [1], for pairs of two communities
    """

    within: NDArray[np.float64]
    across: NDArray[np.float64]


def find_rates(shape: Shape, people: Population) -> Rates:
    """The rates under which the shape's number of edges is expected, and its share of them inside communities.

    That share is each community's own: a vertex has as many of its edges inside, whether its community is large or
    small. Where one is so small that they do not fit, half of its pairs are joined and the rest goes outside.

    EdgeWeights are taken in bins of positions, as pairs are too many to be looked at one by one.
    """
    cuts = np.concatenate([[0], np.unique(np.geomspace(1, len(people.weight), _BINS).astype(np.int64))])
    means = np.add.reduceat(people.weight, cuts[:-1], dtype=np.float64) / np.diff(cuts)
    product = np.outer(means, means)
    members = np.stack(
        [np.bincount(people.community[lo:hi], minlength=people.num_communities) for lo, hi in pairwise(cuts)]
    ).astype(np.float64)
    mass = means @ members
    wanted = shape.num_edges / 2
    inside = np.zeros(people.num_communities)
    within = np.zeros(people.num_communities)
    for c, counts in enumerate(members.T):
        # Of thousands of communities each has members in few bins; of a few, nearly all bins are taken.
        bins = np.flatnonzero(counts) if people.num_communities > _MANY else np.arange(len(counts))
        pairs = (np.outer(counts[bins], counts[bins]) - np.diag(counts[bins])) / 2
        inside[c] = min(shape.inside * wanted * mass[c] / mass.sum(), pairs.sum() / 2)
        within[c] = _rate(pairs, product[np.ix_(bins, bins)], inside[c])
    everyone = members.sum(axis=1)
    pairs = (np.outer(everyone, everyone) - members @ members.T) / 2
    return Rates(within, np.array([_rate(pairs, product, wanted - inside.sum())]))


def _rate(pairs: NDArray[np.float64], product: NDArray[np.float64], wanted: float) -> float:
    """The factor under which `wanted` of the pairs are expected to be joined, by halving its logarithm's range."""
    low, high = -80.0, 80.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        joined = (pairs * np.minimum(1.0, np.exp(middle) * product)).sum()
        low, high = (middle, high) if joined < wanted else (low, middle)
    return float(np.exp(high))
