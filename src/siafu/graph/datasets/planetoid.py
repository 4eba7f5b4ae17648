"""Planetoid's files (Yang et al., ICML 2016): citation graphs with the split that papers report accuracy on.

ind.NAME.x, .tx, .allx      features of the training, the test and all but the test vertices
ind.NAME.y, .ty, .ally      their classes, one-hot
ind.NAME.graph              a dictionary from each vertex to its neighbours
ind.NAME.test.index         which vertex each test row belongs to
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line
from siafu.graph.datasets.unpickle import PickledCsr, unpickle
from siafu.graph.graph import Graph

FILES = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_NUM_VAL = 500  # validation takes the vertices that follow the training ones


def read_planetoid(folder: Path, name: str) -> Graph:
    """The graph in `folder`, with the public split: 20 vertices a class, 500 and 1,000.

    Edges stand both ways and once; self-loops are left out, as PyG does. Citeseer's test range has vertices that no
    row describes: their features are zeros, their class is unknown.
    """
    parts = {part: unpickle(folder / f"ind.{name}.{part}") for part in FILES[:-1]}
    test = _test_index(folder / f"ind.{name}.test.index")
    try:
        return _build(name, parts, test)
    except (AttributeError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise BadInput(
            f"{folder}: the files of {name} do not fit each other ({one_line(error)}); fetch them again"
        ) from error


def _build(name: str, parts: dict[str, Any], test: NDArray[np.int64]) -> Graph:
    known = parts["allx"].shape[0]
    num_vertices = max(known, int(test.max()) + 1)
    if test.min() < 0 or num_vertices > 2 * (known + len(test)):
        raise ValueError(f"{known + len(test)} rows describe vertices up to {num_vertices - 1}")
    num_train = len(parts["y"])
    src, dst = _edges(parts["graph"])
    apart = src != dst
    one_hot = _rows(parts["ally"], parts["ty"], test, num_vertices)
    return Graph.from_edges(
        src[apart],
        dst[apart],
        num_vertices=num_vertices,
        undirected=True,
        merge_parallel=True,
        x=_rows(_dense(parts["allx"]), _dense(parts["tx"]), test, num_vertices),
        y=np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1),
        num_classes=parts["ally"].shape[1],
        train=np.arange(num_train),
        val=np.arange(num_train, num_train + _NUM_VAL),
        test=test,
        name=name,
    )


def _rows(
    known: NDArray[Any], tested: NDArray[Any], test: NDArray[np.int64], count: int
) -> NDArray[np.float32]:
    out = np.zeros((count, known.shape[1]), np.float32)
    out[: len(known)] = known
    out[test] = tested
    return out


def _dense(rows: Any) -> NDArray[Any]:
    return rows.to_dense() if isinstance(rows, PickledCsr) else np.asarray(rows)


def _edges(neighbours: dict[int, list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    src = np.repeat(np.fromiter(neighbours, np.int64), np.fromiter(map(len, neighbours.values()), np.int64))
    dst = np.fromiter((vertex for some in neighbours.values() for vertex in some), np.int64)
    return src, dst


def _test_index(path: Path) -> NDArray[np.int64]:
    try:
        return np.array([int(line) for line in path.read_text().split()], np.int64)
    except (OSError, ValueError, OverflowError) as error:
        raise BadInput(f"{path} is no list of vertex numbers ({one_line(error)}): fetch it again") from error
