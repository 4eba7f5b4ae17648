"""A graph in one `.npz` file of plain arrays, as people keep small datasets.

num_nodes           how many vertices
src, dst            [edges]; or indptr, indices: out-edges by source
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

from siafu.errors import BadInput
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
    except (OSError, ValueError, IndexError, zipfile.BadZipFile) as error:
        raise BadInput(f"{path} is not an .npz file that siafu reads ({error})") from error


def _build(name: str, arrays: Any) -> Graph:
    directed = "rel" in arrays or "indptr" in arrays or ("directed" in arrays and bool(arrays["directed"]))
    src, dst = _edges(arrays)
    y = arrays.get("y")
    return Graph.from_edges(
        src,
        dst,
        num_vertices=int(arrays["num_nodes"]),
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
        counts = np.diff(arrays["indptr"])
        return np.repeat(np.arange(len(counts)), counts), arrays["indices"]
    return arrays["src"], arrays["dst"]


def _features(arrays: Any) -> NDArray[Any] | None:
    if "x" in arrays:
        return np.asarray(arrays["x"], np.float32)
    if "x_indptr" not in arrays:
        return None
    counts = np.diff(arrays["x_indptr"])
    x = np.zeros((len(counts), int(arrays["x_dim"])), np.float32)
    rows = np.repeat(np.arange(len(counts)), counts)
    x[rows, arrays["x_indices"].astype(np.int64)] = arrays.get("x_data", 1)
    return x


def _split(arrays: Any, y: NDArray[Any] | None) -> dict[str, NDArray[np.bool_]]:
    if "split" in arrays:
        part = arrays["split"]
    elif "splits10" in arrays:
        part = arrays["splits10"][0]
    elif y is not None and y.ndim == 1:
        part = _drawn_split(y)
    else:
        return {}
    found = {name: part == k for k, name in enumerate(_PARTS)}
    return {name: mask for name, mask in found.items() if mask.any()}


def _drawn_split(y: NDArray[Any]) -> NDArray[np.int8]:
    labelled = np.flatnonzero(y >= 0)
    order = np.random.Generator(np.random.PCG64(0)).permutation(labelled)
    part = np.full(len(y), -1, np.int8)
    first, second = len(order) * 3 // 5, len(order) * 4 // 5
    part[order[:first]], part[order[first:second]], part[order[second:]] = 0, 1, 2
    return part
