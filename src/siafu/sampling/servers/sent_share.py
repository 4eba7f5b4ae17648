"""A share of a sample as it is sent, and as its receiver makes it whole: with the table of features that it reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.graph.csr import Csr
from siafu.sampling.picks import order_rows
from siafu.sampling.read_vertices import ReadVertices
from siafu.sampling.sample import Sample

_LENGTH = np.int32


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """An array's memory: the wire does not carry every type."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def sent_arrays(sample: Sample, *, places: bool) -> dict[str, NDArray[Any]]:
    """Arrays of a sample, as many bytes as `structure_bytes` counts; places: whether edges have weights, features or types."""
    edges = sample.drawn or sample.edges
    lengths = np.diff(edges.indptr).astype(_LENGTH)
    found: dict[str, NDArray[Any]] = {
        "vertices": sample.vertices,
        "lengths": as_bytes(lengths),
        "sources": as_bytes(edges.indices),
    }
    if places:
        assert edges.weights is not None
        found["places"] = edges.weights
    return found


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedShare:
    """A share, and which features it reads.

    sample: the share
    reads:  [R] vertices whose features it reads, each once: those of the sample come first
    rows:   [E] the place in `reads` of each drawn edge's source; None: the sample has no leaves
    """

    sample: Sample
    reads: NDArray[np.int64]
    rows: NDArray[Any] | None


class ShareReader:
    """Makes shares of the arrays that were sent. Any number of threads may call at a time.

    vertices: of the graph
    indices:  type of the graph's edges
    leaves:   whether samples have their leaves apart
    """

    def __init__(self, vertices: int, indices: np.dtype[Any], *, leaves: bool) -> None:
        self._indices, self._leaves = indices, leaves
        self._reads = ReadVertices(vertices)

    def read(self, arrays: Mapping[str, NDArray[Any]], sizes: tuple[int, ...]) -> ReceivedShare:
        """The share that `sent_arrays` was made of."""
        vertices = np.array(arrays["vertices"])
        indptr = np.zeros(len(vertices) + 1, np.int64)
        np.cumsum(arrays["lengths"].view(_LENGTH), out=indptr[1:])
        sources = np.array(arrays["sources"].view(self._indices))
        # Places that were not sent are those of edges without weights, features or types: nothing is read there.
        places: Any = np.array(arrays["places"]) if "places" in arrays else np.zeros(len(sources), np.int64)
        edges = Csr(indptr, sources, places)
        if not self._leaves:
            return ReceivedShare(Sample(vertices, sizes, edges), vertices, None)
        reads, rows = self._reads.of(vertices, sources)
        inner = indptr[sizes[-2]] if len(sizes) > 1 else 0
        own = Csr(np.minimum(indptr, inner), rows[:inner].copy(), places[:inner].copy())
        order_rows(own.indptr, own.indices, own.weights)
        return ReceivedShare(Sample(vertices, sizes, own, edges), reads, rows)
