"""Who lives in a generated graph: how popular each vertex is, its community, and its number."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from siafu.base.hashing import GOLDEN, mix
from siafu.graph.csr import IntArray
from siafu.graph.generate import sampling
from siafu.graph.generate.shapes import Shape

BYTES_A_VERTEX = 24  # what a Population holds, and what making it needs for a while
_HALVINGS = 80
_UNEVEN = 0.5  # class k's share falls as (k + 1) ** -_UNEVEN: the largest of 41 has 6 times the smallest


def stream(seed: int, name: str) -> np.uint64:
    """The key of one stream of draws: each use of randomness has its own."""
    key = np.uint64(seed & (2**64 - 1))
    with np.errstate(over="ignore"):
        for byte in name.encode():
            key = mix(np.uint64((key ^ np.uint64(byte)) + GOLDEN))
    return np.uint64(key)


@dataclass(frozen=True)
class Population:
    """The vertices of a graph, by position: position 0 is the most popular one.

    weight:    [V] float32, expected degrees up to a factor, falling
    community: [V] uint8
    members:   [V] int32, positions by community, ascending within each
    ends:      [C] int64, where each community's members end
    vertex:    [V] int32, the number that the vertex at each position has in the graph
    """

    weight: NDArray[np.float32]
    community: NDArray[np.uint8]
    members: IntArray
    ends: NDArray[np.int64]
    vertex: IntArray

    @property
    def num_classes(self) -> int:
        return len(self.ends)

    def community_by_vertex(self) -> NDArray[np.uint8]:
        """[V] uint8, by the numbers that vertices have in the graph."""
        out = np.empty_like(self.community)
        out[self.vertex] = self.community
        return out


def make_population(shape: Shape, seed: int) -> Population:
    """Draw everyone's community and number; popularity follows from the position alone."""
    count = shape.num_vertices
    community = np.empty(count, np.uint8)
    sampling.choose(stream(seed, "community"), 0, _class_bounds(shape.num_classes), community)
    vertex = np.arange(count, dtype=np.int32)
    sampling.shuffled(stream(seed, "vertex"), vertex)
    ends = np.cumsum(np.bincount(community, minlength=shape.num_classes))
    members = np.argsort(community, kind="stable").astype(np.int32)
    return Population(_weights(shape), community, members, ends, vertex)


def _class_bounds(num_classes: int) -> NDArray[np.float64]:
    shares = np.arange(1, num_classes + 1) ** -_UNEVEN
    return np.asarray(np.cumsum(shares) / shares.sum())


def _weights(shape: Shape) -> NDArray[np.float32]:
    """(position + shift) ** -slope: a power law whose shift keeps the first from exceeding the largest degree."""
    slope = 1 / (shape.exponent - 1)
    count = shape.num_vertices
    largest = min(shape.max_degree, count / 8) / (shape.num_edges / count)

    def first_over_mean(shift: float) -> float:
        mean = ((count + shift) ** (1 - slope) - shift ** (1 - slope)) / ((1 - slope) * count)
        return float(shift**-slope / mean)

    low, high = 1e-3, 10.0 * count
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if first_over_mean(middle) > largest else (low, middle)
    weights = np.arange(count, dtype=np.float32)
    weights += np.float32(high)
    np.power(weights, np.float32(-slope), out=weights)
    return weights
