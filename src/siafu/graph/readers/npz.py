"""Graphs in `.npz` archives: the gnn-benchmark layout, SciPy's own, and plain arrays.

gnn-benchmark   adj_data, adj_indices, adj_indptr, adj_shape; attr_* alike, or attr_matrix; labels
SciPy           what `scipy.sparse.save_npz` writes: format, shape, data, and indptr, indices or row, col
plain           src, dst or edge_index, or indptr and indices; num_nodes; x, or x_indptr, x_indices, x_data and
                x_dim; y; split (0 train, 1 val, 2 test, -1 none), or train_idx, valid_idx and test_idx

A matrix's row is an edge's source, its column the destination.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.errors import BadInput
from siafu.graph.readers.arrays import ArrayFile, members
from siafu.graph.readers.blocks import EdgeSource, Rows, VertexData
from siafu.graph.readers.edges import CompressedEdges, ListedEdges, weights_if_any_differ

_SPLIT_ARRAYS = {"train": ("train_idx",), "val": ("valid_idx", "val_idx"), "test": ("test_idx",)}


class Archive:
    """The arrays of an `.npz` archive, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = members(path)

    def array(self, name: str) -> ArrayFile:
        return ArrayFile(self.path, name)

    def has(self, *names: str) -> bool:
        return all(name in self.names for name in names)

    def first(self, *names: str) -> ArrayFile | None:
        return next((self.array(name) for name in names if name in self.names), None)

    def number(self, *names: str) -> int | None:
        array = self.first(*names)
        return None if array is None else int(np.max(array.read()))


def read_npz(path: Path) -> tuple[EdgeSource, VertexData]:
    """Edges and vertex data, by whichever layout the archive has."""
    archive = Archive(path)
    if archive.has("adj_indptr", "adj_indices"):
        edges: EdgeSource = _compressed(archive, "adj_")
    elif archive.has("format", "shape"):
        edges = _scipy(archive)
    elif archive.has("src", "dst"):
        edges = ListedEdges((archive.array("src"), archive.array("dst")), *_plain_facts(archive))
    elif archive.has("edge_index"):
        edges = ListedEdges((archive.array("edge_index"),), *_plain_facts(archive))
    elif archive.has("indptr", "indices"):
        indptr = archive.array("indptr")
        edges = CompressedEdges(indptr, archive.array("indices"), None, len(indptr) - 1)
    else:
        raise BadInput(
            f"{path} has the arrays {', '.join(sorted(archive.names)) or '(none)'}: siafu reads adj_indptr and adj_indices, src and dst, edge_index, indptr and indices, or what scipy.sparse.save_npz writes"
        )
    return edges, vertex_data(archive)


def vertex_data(archive: Archive) -> VertexData:
    """Features, labels and split, as far as the archive has them."""
    data = VertexData(features=_features(archive))
    if labels := archive.first("labels", "y", "node_label"):
        data.labels = array_rows(labels, "labels")
    if codes := archive.first("split"):
        data.split_codes = code_rows(codes)
    for part, names in _SPLIT_ARRAYS.items():
        if ids := archive.first(*names):
            data.split_ids[part] = id_blocks(ids)
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


def _plain_facts(archive: Archive) -> tuple[ArrayFile | None, int | None]:
    return archive.first("edge_weight", "weight"), archive.number(
        "num_nodes", "num_nodes_list", "num_vertices"
    )


def _compressed(archive: Archive, prefix: str, *, by_column: bool = False) -> CompressedEdges:
    shape = archive.array(f"{prefix}shape").read() if archive.has(f"{prefix}shape") else None
    indptr = archive.array(f"{prefix}indptr")
    if shape is not None and shape[0] != shape[1]:
        raise BadInput(f"{archive.path} holds a matrix of shape {tuple(shape)}: a graph's matrix is square")
    values = archive.first(f"{prefix}data")
    return CompressedEdges(
        indptr,
        archive.array(f"{prefix}indices"),
        None if values is None else weights_if_any_differ(values),
        len(indptr) - 1,
        rows_are_sources=not by_column,
    )


def _scipy(archive: Archive) -> EdgeSource:
    kind = archive.array("format").read().item()
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if kind in ("csr", "csc"):
        return _compressed(archive, "", by_column=kind == "csc")
    if kind == "coo":
        shape = archive.array("shape").read()
        weights = weights_if_any_differ(archive.array("data"))
        return ListedEdges((archive.array("row"), archive.array("col")), weights, int(shape.max()))
    raise BadInput(f"{archive.path} is a SciPy matrix of format {kind!r}: save it with .tocsr()")


def _features(archive: Archive) -> Rows | None:
    if dense := archive.first("attr_matrix", "x", "node_feat"):
        return array_rows(dense, "features")
    if archive.has("attr_indptr", "attr_indices"):
        width = int(archive.array("attr_shape").read()[1])
        return _sparse_rows(archive, "attr_", width)
    if archive.has("x_indptr", "x_indices", "x_dim"):
        return _sparse_rows(archive, "x_", int(archive.array("x_dim").read()))
    return None


def _sparse_rows(archive: Archive, prefix: str, width: int) -> Rows:
    """A compressed sparse matrix as dense rows; its values are ones if the archive has none."""
    indptr, indices = archive.array(f"{prefix}indptr"), archive.array(f"{prefix}indices")
    values = archive.first(f"{prefix}data")

    def blocks(most_bytes: int) -> Iterator[NDArray[np.float32]]:
        at_once = max(1, most_bytes // max(1, 4 * width))
        pointers, columns = indptr.cursor(), indices.cursor()
        numbers = None if values is None else values.cursor()
        before = int(pointers.take(1)[0])
        for start in range(0, len(indptr) - 1, at_once):
            ends = pointers.take(min(at_once, len(indptr) - 1 - start)).astype(np.int64)
            counts = np.diff(ends, prepend=before)
            before = int(ends[-1])
            here = columns.take(int(counts.sum()))
            if here.size and (here.min() < 0 or here.max() >= width):
                raise BadInput(f"{indices.where} has a column that is not below {width}")
            rows = np.zeros((len(ends), width), np.float32)
            entries = np.repeat(np.arange(len(ends)), counts)
            np.add.at(rows, (entries, here), 1 if numbers is None else numbers.take(len(here)))
            yield rows

    return Rows(len(indptr) - 1, (width,), f"features in {indptr.where}", blocks)
