"""Checks of a store's arrays, so that no kernel ever reads out of bounds.

Checksums find accidents. A forged store has right checksums, so the values are checked as well.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.errors import BadInput, StoreError
from siafu.base.storage.documents import one_line
from siafu.base.threads import run_all, thread_count
from siafu.graph import check
from siafu.graph.csr import first_bad_row
from siafu.graph.edge_data import MAX_RELATIONS
from siafu.graph.graph import Graph

SPLITS = ("train", "val", "test")

_BYTES = re.compile(r"\|S[1-9][0-9]{0,5}")
_VALUES_AT_ONCE = 1 << 22
_AGAIN = "import the graph again"


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
    "edge_attr": (_form(np.float32, np.uint16, ndim=2, rows="edges"),),
    "edge_type": (_form(np.int32, rows="edges"),),
    "x": (_form(np.float32, np.uint16, ndim=2, rows="vertices"),),
    "y": (
        _form(np.int64, np.float32, np.float64, rows="vertices"),
        _form(np.uint8, np.float32, np.float64, ndim=2, rows="vertices"),
    ),
    **{name: (_form(np.int64, rows="any"),) for name in SPLITS},
    "ids": (_form(np.int64, "S", rows="vertices"),),
    "order": (_form(np.int32, rows="vertices"),),
}


def described(
    name: str, dtype: Any, shape: Any, num_vertices: int, num_edges: int
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Parse the manifest's description of the array `name`; refuse one that no array of that name can have."""
    if not isinstance(shape, list) or not all(is_count(length) for length in shape):
        raise StoreError(f"the shape of {name} is {one_line(repr(shape))}, which is none: {_AGAIN}")
    fitting = [f for f in FORMS.get(name, ()) if f.ndim == len(shape) and _is_one_of(dtype, f.dtypes)]
    if not fitting:
        raise StoreError(
            f"{name} is described as {one_line(repr(dtype))} of shape {one_line(shape)}, which no such array has: {_AGAIN}"
        )
    rows = {"vertices": num_vertices, "pointers": num_vertices + 1, "edges": num_edges}
    wanted = rows.get(fitting[0].rows)
    if shape[0] != wanted if wanted is not None else shape[0] > num_vertices:
        raise StoreError(
            f"the manifest counts other vertices or edges than {name} has ({shape[0]:,} rows): {_AGAIN}"
        )
    return np.dtype(dtype), tuple(shape)


def is_count(value: Any) -> bool:
    """Whether a value of JSON is a whole number from 0 up, and small enough to count bytes."""
    return type(value) is int and 0 <= value < 2**60


def _is_one_of(dtype: Any, allowed: tuple[str, ...]) -> bool:
    if not isinstance(dtype, str):
        return False
    return ("S" if _BYTES.fullmatch(dtype) else dtype) in allowed and dtype != "S"


def check_values(graph: Graph) -> None:
    """Read edges, labels and splits once, on all threads, and refuse an invalid value."""
    _check_edges(graph)
    _check_types(graph)
    _check_labels(graph)
    for name in SPLITS:
        _check_split(name, getattr(graph, name), graph.num_vertices)
    try:
        check.disjoint({name: getattr(graph, name) for name in SPLITS}, graph.num_vertices)
    except BadInput as error:
        raise StoreError(f"{error}; {_AGAIN}") from error


def _check_edges(graph: Graph) -> None:
    indptr, indices = graph.indptr, graph.indices
    if indptr[0] != 0 or indptr[-1] != len(indices):
        raise StoreError(
            f"indptr goes from {indptr[0]} to {indptr[-1]} instead of 0 to {len(indices)}: {_AGAIN}"
        )
    step = max(1, graph.num_vertices // (16 * thread_count()))
    found = run_all(
        lambda first: first_bad_row(indptr, indices, first, min(first + step, graph.num_vertices)),
        range(0, graph.num_vertices, step),
    )
    if (vertex := next((v for v in found if v >= 0), None)) is not None:
        raise StoreError(
            f"the in-edges of vertex {vertex} are not ascending ids from 0 to {graph.num_vertices - 1}: {_AGAIN}"
        )


def _check_types(graph: Graph) -> None:
    if graph.edge_type is None or graph.edge_type.size == 0:
        return
    low, high = _bounds(graph.edge_type)
    if low < 0 or high >= MAX_RELATIONS:
        raise StoreError(f"types of edges go from {low} to {high}, which no graph has: {_AGAIN}")


def _check_labels(graph: Graph) -> None:
    if graph.y is None or graph.y.size == 0 or graph.has_quantities:
        return
    allowed = (0, 1) if graph.multi_label else (-1, graph.num_classes - 1)
    low, high = _bounds(graph.y.reshape(-1))
    if low < allowed[0] or high > allowed[1]:
        raise StoreError(f"labels go from {low} to {high} instead of {allowed[0]} to {allowed[1]}: {_AGAIN}")


def _check_split(name: str, ids: NDArray[np.int64] | None, num_vertices: int) -> None:
    if ids is None or len(ids) == 0:
        return
    rise = run_all(lambda block: bool((block[1:] > block[:-1]).all()), _blocks(ids, overlap=1))
    if ids[0] < 0 or ids[-1] >= num_vertices or not all(rise):
        raise StoreError(f"{name} does not list ascending ids from 0 to {num_vertices - 1}: {_AGAIN}")


def _bounds(values: NDArray[Any]) -> tuple[int, int]:
    found = run_all(lambda block: (int(block.min()), int(block.max())), _blocks(values))
    return min(low for low, _ in found), max(high for _, high in found)


def _blocks(values: NDArray[Any], overlap: int = 0) -> Iterator[NDArray[Any]]:
    for start in range(0, len(values), _VALUES_AT_ONCE):
        yield values[start : start + _VALUES_AT_ONCE + overlap]
