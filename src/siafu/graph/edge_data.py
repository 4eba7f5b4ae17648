"""EdgeData: weights, features and types of edges, and how they stay with their edges when these are put in order."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph import check, csr
from siafu.graph.csr import Csr, EdgeWeights, IntArray

MAX_RELATIONS = 2**20  # more is a mistake, such as an id taken for a type


@dataclass(frozen=True, slots=True, eq=False)
class EdgeData:
    """Data of edges, one entry or row each: as `Graph.edge_weight`, `edge_attr` and `edge_type`."""

    weight: EdgeWeights
    attr: NDArray[Any] | None
    type: NDArray[np.int32] | None

    @property
    def has_rows(self) -> bool:
        """Whether there is more than weights."""
        return self.attr is not None or self.type is not None

    def taken(self, order: IntArray) -> "EdgeData":
        """Those of the edges in another order, or of some of them."""
        found: list[Any] = [
            None if values is None else values[order] for values in (self.weight, self.attr, self.type)
        ]
        return EdgeData(*found)

    def both_ways(self, forth: NDArray[np.bool_]) -> "EdgeData":
        """Of all edges, and then of the reverse of some."""
        everything = np.arange(len(forth))
        return self.taken(np.concatenate([everything, everything[forth]]))


def checked(num_edges: int, weight: Any, attr: Any, kind: Any) -> EdgeData:
    """Data given for so many edges; refused if it does not fit them."""
    return EdgeData(
        check.edge_weight(weight, num_edges), edge_attr(attr, num_edges), edge_type(kind, num_edges)
    )


def edge_attr(values: Any, num_edges: int) -> NDArray[Any] | None:
    """Rows of float32, or of a bfloat16 tensor's bits in uint16; one number for an edge is a row of one."""
    if values is None:
        return None
    rows = check.stored_rows(values, "edge_attr")
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2 or len(rows) != num_edges or rows.shape[1] == 0:
        raise BadInput(
            f"edge_attr has shape {rows.shape}: give one row of numbers for each of {num_edges} edges"
        )
    check.finite_rows(rows, 0, "edge_attr[{row}, {column}] is NaN or infinite: replace it with a number")
    return rows


def edge_type(values: Any, num_edges: int) -> NDArray[np.int32] | None:
    """Whole numbers from 0 up."""
    if values is None:
        return None
    given = check.array(values, "edge_type")
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.shape != (num_edges,) or (given.dtype.kind not in "biu" and num_edges):
        raise BadInput(
            f"edge_type has shape {given.shape} and type {given.dtype}: give one whole number for each of {num_edges} edges"
        )
    if given.size and (given.min() < 0 or given.max() >= MAX_RELATIONS):
        wrong = given.min() if given.min() < 0 else given.max()
        raise BadInput(f"edge_type has {wrong}: number the types from 0 up, below {MAX_RELATIONS:,}")
    return np.ascontiguousarray(given, dtype=np.int32)


def sorted_rows(indptr: NDArray[np.int64], indices: IntArray, data: EdgeData) -> tuple[Csr, EdgeData]:
    """`csr.sorted_rows`, and what the edges have in their new order."""
    if not data.has_rows:
        return csr.sorted_rows(Csr(indptr, indices, data.weight)), data
    numbers: Any = np.arange(len(indices), dtype=csr.id_dtype(len(indices)))
    found = csr.sorted_rows(Csr(indptr, indices, numbers))
    return _numbered(found, data, same=found.indices is indices)


def from_coo(src: IntArray, dst: IntArray, data: EdgeData, num_vertices: int) -> tuple[Csr, EdgeData]:
    """`csr.from_coo`, and what the edges have in their new order."""
    if not data.has_rows:
        return csr.from_coo(src, dst, data.weight, num_vertices), data
    numbers: Any = np.arange(len(src), dtype=csr.id_dtype(len(src)))
    return _numbered(csr.from_coo(src, dst, numbers, num_vertices), data)


def _numbered(found: Csr, data: EdgeData, *, same: bool = False) -> tuple[Csr, EdgeData]:
    """Edges that carry their old numbers instead of weights."""
    order: Any = found.weights
    data = data if same else data.taken(order)
    return found._replace(weights=data.weight), data
