"""Population: the popularity, community and number of each vertex of a generated graph."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.hashing import GOLDEN, mix
from siafu.graph.csr import IntArray
from siafu.graph.generate import sampling
from siafu.graph.generate.shapes import Shape

RECORD = np.dtype([("weight", np.float32), ("vertex", np.int32)])
VertexRecords = NDArray[Any]  # of RECORD

BYTES_A_VERTEX = 24  # what a Population holds, and what making it needs for a while
_HALVINGS = 80
_UNEVEN = 0.5  # community k's share falls as (k + 1) ** -_UNEVEN: the largest of 41 has 6 times the smallest


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

    records:   [V] RECORD: the expected degree up to a factor, falling; and the number of the vertex in the graph
    community: [V] uint8, or wider where they are more
    classes:   [C] uint8, the class of each community
    ends:      [C] int64, where each community's members end if they lie together

    Weight and number are read at one place, since an edge needs both: of a large graph no cache holds them.
    """

    records: VertexRecords
    community: IntArray
    classes: NDArray[np.uint8]
    ends: NDArray[np.int64]

    @property
    def weight(self) -> NDArray[np.float32]:
        return self.records["weight"]

    @property
    def vertex(self) -> NDArray[np.int32]:
        return self.records["vertex"]

    @property
    def num_communities(self) -> int:
        return len(self.ends)

    def by_community(self) -> VertexRecords:
        """The records, those of a community together, their weights falling."""
        members = np.empty(len(self.records), np.int32)
        sampling.by_community(self.community, self.ends, members)
        return self.records[members]

    def class_by_vertex(self) -> NDArray[np.uint8]:
        """[V] uint8, by the numbers that vertices have in the graph."""
        out = np.empty(len(self.records), np.uint8)
        out[self.vertex] = self.classes[self.community]
        return out


def make_population(shape: Shape, seed: int) -> Population:
    """Draw everyone's community and number; popularity follows from the position alone."""
    count, communities = shape.num_vertices, shape.num_communities
    community = np.empty(count, np.min_scalar_type(communities - 1))
    sampling.choose(stream(seed, "community"), 0, _shares(communities), community)
    ends = np.zeros(communities, np.int64)
    sampling.count(community, ends)
    records = np.empty(count, RECORD)
    records["weight"] = _weights(shape)
    vertex = np.arange(count, dtype=np.int32)
    sampling.shuffled(stream(seed, "vertex"), vertex)
    records["vertex"] = _together(vertex, community) if shape.together else vertex
    return Population(records, community, _classes(shape, seed), np.cumsum(ends))


def _shares(count: int) -> NDArray[np.float64]:
    """Where the share of each of so many communities, or classes, ends."""
    shares = np.arange(1, count + 1) ** -_UNEVEN
    return np.asarray(np.cumsum(shares) / shares.sum())


def _classes(shape: Shape, seed: int) -> NDArray[np.uint8]:
    """Each class has a community of its own; the classes of the rest are drawn."""
    classes = np.empty(shape.num_communities, np.uint8)
    sampling.choose(stream(seed, "class"), 0, _shares(shape.num_classes), classes)
    classes[: shape.num_classes] = np.arange(shape.num_classes)
    return classes


def _together(shuffled: IntArray, community: IntArray) -> IntArray:
    """Numbers by community, in no order within one."""
    vertex = np.empty_like(shuffled)
    vertex[shuffled[np.argsort(community[shuffled], kind="stable")]] = np.arange(len(vertex), dtype=np.int32)
    return vertex


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
