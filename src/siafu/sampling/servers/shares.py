"""Shares of a sample: the part of it that some of its batch's vertices reach."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.graph.csr import Csr
from siafu.sampling.picks import order_rows
from siafu.sampling.sample import Sample


@dataclass(frozen=True, slots=True, eq=False)
class BatchShare:
    """A server's part of a batch.

    seeds:  which of the batch's vertices it computes
    sample: what they reach, with numbers of its own
    rows:   [N] the number of each of its vertices in the whole sample
    """

    seeds: slice
    sample: Sample
    rows: NDArray[np.int64]


def share_of(sample: Sample, seeds: slice) -> BatchShare:
    """The share of some of a batch's vertices. Every vertex keeps the edges that were drawn for it."""
    edges, count = sample.edges, len(sample.vertices)
    rows = np.empty(count, np.int64)
    numbers = np.full(count, -1, np.int32)
    known = _number_seeds(seeds.start, seeds.stop, rows, numbers)
    sizes = [known]
    for hop in range(len(sample.sizes) - 1):
        first = sizes[hop - 1] if hop else 0
        sizes.append(_number_next(edges.indptr, edges.indices, rows, numbers, first, sizes[-1]))
    rows = rows[: sizes[-1]].copy()
    inner = sizes[-2] if len(sizes) > 1 else 0
    own = _picked(edges, rows[:inner], len(rows))
    _renumber(own.indices, numbers)
    order_rows(own.indptr, own.indices, own.weights)
    drawn = None if sample.drawn is None else _picked(sample.drawn, rows, len(rows))
    return BatchShare(seeds, Sample(sample.vertices[rows], tuple(sizes), own, drawn), rows)


def _picked(edges: Csr, rows: NDArray[np.int64], count: int) -> Csr:
    """The edges of some rows, and none of as many more as make `count`."""
    assert edges.weights is not None
    indptr = np.empty(count + 1, np.int64)
    total = _count(edges.indptr, rows, indptr)
    indices, places = np.empty(total, edges.indices.dtype), np.empty(total, np.int64)
    _copy(edges.indptr, edges.indices, edges.weights, rows, indptr, indices, places)
    return Csr(indptr, indices, places)


@kernel
def _number_seeds(first: int, last: int, rows: Any, numbers: Any) -> int:
    for i in range(first, last):
        rows[i - first] = i
        numbers[i] = i - first
    return last - first


@kernel
def _number_next(indptr: Any, indices: Any, rows: Any, numbers: Any, first: int, known: int) -> int:
    """Number the sources of rows[first:known] that have no number; how many are known then."""
    last = known
    for i in range(first, last):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            source = indices[e]
            if numbers[source] < 0:
                numbers[source] = known
                rows[known] = source
                known += 1
    return known


@kernel
def _count(indptr: Any, rows: Any, starts: Any) -> Any:
    total = np.int64(0)
    starts[0] = 0
    for i in range(len(starts) - 1):
        if i < len(rows):
            total += indptr[rows[i] + 1] - indptr[rows[i]]
        starts[i + 1] = total
    return total


@kernel
def _copy(
    indptr: Any, indices: Any, places: Any, rows: Any, starts: Any, new_indices: Any, new_places: Any
) -> None:
    for i in range(len(rows)):
        begin, at = indptr[rows[i]], starts[i]
        for n in range(starts[i + 1] - at):
            new_indices[at + n] = indices[begin + n]
            new_places[at + n] = places[begin + n]


@kernel
def _renumber(indices: Any, numbers: Any) -> None:
    for e in range(len(indices)):
        indices[e] = numbers[indices[e]]
