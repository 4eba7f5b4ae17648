"""Graphs in `.npz` archives: the gnn-benchmark layout, SciPy's own, and plain arrays.

gnn-benchmark   adj_data, adj_indices, adj_indptr, adj_shape; attr_* alike, or attr_matrix; labels
SciPy           what `scipy.sparse.save_npz` writes: format, shape, data, and indptr, indices or row, col
plain           src, dst or edge_index, or indptr and indices; num_nodes; x, or x_indptr, x_indices, x_data and
                x_dim; y; split (0 train, 1 val, 2 test, -1 none), or train_idx, valid_idx and test_idx, or PyG's
                train_mask, val_mask and test_mask

All of them may have edge_attr, a row for each edge in the order of the edges, and edge_type.

A matrix's row is an edge's source, its column the destination.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line
from siafu.graph import check
from siafu.graph.importing.readers.arrays import ArrayFile, members
from siafu.graph.importing.readers.blocks import EdgeSource, Rows, VertexData
from siafu.graph.importing.readers.edge_rows import with_rows
from siafu.graph.importing.readers.edges import (
    CompressedEdges,
    ListedEdges,
    check_compressed,
    check_values,
    row_ends,
    weights_if_any_differ,
)

_SPLIT_ARRAYS = {"train": ("train_idx",), "val": ("valid_idx", "val_idx"), "test": ("test_idx",)}
_MASKS = {"train": "train_mask", "val": "val_mask", "test": "test_mask"}


class Archive:
    """The arrays of an `.npz` archive, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = members(path)
        self._used: set[str] = set()

    @property
    def unused(self) -> tuple[str, ...]:
        """Names of the arrays that nobody has asked for."""
        return tuple(sorted(set(self.names) - self._used))

    def array(self, name: str) -> ArrayFile:
        self._used.add(name)
        return ArrayFile(self.path, name)

    def has(self, *names: str) -> bool:
        return all(name in self.names for name in names)

    def first(self, *names: str) -> ArrayFile | None:
        return next((self.array(name) for name in names if name in self.names), None)

    def number(self, *names: str) -> int | None:
        """The whole number that the first of these arrays holds; None if there is no such array."""
        array = self.first(*names)
        if array is None:
            return None
        values = array.read() if array.shape in ((), (1,)) and array.is_number else np.empty(0)
        if not values.size or not np.isfinite(values).all() or values.item() < 0 or values.item() % 1:
            raise BadInput(f"{array.where} should hold one whole number, not negative")
        return int(values.item())

    def shape(self, name: str) -> tuple[int, int]:
        """A matrix's shape, which the array of this name holds."""
        array = self.array(name)
        if array.shape != (2,) or not array.is_whole or (lengths := array.read()).min() < 0:
            raise BadInput(f"{array.where} should hold how many rows and columns the matrix has")
        return int(lengths[0]), int(lengths[1])

    def square(self, name: str) -> int:
        """Number of rows of a graph's matrix, which must be square."""
        shape = self.shape(name)
        if shape[0] != shape[1]:
            raise BadInput(f"{self.path} holds a matrix of shape {shape}: a graph's matrix is square")
        return shape[0]


def read_npz(path: Path) -> tuple[EdgeSource, VertexData]:
    """Edges and vertex data, by whichever layout the archive has."""
    archive = Archive(path)
    if archive.has("adj_indptr", "adj_indices"):
        edges: EdgeSource = _matrix(archive, "adj_")
    elif archive.has("format", "shape"):
        edges = _scipy(archive)
    elif archive.has("src", "dst"):
        edges = ListedEdges((archive.array("src"), archive.array("dst")), *_plain_facts(archive))
    elif archive.has("edge_index"):
        edges = ListedEdges((archive.array("edge_index"),), *_plain_facts(archive))
    elif archive.has("indptr", "indices"):
        weights, num_vertices = _plain_facts(archive)
        edges = _compressed(archive, "", num_vertices, weights)
    else:
        raise BadInput(
            f"{path} has the arrays {one_line(', '.join(sorted(archive.names)) or '(none)')}: siafu reads adj_indptr and adj_indices, src and dst, edge_index, indptr and indices, or what scipy.sparse.save_npz writes"
        )
    data = vertex_data(archive)
    edges = with_rows(edges, *_edge_rows(archive))
    data.ignored = archive.unused
    return edges, data


def _edge_rows(archive: Archive) -> tuple[Rows | None, Rows | None]:
    """Features and types of edges, in the order of the edges, as far as the archive has them."""
    attr, types = archive.first("edge_attr", "edge_feat"), archive.first("edge_type", "edge_reltype")
    return (
        None if attr is None else array_rows(attr, "features of edges"),
        None if types is None else array_rows(types, "types of edges"),
    )


def vertex_data(archive: Archive) -> VertexData:
    """Features, labels and split, as far as the archive has them."""
    data = VertexData(features=_features(archive))
    if labels := archive.first("labels", "y", "node_label"):
        data.labels = array_rows(labels, "labels")
        data.num_classes = archive.number("num_classes")
    if codes := archive.first("split"):
        data.split_codes = code_rows(codes)
    for part, names in _SPLIT_ARRAYS.items():
        if ids := archive.first(*names):
            data.split_ids[part] = id_blocks(ids)
    for part, name in _MASKS.items():
        if part not in data.split_ids and (mask := archive.first(name)):
            data.split_ids[part] = _masked_blocks(mask)
    return data


def array_rows(array: ArrayFile, what: str) -> Rows:
    """An array's rows, as they are."""
    return Rows(len(array), array.row_shape, f"{what} in {array.where}", array.blocks)


def code_rows(array: ArrayFile) -> Rows:
    """Splits as numbers, 0 train, 1 val, 2 test and -1 none, as positions in `SPLIT_CODES`."""

    def blocks(most_bytes: int) -> Iterator[NDArray[np.uint8]]:
        for block in array.blocks(most_bytes):
            if block.ndim != 1 or not np.isin(block, (-1, 0, 1, 2)).all():
                raise BadInput(f"{array.where}: a split is 0 for train, 1 for val, 2 for test, -1 for none")
            yield (block + 1).astype(np.uint8)

    return Rows(len(array), array.row_shape, f"split in {array.where}", blocks)


def id_blocks(array: ArrayFile) -> Callable[[], Iterator[NDArray[Any]]]:
    return lambda: array.blocks(1 << 23)


def _masked_blocks(array: ArrayFile) -> Callable[[], Iterator[NDArray[np.int64]]]:
    """Ids of the vertices where a mask is true."""

    def blocks() -> Iterator[NDArray[np.int64]]:
        first = 0
        for block in array.blocks(1 << 23):
            if block.ndim != 1 or not np.isin(block, (0, 1)).all():
                raise BadInput(f"{array.where}: a mask has true or false for each vertex")
            yield first + np.flatnonzero(block)
            first += len(block)

    return blocks


def _plain_facts(archive: Archive) -> tuple[ArrayFile | None, int | None]:
    num_vertices = archive.number("num_nodes", "num_nodes_list", "num_vertices")
    return archive.first("edge_weight", "weight"), num_vertices


def _matrix(archive: Archive, prefix: str, *, by_column: bool = False) -> CompressedEdges:
    rows = archive.square(f"{prefix}shape") if archive.has(f"{prefix}shape") else None
    values = archive.first(f"{prefix}data")
    weights = None if values is None else weights_if_any_differ(values)
    return _compressed(archive, prefix, rows, weights, by_column=by_column)


def _compressed(
    archive: Archive, prefix: str, rows: int | None, weights: ArrayFile | None, *, by_column: bool = False
) -> CompressedEdges:
    """Edges of a matrix that is said to have so many rows; None: as many as it has."""
    indptr = archive.array(f"{prefix}indptr")
    _check_rows(indptr, rows)
    return CompressedEdges(indptr, archive.array(f"{prefix}indices"), weights, not by_column)


def _check_rows(indptr: ArrayFile, rows: int | None) -> None:
    if rows is not None and len(indptr) != rows + 1:
        raise BadInput(f"{indptr.where} has {len(indptr)} positions: a matrix of {rows} rows has {rows + 1}")


def _scipy(archive: Archive) -> EdgeSource:
    name = archive.array("format").read()
    kind = name.item() if name.size == 1 else ""
    kind = kind.decode(errors="replace") if isinstance(kind, bytes) else str(kind)
    if kind in ("csr", "csc"):
        return _matrix(archive, "", by_column=kind == "csc")
    if kind == "coo":
        num_vertices = archive.square("shape")
        weights = weights_if_any_differ(archive.array("data"))
        return ListedEdges((archive.array("row"), archive.array("col")), weights, num_vertices)
    raise BadInput(f"{archive.path} is a SciPy matrix of format {one_line(repr(kind))}: save its .tocsr()")


def _features(archive: Archive) -> Rows | None:
    if dense := archive.first("attr_matrix", "x", "node_feat"):
        return array_rows(dense, "features")
    if archive.has("attr_indptr", "attr_indices"):
        rows, width = archive.shape("attr_shape")
        _check_rows(archive.array("attr_indptr"), rows)
        return sparse_rows(archive, "attr_", width)
    if archive.has("x_indptr", "x_indices") and (features := archive.number("x_dim")) is not None:
        return sparse_rows(archive, "x_", features)
    return None


def sparse_rows(archive: Archive, prefix: str, width: int) -> Rows:
    """A compressed sparse matrix as dense rows; its values are ones if the archive has none."""
    indptr, indices = archive.array(f"{prefix}indptr"), archive.array(f"{prefix}indices")
    values = archive.first(f"{prefix}data")
    check_compressed(indptr, indices)
    total = len(indices)
    check.plausible_width(width, total, f"the number of columns of {archive.path}")
    if values is not None:
        check_values(values, total, "entries")

    def blocks(most_bytes: int) -> Iterator[NDArray[np.float32]]:
        at_once = max(1, most_bytes // max(1, 4 * width))
        columns = indices.cursor()
        numbers = None if values is None else values.cursor()
        for before, ends in row_ends(indptr, total, at_once):
            counts = np.diff(ends, prepend=before)
            here = columns.take(int(counts.sum()))
            if here.size and (here.min() < 0 or here.max() >= width):
                raise BadInput(f"{indices.where} has a column that is not from 0 to {width - 1}")
            rows = np.zeros((len(ends), width), np.float32)
            entries = np.repeat(np.arange(len(ends)), counts)
            np.add.at(rows, (entries, here), 1 if numbers is None else numbers.take(len(here)))
            yield rows

    return Rows(len(indptr) - 1, (width,), f"features in {indptr.where}", blocks)
