"""A graph in one `.npz` file of plain arrays, as people keep small datasets.

num_nodes           how many vertices
src, dst            [edges]; or indptr, indices: out-edges by source
edge_weight         [edges], if they have weights; those of parallel edges that count once add up
directed, rel       where `directed` is true or edges have types, edges are kept as they stand;
                    otherwise each undirected edge stands once, and parallel ones count once
x                   [V, F] features; or x_indptr, x_indices, x_dim and x_data (ones if missing): the same, sparse
y                   [V] classes, -1 where unknown; num_classes: how many, if not as many as y shows
split               [V] 0 train, 1 val, 2 test, -1 none; or splits10: ten of them, of which the first is taken
node_names          [V] the vertices' names
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line
from siafu.graph import check
from siafu.graph.graph import Graph
from siafu.graph.importing.readers.arrays import ArrayFile
from siafu.graph.importing.readers.edges import check_compressed, row_of_each
from siafu.graph.importing.readers.npz import Archive, sparse_rows

_PARTS = ("train", "val", "test")
_BLOCK_BYTES = 8 << 20


def read_bundle(path: Path) -> Graph:
    """The graph in the file. One with labels but no split gets a split of 60/20/20, the same every time."""
    try:
        return _build(Archive(path))
    except BadInput as error:
        where = "" if str(path) in str(error) else f"{path}: "
        raise BadInput(f"{where}{error}") from error


def _build(archive: Archive) -> Graph:
    directed = archive.number("directed") or 0
    if directed > 1:
        raise BadInput("directed should hold one truth: True or False")
    as_they_stand = bool(directed) or archive.has("rel") or archive.has("indptr")
    src, dst = _edges(archive)
    y = _numbers(archive, "y", "number the classes from 0 up")
    return Graph.from_edges(
        src,
        dst,
        num_vertices=_num_vertices(archive),
        edge_weight=_numbers(archive, "edge_weight"),
        undirected=not as_they_stand,
        merge_parallel=not as_they_stand,
        x=_features(archive),
        y=y,
        num_classes=archive.number("num_classes"),
        ids=_names(archive),
        name=archive.path.stem,
        **_split(archive, y),
    )


def _values(array: ArrayFile) -> NDArray[Any]:
    return array.turned().read().T if array.by_column else array.read()


def _numbers(archive: Archive, name: str, advice: str = "give real numbers") -> NDArray[Any] | None:
    array = archive.first(name)
    if array is None:
        return None
    if not array.is_number:
        raise BadInput(f"{name} holds {array.dtype}: {advice}")
    return _values(array)


def _num_vertices(archive: Archive) -> int:
    count = archive.number("num_nodes")
    if count is None:
        raise BadInput("there is no array 'num_nodes': see docs/datasets.md for what a bundle must hold")
    check.plausible_vertices(count, archive.path.stat().st_size, "num_nodes", "mend it")
    return count


def _edges(archive: Archive) -> tuple[NDArray[Any], NDArray[Any]]:
    if archive.has("src") or not archive.has("indptr"):
        return _values(archive.array("src")), _values(archive.array("dst"))
    indptr, indices = archive.array("indptr"), archive.array("indices")
    check_compressed(indptr, indices)
    sources = np.concatenate([np.empty(0, np.int64), *row_of_each(indptr, len(indices))])
    return sources, _values(indices)


def _features(archive: Archive) -> NDArray[Any] | None:
    if archive.has("x") or not archive.has("x_indptr"):
        return _numbers(archive, "x")
    width = archive.number("x_dim")
    if width is None:
        raise BadInput("sparse features need an array 'x_dim': how many columns they have")
    rows = sparse_rows(archive, "x_", width)
    x = check.empty_rows(rows.count or 0, width)
    first = 0
    for block in rows.blocks(_BLOCK_BYTES):
        x[first : first + len(block)] = block
        first += len(block)
    return x


def _names(archive: Archive) -> NDArray[Any] | None:
    array = archive.first("node_names")
    names = None if array is None else array.read()
    if names is None or names.dtype.kind != "U":
        return names
    try:
        return np.char.encode(names, "utf-8")
    except UnicodeError as error:
        raise BadInput(f"node_names has a name that is no text ({one_line(error)}): mend it") from error


def _split(archive: Archive, y: NDArray[Any] | None) -> dict[str, NDArray[np.bool_]]:
    if array := archive.first("split", "splits10"):
        part = _values(array)
        if not archive.has("split"):
            if part.ndim != 2 or len(part) == 0:
                raise BadInput(f"splits10 has shape {part.shape}: give ten rows, of which the first is taken")
            part = part[0]
    elif y is not None and y.ndim == 1:
        part = _drawn_split(y)
    else:
        return {}
    if part.ndim != 1 or part.dtype.kind not in "biuf" or not np.isin(part, (-1, *range(len(_PARTS)))).all():
        raise BadInput("the split is not as it should be: 0 for train, 1 for val, 2 for test, -1 for none")
    found = {name: part == k for k, name in enumerate(_PARTS)}
    return {name: mask for name, mask in found.items() if mask.any()}


def _drawn_split(y: NDArray[Any]) -> NDArray[np.int8]:
    labelled = np.flatnonzero(y >= 0)
    order = np.random.Generator(np.random.PCG64(0)).permutation(labelled)
    part = np.full(len(y), -1, np.int8)
    first, second = len(order) * 3 // 5, len(order) * 4 // 5
    part[order[:first]], part[order[first:second]], part[order[second:]] = 0, 1, 2
    return part
