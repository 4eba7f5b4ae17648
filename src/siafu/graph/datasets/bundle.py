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

from siafu.base.documents import one_line
from siafu.base.errors import BadInput
from siafu.graph import check
from siafu.graph.graph import Graph
from siafu.graph.importing.readers.arrays import ArrayFile, members

_PARTS = ("train", "val", "test")


def read_bundle(path: Path) -> Graph:
    """The graph in the file. One with labels but no split gets a split of 60/20/20, the same every time."""
    try:
        return _build(path.stem, _Arrays(path))
    except BadInput as error:
        where = "" if str(path) in str(error) else f"{path}: "
        raise BadInput(f"{where}{error}") from error


class _Arrays:
    """The file's arrays by name. Each is read when it is asked for, if the file has as much as it says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names = members(path)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise BadInput(f"{self.path} has no array {name!r}: see docs/datasets.md for what it must hold")
        array = ArrayFile(self.path, name)
        return array.turned().read().T if array.by_column else array.read()


def _build(name: str, arrays: _Arrays) -> Graph:
    directed = "rel" in arrays or "indptr" in arrays or ("directed" in arrays and _truth(arrays, "directed"))
    src, dst = _edges(arrays)
    y = _numbers(arrays, "y", "number the classes from 0 up") if "y" in arrays else None
    return Graph.from_edges(
        src,
        dst,
        num_vertices=_num_vertices(arrays),
        edge_weight=_numbers(arrays, "edge_weight") if "edge_weight" in arrays else None,
        undirected=not directed,
        merge_parallel=not directed,
        x=_features(arrays),
        y=y,
        num_classes=_whole_number(arrays, "num_classes") if "num_classes" in arrays else None,
        ids=_names(arrays) if "node_names" in arrays else None,
        name=name,
        **_split(arrays, y),
    )


def _edges(arrays: _Arrays) -> tuple[NDArray[Any], NDArray[Any]]:
    if "indptr" in arrays and "src" not in arrays:
        indices = _list(arrays, "indices")
        return _row_of_each(arrays, "indptr", len(indices)), indices
    return arrays["src"], arrays["dst"]


def _features(arrays: _Arrays) -> NDArray[Any] | None:
    if "x" in arrays:
        return _numbers(arrays, "x")
    if "x_indptr" not in arrays:
        return None
    columns, width = _list(arrays, "x_indices"), _whole_number(arrays, "x_dim")
    rows = _row_of_each(arrays, "x_indptr", len(columns))
    if columns.size and (columns.min() < 0 or columns.max() >= width):
        raise BadInput(f"x_indices has a column that is not from 0 to {width - 1}: x_dim is {width}")
    values = _numbers(arrays, "x_data") if "x_data" in arrays else np.ones(len(columns), np.float32)
    if values.shape != columns.shape:
        raise BadInput(f"x_data has shape {values.shape}: give one number for each of {len(columns)} entries")
    num_rows = len(arrays["x_indptr"]) - 1
    check.plausible_width(width, len(columns), "x_dim")
    x = check.empty_rows(num_rows, width)
    x[rows, columns.astype(np.int64)] = check.float32(values)
    return x


def _numbers(arrays: _Arrays, name: str, advice: str = "give real numbers") -> NDArray[Any]:
    values: NDArray[Any] = arrays[name]
    if values.dtype.kind not in "biuf":
        raise BadInput(f"{name} holds {values.dtype}: {advice}")
    return values


def _list(arrays: _Arrays, name: str) -> NDArray[Any]:
    values: NDArray[Any] = arrays[name]
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise BadInput(
            f"{name} has shape {values.shape} and type {values.dtype}: give a list of whole numbers"
        )
    return values


def _whole_number(arrays: _Arrays, name: str) -> int:
    value: NDArray[Any] = arrays[name]
    if value.size != 1 or value.dtype.kind not in "iu" or value.item() < 0:
        raise BadInput(f"{name} should hold one whole number, not negative")
    return int(value.item())


def _num_vertices(arrays: _Arrays) -> int:
    count = _whole_number(arrays, "num_nodes")
    check.plausible_vertices(count, arrays.path.stat().st_size, "num_nodes", "mend it")
    return count


def _truth(arrays: _Arrays, name: str) -> bool:
    value = arrays[name]
    if value.size != 1 or value.dtype.kind not in "biu" or value.item() not in (0, 1):
        raise BadInput(f"{name} should hold one truth: True or False")
    return bool(value.item())


def _names(arrays: _Arrays) -> NDArray[Any]:
    names = arrays["node_names"]
    if names.dtype.kind == "U":
        try:
            return np.char.encode(names, "utf-8")
        except UnicodeError as error:
            raise BadInput(f"node_names has a name that is no text ({one_line(error)}): mend it") from error
    return names


def _row_of_each(arrays: _Arrays, name: str, entries: int) -> NDArray[np.int64]:
    """The row of each of a compressed matrix's entries."""
    positions = _list(arrays, name).astype(np.int64)
    if len(positions) == 0 or positions[0] != 0:
        raise BadInput(f"{name} must be a list of V + 1 positions that starts at 0")
    if (np.diff(positions) < 0).any():
        raise BadInput(
            f"{name} falls after vertex {np.argmax(np.diff(positions) < 0)}: positions never decrease"
        )
    if positions[-1] != entries:
        raise BadInput(f"{name} ends at {positions[-1]}, but there are {entries} entries")
    return np.repeat(np.arange(len(positions) - 1), np.diff(positions))


def _split(arrays: _Arrays, y: NDArray[Any] | None) -> dict[str, NDArray[np.bool_]]:
    if "split" in arrays:
        part = arrays["split"]
    elif "splits10" in arrays:
        part = arrays["splits10"]
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
