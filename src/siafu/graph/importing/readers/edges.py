"""Edges out of NumPy arrays: two lists, one array with two rows or columns, or a compressed matrix."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph import check
from siafu.graph.importing.readers.arrays import ArrayCursor, ArrayFile
from siafu.graph.importing.readers.blocks import EdgeBlock

EDGES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class ListedEdges:
    """Edges as a list of sources and one of destinations, which may be rows or columns of one array.

    ends: two arrays of E values, or one of shape [2, E] or [E, 2]
    """

    ends: tuple[ArrayFile, ...]
    weights: ArrayFile | None = None
    num_vertices: int | None = None

    named = False
    attr_width = 0
    typed = False

    def __post_init__(self) -> None:
        shapes = [array.shape for array in self.ends]
        one = len(shapes) == 1 and len(shapes[0]) == 2 and 2 in shapes[0]
        two = len(shapes) == 2 and shapes[0] == shapes[1] and len(shapes[0]) == 1
        if not (one or two):
            raise BadInput(
                f"{self._where} has shape {shapes[-1]}: edges are two lists of one length, or [2, E]"
            )
        if self.weights is not None:
            check_values(self.weights, self._count, "edges")

    @property
    def weighted(self) -> bool:
        return self.weights is not None

    def blocks(self, id_stop: int | None) -> Iterator[EdgeBlock]:
        with ExitStack() as open_files:
            cursors = [open_files.enter_context(cursor) for cursor in self._cursors()]
            weights = open_files.enter_context(self.weights.cursor()) if self.weights else None
            for first in range(0, self._count, EDGES_AT_ONCE):
                count = min(EDGES_AT_ONCE, self._count - first)
                parts = [as_ids(cursor.take(count), id_stop, self._where, first) for cursor in cursors]
                src, dst = parts if len(parts) == 2 else np.ascontiguousarray(parts[0].T)
                taken = None if weights is None else as_weights(weights.take(count), weights.where, first)
                yield EdgeBlock(src, dst, taken, (first + count) / self._count)

    @property
    def _where(self) -> str:
        return " and ".join(array.where for array in self.ends)

    @property
    def _count(self) -> int:
        return self.ends[0].shape[1] if self._in_rows else len(self.ends[0])

    @property
    def _in_rows(self) -> bool:
        return len(self.ends) == 1 and self.ends[0].shape[0] == 2

    def _cursors(self) -> list[ArrayCursor]:
        if len(self.ends) == 2:
            return [array.cursor() for array in self.ends]
        pairs, in_rows = self.ends[0], self._in_rows
        if pairs.by_column:
            pairs, in_rows = pairs.turned(), not in_rows
        if not in_rows:
            return [pairs.cursor()]
        flat = pairs.flat()
        return [flat.cursor(), flat.cursor(len(flat) // 2)]


@dataclass(frozen=True)
class CompressedEdges:
    """Edges as a compressed sparse matrix, whose row i lists the vertices at the other end.

    rows_are_sources: whether row i lists where i's edges lead to, or where they come from
    """

    indptr: ArrayFile
    indices: ArrayFile
    weights: ArrayFile | None
    rows_are_sources: bool = True

    named = False
    attr_width = 0
    typed = False

    def __post_init__(self) -> None:
        check_compressed(self.indptr, self.indices)
        if self.weights is not None:
            check_values(self.weights, len(self.indices), "edges")

    @property
    def num_vertices(self) -> int:
        return len(self.indptr) - 1

    @property
    def weighted(self) -> bool:
        return self.weights is not None

    def blocks(self, id_stop: int | None) -> Iterator[EdgeBlock]:
        total = len(self.indices)
        done = 0
        with ExitStack() as open_files:
            indices = open_files.enter_context(self.indices.cursor())
            weights = open_files.enter_context(self.weights.cursor()) if self.weights else None
            for owners in row_of_each(self.indptr, total):
                ends = as_ids(indices.take(len(owners)), id_stop, self.indices.where, done)
                taken = None if weights is None else as_weights(weights.take(len(ends)), weights.where, done)
                done += len(owners)
                src, dst = (owners, ends) if self.rows_are_sources else (ends, owners)
                yield EdgeBlock(src, dst, taken, done / total)


def check_values(values: ArrayFile, count: int, what: str) -> None:
    """Refuse what is not a number for each of `count` entries."""
    check_numbers(values)
    if values.shape != (count,):
        raise BadInput(f"{values.where} has shape {values.shape}: give one number for each of {count} {what}")


def check_numbers(values: ArrayFile) -> None:
    if not values.is_number:
        raise BadInput(f"{values.where} holds {values.dtype}: give real numbers")


def check_list(array: ArrayFile) -> None:
    """Refuse what is not a list of whole numbers."""
    if len(array.shape) != 1 or not array.is_whole:
        raise BadInput(
            f"{array.where} has shape {array.shape}, type {array.dtype}: give a list of whole numbers"
        )


def check_compressed(indptr: ArrayFile, indices: ArrayFile) -> None:
    """Refuse arrays that cannot be a compressed matrix's, by their type and shape."""
    check_list(indptr)
    check_list(indices)
    if len(indptr) == 0:
        raise BadInput(f"{indptr.where} is empty: it has one position more than the matrix has rows")


def row_ends(indptr: ArrayFile, total: int, rows_at_once: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The begin of the first row and the ends of all, some rows at a time, of a compressed matrix of `total` entries."""
    with indptr.cursor() as cursor:
        if before := int(cursor.take(1)[0]):
            raise BadInput(f"{indptr.where} starts at {before}: positions start at 0")
        for start in range(1, len(indptr), rows_at_once):
            ends = cursor.take(min(rows_at_once, len(indptr) - start)).astype(np.int64)
            steps = np.diff(ends, prepend=before)
            if steps.min() < 0:
                k = int(np.argmax(steps < 0))
                fall = f"falls from {ends[k] - steps[k]} to {ends[k]}"
                raise BadInput(f"{indptr.where} {fall}: positions never decrease")
            if ends[-1] > total:
                raise BadInput(f"{indptr.where} points past the {total} entries there are: to {ends[-1]}")
            yield before, ends
            before = int(ends[-1])
    if before != total:
        raise BadInput(f"{indptr.where} ends at {before}, but there are {total} entries")


def row_of_each(indptr: ArrayFile, total: int) -> Iterator[NDArray[np.int64]]:
    """The row of each of a compressed matrix's entries, a block at a time."""
    row = 0
    for before, ends in row_ends(indptr, total, EDGES_AT_ONCE):
        for first in range(before, int(ends[-1]), EDGES_AT_ONCE):
            entries = np.arange(first, min(first + EDGES_AT_ONCE, int(ends[-1])))
            yield row + np.searchsorted(ends, entries, side="right")
        row += len(ends)


def as_ids(values: NDArray[Any], id_stop: int | None, where: str, first: int) -> NDArray[np.int64]:
    """Vertex ids as int64, each from 0 to `id_stop` - 1 if that is known; `first` is values[0]'s position."""
    if values.dtype.kind not in "iu":
        raise BadInput(f"{where} holds {values.dtype}: vertex ids are whole numbers")
    if values.dtype == np.uint64 and values.max(initial=0) >= 2**63:
        raise BadInput(f"{where} holds {values.max()}: ids go to 2**63 - 1")
    ids = values.astype(np.int64, copy=False)
    if id_stop is not None and ids.size and (ids.min() < 0 or ids.max() >= id_stop):
        wrong = np.argwhere((ids < 0) | (ids >= id_stop))[0]
        raise BadInput(
            f"{where}, entry {first + wrong[0]}: id {ids[tuple(wrong)]} is out of range: with {id_stop} vertices, ids go from 0 to {id_stop - 1}"
        )
    return ids


def as_weights(
    values: NDArray[Any], where: str, first: int, what: str = "weight", mend: str = ""
) -> NDArray[np.float32]:
    """Weights or features as float32, each finite; `first` is values[0]'s position, `mend` what to do about one that is not."""
    weights = check.float32(values)
    if not np.isfinite(weights).all():
        wrong = first + int(np.argwhere(~np.isfinite(weights))[0, 0])
        raise BadInput(f"{where}, entry {wrong}: the {what} is not a finite number{mend and f': {mend}'}")
    return weights


def weights_if_any_differ(array: ArrayFile) -> ArrayFile | None:
    """The array, or None if all of its values are 1: then the matrix has no weights."""
    check_numbers(array)
    return array if any((block != 1).any() for block in array.blocks(8 * EDGES_AT_ONCE)) else None
