"""A graph in one `.npz` file of plain arrays, as people keep small datasets.

num_nodes           how many vertices
src, dst            [edges]; or indptr, indices: out-edges by source
edge_weight         [edges], if they have weights; those of parallel edges that count once add up
directed, rel       where `directed` is true or edges have types, edges are kept as they stand;
                    otherwise each undirected edge stands once, and parallel ones count once
x                   [V, F] features; or x_indptr, x_indices, x_dim and x_data (ones if missing): the same, sparse
y                   [V] classes, -1 where unknown
split               [V] 0 train, 1 val, 2 test, -1 none; or splits10: ten of them, of which the first is taken
node_names          [V] the vertices' names
"""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph.graph import Graph

_PARTS = ("train", "val", "test")


def read_bundle(path: Path) -> Graph:
    """The graph in the file. One with labels but no split gets a split of 60/20/20, the same every time."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return _build(path.stem, arrays)
    except KeyError as error:
        raise BadInput(
            f"{path} has no array {error.args[0].split()[0]!r}: see docs/datasets.md for what it must hold"
        ) from error
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error
    except (OSError, ValueError, IndexError, zipfile.BadZipFile) as error:
        raise BadInput(f"{path} is not an .npz file that siafu reads ({error})") from error


def _build(name: str, arrays: Any) -> Graph:
    directed = "rel" in arrays or "indptr" in arrays or ("directed" in arrays and bool(arrays["directed"]))
    src, dst = _edges(arrays)
    y = _numbers(arrays, "y", "number the classes from 0 up") if "y" in arrays else None
    return Graph.from_edges(
        src,
        dst,
        num_vertices=_whole_number(arrays, "num_nodes"),
        edge_weight=_numbers(arrays, "edge_weight") if "edge_weight" in arrays else None,
        undirected=not directed,
        merge_parallel=not directed,
        x=_features(arrays),
        y=y,
        ids=np.char.encode(arrays["node_names"], "utf-8") if "node_names" in arrays else None,
        name=name,
        **_split(arrays, y),
    )


def _edges(arrays: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    if "indptr" in arrays and "src" not in arrays:
        indices = _list(arrays, "indices")
        return _row_of_each(arrays, "indptr", len(indices)), indices
    return arrays["src"], arrays["dst"]


def _features(arrays: Any) -> NDArray[Any] | None:
    if "x" in arrays:
        return np.asarray(_numbers(arrays, "x"), np.float32)
    if "x_indptr" not in arrays:
        return None
    columns, width = _list(arrays, "x_indices"), _whole_number(arrays, "x_dim")
    rows = _row_of_each(arrays, "x_indptr", len(columns))
    if columns.size and (columns.min() < 0 or columns.max() >= width):
        raise BadInput(f"x_indices has a column that is not from 0 to {width - 1}: x_dim is {width}")
    values = _numbers(arrays, "x_data") if "x_data" in arrays else np.ones(len(columns), np.float32)
    if values.shape != columns.shape:
        raise BadInput(f"x_data has shape {values.shape}: give one number for each of {len(columns)} entries")
    x = np.zeros((len(arrays["x_indptr"]) - 1, width), np.float32)
    x[rows, columns.astype(np.int64)] = values
    return x


def _numbers(arrays: Any, name: str, advice: str = "give real numbers") -> NDArray[Any]:
    values: NDArray[Any] = arrays[name]
    if values.dtype.kind not in "biuf":
        raise BadInput(f"{name} holds {values.dtype}: {advice}")
    return values


def _list(arrays: Any, name: str) -> NDArray[Any]:
    values: NDArray[Any] = arrays[name]
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise BadInput(
            f"{name} has shape {values.shape} and type {values.dtype}: give a list of whole numbers"
        )
    return values


def _whole_number(arrays: Any, name: str) -> int:
    value: NDArray[Any] = arrays[name]
    if value.size != 1 or value.dtype.kind not in "iu" or value.item() < 0:
        raise BadInput(f"{name} should hold one whole number, not negative")
    return int(value.item())


def _row_of_each(arrays: Any, name: str, entries: int) -> NDArray[np.int64]:
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


def _split(arrays: Any, y: NDArray[Any] | None) -> dict[str, NDArray[np.bool_]]:
    if "split" in arrays:
        part = arrays["split"]
    elif "splits10" in arrays:
        part = arrays["splits10"][0]
    elif y is not None and y.ndim == 1:
        part = _drawn_split(y)
    else:
        return {}
    if not np.isin(part, (-1, *range(len(_PARTS)))).all():
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
