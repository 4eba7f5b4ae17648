"""What a store's arrays must be like, so that no kernel ever reads where it should not.

Checksums find accidents; whoever forges a store writes its checksums too, so the values are looked at as well.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.documents import one_line
from siafu.base.errors import StoreError
from siafu.base.jit import kernel
from siafu.base.threads import run_all, thread_count
from siafu.graph.csr import IntArray
from siafu.graph.graph import Graph

SPLITS = ("train", "val", "test")

_BYTES = re.compile(r"\|S[1-9][0-9]{0,5}")
_VALUES_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Form:
    """A form an array may have.

    dtypes: as `np.dtype.str` names them, in this machine's byte order; "S" stands for bytes of any length
    ndim:   how many dimensions
    rows:   "vertices", "pointers" (one more), "edges", or "any" up to one for each vertex
    """

    dtypes: tuple[str, ...]
    ndim: int
    rows: str


def _form(*dtypes: DTypeLike, ndim: int = 1, rows: str) -> Form:
    return Form(tuple("S" if d == "S" else np.dtype(d).str for d in dtypes), ndim, rows)


FORMS: dict[str, tuple[Form, ...]] = {
    "indptr": (_form(np.int64, rows="pointers"),),
    "indices": (_form(np.int32, np.int64, rows="edges"),),
    "edge_weight": (_form(np.float32, rows="edges"),),
    "x": (_form(np.float32, np.uint16, ndim=2, rows="vertices"),),
    "y": (_form(np.int64, rows="vertices"), _form(np.uint8, ndim=2, rows="vertices")),
    **{name: (_form(np.int64, rows="any"),) for name in SPLITS},
    "ids": (_form(np.int64, "S", rows="vertices"),),
}


@dataclass(frozen=True, slots=True)
class Described:
    """An array as the manifest describes it; `size` is in bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int


def described(name: str, dtype: Any, shape: Any, num_vertices: int, num_edges: int) -> Described:
    """What the manifest says of the array `name`, if an array of that name may be so."""
    if not isinstance(shape, list) or not all(is_count(length) for length in shape):
        raise StoreError(
            f"the shape of {name} is {one_line(repr(shape))}, which is none: import the graph again"
        )
    fitting = [f for f in FORMS.get(name, ()) if f.ndim == len(shape) and _is_one_of(dtype, f.dtypes)]
    if not fitting:
        raise StoreError(
            f"{name} is described as {one_line(repr(dtype))} of shape {one_line(shape)}, which no such array has: import the graph again"
        )
    rows = {"vertices": num_vertices, "pointers": num_vertices + 1, "edges": num_edges}
    wanted = rows.get(fitting[0].rows)
    if shape[0] != wanted if wanted is not None else shape[0] > num_vertices:
        raise StoreError(
            f"the manifest counts other vertices or edges than {name} has ({shape[0]:,} rows): import the graph again"
        )
    found = np.dtype(dtype)
    return Described(found, tuple(shape), found.itemsize * math.prod(shape))


def is_count(value: Any) -> bool:
    """Whether JSON gave a whole number from 0 up, of which memory could hold that many."""
    return type(value) is int and 0 <= value < 2**60


def _is_one_of(dtype: Any, allowed: tuple[str, ...]) -> bool:
    if not isinstance(dtype, str):
        return False
    return ("S" if _BYTES.fullmatch(dtype) else dtype) in allowed and dtype != "S"


def check_values(graph: Graph) -> None:
    """Read edges, labels and splits once, on all threads; the first value that cannot be is refused."""
    _check_edges(graph)
    _check_labels(graph)
    for name in SPLITS:
        _check_split(name, getattr(graph, name), graph.num_vertices)
    for one, other in combinations(SPLITS, 2):
        first, second = getattr(graph, one), getattr(graph, other)
        if first is not None and second is not None and (shared := _first_shared(first, second)) >= 0:
            raise StoreError(f"vertex {shared} is in both {one} and {other}: import the graph again")


def _check_edges(graph: Graph) -> None:
    indptr, indices = graph.indptr, graph.indices
    if indptr[0] != 0 or indptr[-1] != len(indices):
        raise StoreError(
            f"indptr goes from {indptr[0]} to {indptr[-1]} instead of 0 to {len(indices)}: import the graph again"
        )
    step = max(1, graph.num_vertices // (16 * thread_count()))
    found = run_all(
        lambda first: _first_bad_row(indptr, indices, first, min(first + step, graph.num_vertices)),
        range(0, graph.num_vertices, step),
    )
    if (vertex := next((v for v in found if v >= 0), None)) is not None:
        raise StoreError(
            f"the in-edges of vertex {vertex} are not ascending ids from 0 to {graph.num_vertices - 1}: import the graph again"
        )


def _check_labels(graph: Graph) -> None:
    if graph.y is None or graph.y.size == 0:
        return
    allowed = (0, 1) if graph.multi_label else (-1, graph.num_classes - 1)
    low, high = _bounds(graph.y.reshape(-1))
    if low < allowed[0] or high > allowed[1]:
        raise StoreError(
            f"labels go from {low} to {high} instead of {allowed[0]} to {allowed[1]}: import the graph again"
        )


def _check_split(name: str, ids: NDArray[np.int64] | None, num_vertices: int) -> None:
    if ids is None or len(ids) == 0:
        return
    if ids[0] < 0 or ids[-1] >= num_vertices or not all(run_all(_rises, _blocks(ids, overlap=1))):
        raise StoreError(
            f"{name} does not list ascending ids from 0 to {num_vertices - 1}: import the graph again"
        )


def _bounds(values: NDArray[Any]) -> tuple[int, int]:
    found = run_all(lambda block: (int(block.min()), int(block.max())), _blocks(values))
    return min(low for low, _ in found), max(high for _, high in found)


def _blocks(values: NDArray[Any], overlap: int = 0) -> Iterator[NDArray[Any]]:
    for start in range(0, len(values), _VALUES_AT_ONCE):
        yield values[start : start + _VALUES_AT_ONCE + overlap]


def _rises(block: NDArray[np.int64]) -> bool:
    return bool((block[1:] > block[:-1]).all())


@kernel
def _first_bad_row(indptr: IntArray, indices: IntArray, first: int, last: int) -> int:
    """The first vertex whose row is not within `indices`, or is not ascending from 0 up and below V; else -1."""
    num_vertices = len(indptr) - 1
    for i in range(first, last):
        begin, end = indptr[i], indptr[i + 1]
        if begin < 0 or end < begin or end > len(indices):
            return i
        if begin == end:
            continue
        # Of a row that ascends the ends tell the rest; counting falls instead of leaving is what vectorises.
        falls = 0
        for e in range(begin + 1, end):
            falls += indices[e - 1] > indices[e]
        if falls > 0 or indices[begin] < 0 or indices[end - 1] >= num_vertices:
            return i
    return -1


@kernel
def _first_shared(one: IntArray, other: IntArray) -> int:
    """The first id that stands in both ascending lists; -1: none."""
    i = j = 0
    while i < len(one) and j < len(other):
        if one[i] == other[j]:
            return int(one[i])
        if one[i] < other[j]:
            i += 1
        else:
            j += 1
    return -1
