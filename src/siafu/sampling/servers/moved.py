"""Moved: bytes that servers send each other for mini-batches, counted; they do not depend on the values that are sent."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.base.threads import PerThread
from siafu.sampling.sample import Sample

_ID = 8  # bytes of a vertex's id
_PLACE = 8  # bytes of an edge's place in the graph
_LENGTH = 4  # bytes of a row's number of edges


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes of all servers together.

    structure: samples, from the server that draws them to those that compute
    features:  rows of remote vertices, and the ids that they are asked for with
    products:  sums that are pulled and their gradients, where features are laid out by columns
    weights:   weights to the servers, and their gradients to the driver, which adds them up
    """

    structure: int = 0
    features: int = 0
    products: int = 0
    weights: int = 0

    def __add__(self, other: "Moved") -> "Moved":
        return Moved(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Moved)))

    @property
    def total(self) -> int:
        return self.structure + self.features + self.products + self.weights


def structure_bytes(sample: Sample, *, places: bool = False) -> int:
    """A sample as it is sent: its vertices' ids, the lengths of their rows, and the edges' sources.

    places: whether edges have weights, features or types, which are read at their places: these are sent, too
    """
    edges = sample.drawn or sample.edges
    edge = edges.indices.itemsize + (_PLACE if places else 0)
    return len(sample.vertices) * (_ID + _LENGTH) + len(edges.indices) * edge


def feature_bytes(remote: int, row: int) -> int:
    """Rows of remote vertices, each asked for by its id; row: bytes of one."""
    return remote * (row + _ID)


def weight_bytes(numbers: int, itemsize: int, shares: int) -> int:
    """Weights from the driver to every server that has a share of the batch, and gradients back."""
    return 2 * shares * numbers * itemsize


class RemoteVertices:
    """Counts vertices of samples whose features another server has. Any number of threads may count at a time.

    owner: [V] the server of each vertex
    """

    def __init__(self, owner: NDArray[np.integer]) -> None:
        self._owner, self._seen = owner, PerThread()

    def count(self, sample: Sample, server: int) -> int:
        """Vertices that a server reads features of and does not own, each once."""
        ids: Sequence[NDArray[np.integer]] = (sample.vertices,)
        if sample.drawn is not None:
            ids = (sample.vertices, sample.drawn.indices)
        known = self._seen.values
        if "seen" not in known:
            known["seen"], known["mark"] = np.zeros(len(self._owner), np.int32), 0
        known["mark"] += 1
        return sum(int(_count(each, self._owner, server, known["seen"], known["mark"])) for each in ids)


@kernel
def _count(ids: Any, owner: Any, server: int, seen: Any, mark: int) -> Any:
    """Those of another server that have no mark yet; all get it."""
    found = 0
    for i in range(len(ids)):
        v = ids[i]
        if seen[v] != mark:
            seen[v] = mark
            found += owner[v] != server
    return found
