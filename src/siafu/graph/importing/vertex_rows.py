"""Rows of a table of vertices, brought into the vertices' order on disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.errors import BadInput
from siafu.graph.importing.readers.blocks import Rows, VertexData, VertexTable
from siafu.graph.importing.vertex_fault import VertexFault
from siafu.graph.sorting.spill import Leaf, Spill, leaves

_MOST_ROWS = 1 << 16  # of missing rows at a time
_MISSING = {
    "features": None,
    "labels": np.nan,
    "split": 0,
}  # rows of vertices that the table lacks; None: it may not


class ImportedRows:
    """Takes a table's rows by vertex id, in any order, and gives them as `VertexData`."""

    def __init__(self, table: VertexTable, num_vertices: int, scratch: Path, memory: int) -> None:
        self._table = table
        self._num_vertices = num_vertices
        self._memory = memory
        bits = max(1, (num_vertices - 1).bit_length())
        kinds: dict[str, DTypeLike | None] = {
            "features": (np.float32, (table.width,)) if table.width else None,
            "labels": np.float32 if table.has_labels else None,
            "split": np.uint8 if table.has_split else None,
        }
        self._spills = {
            name: Spill(scratch, bits, [dtype], memory=memory // 8) for name, dtype in kinds.items() if dtype
        }

    def add(self, ids: NDArray[Any], *columns: NDArray[Any]) -> None:
        """Rows of some vertices: features, labels and split, without those the table has not."""
        if ids.size and (ids.min() < 0 or ids.max() >= self._num_vertices):
            wrong = ids[np.argmax((ids < 0) | (ids >= self._num_vertices))]
            raise BadInput(
                f"{self._table.path}: id {wrong} is out of range: with {self._num_vertices} vertices, ids go from 0 to {self._num_vertices - 1}"
            )
        for spill, values in zip(self._spills.values(), columns, strict=True):
            spill.add(ids.astype(np.uint64), values)

    def data(self) -> VertexData:
        """Everything that was added, in order."""
        rows = {name: self._rows(name) for name in self._spills}
        return VertexData(rows.get("features"), rows.get("labels"), split_codes=rows.get("split"))

    def _rows(self, name: str) -> Rows:
        shape = (self._table.width,) if name == "features" else ()
        what = f"{name} in {self._table.path}"
        return Rows(self._num_vertices, shape, what, lambda most_bytes: self._in_order(name))

    def _in_order(self, name: str) -> Iterator[NDArray[Any]]:
        """A row for each vertex; one that the table lacks is `missing`, unless that is None."""
        spill, missing = self._spills[name], _MISSING[name]
        done = 0
        for leaf in leaves(spill, self._fits, self._memory // 4):
            keys, values = leaf.spill.read(leaf.bucket)
            yield from self._gap(spill, done, leaf.first_key, missing)
            done = min(self._num_vertices, leaf.first_key + (1 << leaf.low_bits))
            rows = self._empty(spill, done - leaf.first_key, missing)
            self._check(np.bincount(keys, minlength=len(rows)), leaf.first_key, missing)
            rows[keys] = values
            yield rows
        yield from self._gap(spill, done, self._num_vertices, missing)

    def _check(self, counts: NDArray[np.int64], first: int, missing: float | None) -> None:
        if counts.max() > 1:
            raise VertexFault(
                first + int(counts.argmax()),
                f"{self._table.path} has two rows for vertex {{vertex}}: give each vertex one row",
            )
        if missing is None and counts.min() == 0:
            self._refuse_missing(first + int(counts.argmin()))

    def _gap(self, spill: Spill, start: int, stop: int, missing: float | None) -> Iterator[NDArray[Any]]:
        if start < stop and missing is None:
            self._refuse_missing(start)
        for first in range(start, stop, _MOST_ROWS):
            yield self._empty(spill, min(_MOST_ROWS, stop - first), missing)

    def _empty(self, spill: Spill, count: int, missing: float | None) -> NDArray[Any]:
        rows = np.empty(count, spill.dtypes[1])
        rows[...] = 0 if missing is None else missing
        return rows

    def _refuse_missing(self, vertex: int) -> None:
        raise VertexFault(
            vertex,
            f"{self._table.path} has no row for vertex {{vertex}}: each vertex needs one, for its features",
        )

    def _fits(self, leaf: Leaf) -> bool:
        rows = min(1 << leaf.low_bits, self._num_vertices)
        return (leaf.count + rows) * (leaf.spill.record_bytes + 8) <= self._memory // 4
