"""Layouts: a graph's arrays in another order of its vertices, in memory or in its store.

    STORE/layout/graph.json   as a store's, with the order's name and the checksum of the store's own manifest
    STORE/layout/order.npy    the user's number of each vertex
    STORE/layout/indptr.npy … the arrays of the graph but for its vertices' names, in that order

The store's own files never change: whoever reads them finds every vertex where it was.
"""

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from siafu.base.errors import BadInput, StoreError
from siafu.graph.csr import IntArray
from siafu.graph.graph import Graph, Renumbered
from siafu.graph.progress import ProgressCallback, silent
from siafu.graph.reorder.permute import permuted
from siafu.graph.stores.store import LAYOUT, MANIFEST, ORDER, STORE, StoreWriter, read_arrays

_AGAIN = "make it again with 'siafu reorder --overwrite'"


def held_layout(graph: Graph, order: IntArray, method: str) -> Graph:
    """The layout of a graph, in memory."""
    arrays = {name: _joined(list(blocks)) for name, blocks in permuted(graph, order)}
    return _layout_of(graph, arrays, order, method)


def write_layout(
    store: Path,
    graph: Graph,
    order: IntArray,
    method: str,
    *,
    overwrite: bool = False,
    progress: ProgressCallback = silent,
) -> None:
    """Put the layout of the graph of a store beside it; it appears whole."""
    with StoreWriter(store / LAYOUT, overwrite=overwrite) as writer:
        names = writer.array(ORDER, np.int32)
        names.append(order)
        for name, blocks in permuted(graph, order):
            of_graph = getattr(graph, name)
            array = writer.array(name, of_graph.dtype, of_graph.shape[1:])
            progress(f"writing {name}", 0, len(of_graph))
            for block in blocks:
                array.append(block)
                progress(f"writing {name}", array.rows, len(of_graph))
        writer.commit(
            name=graph.name,
            num_classes=graph.num_classes,
            symmetric=graph.is_symmetric,
            layout={"method": method, "of": _mark(store)},
        )


def check_no_layout(store: Path) -> None:
    """Refuse a store that has a layout already."""
    if (store / LAYOUT).exists():
        raise BadInput(f"{store} has a layout already: use it, or replace it with --overwrite")


def read_layout(store: Path, graph: Graph, *, verify: bool) -> Graph | None:
    """The layout in a graph's store; None: there is none.

    verify: as for `read_store`
    """
    path = store / LAYOUT
    if not STORE.is_one(path):
        return None
    arrays, manifest = read_arrays(path, verify=verify)
    told = manifest.get("layout")
    if not isinstance(told, dict) or not isinstance(told.get("method"), str) or ORDER not in arrays:
        raise StoreError(f"{path / MANIFEST} does not describe a layout: {_AGAIN}")
    order = arrays.pop(ORDER)
    if told.get("of") != _mark(store) or not _alike(graph, arrays):
        raise StoreError(f"{path} is the layout of another graph than {graph.name}: {_AGAIN}")
    if verify and not np.array_equal(np.sort(order), np.arange(len(order))):
        raise StoreError(f"{path / ORDER}.npy does not name each vertex once: {_AGAIN}")
    return _layout_of(graph, arrays, order, told["method"])


def _layout_of(graph: Graph, arrays: dict[str, Any], order: IntArray, method: str) -> Graph:
    layout = Graph(
        **arrays,
        num_classes=graph.num_classes,
        name=graph.name,
        source=graph.source,
        renumbered=Renumbered(graph, order, method),
    )
    if "is_symmetric" in graph.__dict__:
        layout.__dict__["is_symmetric"] = graph.is_symmetric
    return layout


def _alike(graph: Graph, arrays: dict[str, Any]) -> bool:
    """Whether these could be the arrays of the graph, by their shapes."""
    names = [name for name in graph.__dataclass_fields__ if isinstance(getattr(graph, name), np.ndarray)]
    wanted = {name: getattr(graph, name).shape for name in names if name != "ids"}
    return wanted == {name: values.shape for name, values in arrays.items()}


def _mark(store: Path) -> int:
    return zlib.crc32((store / MANIFEST).read_bytes())


def _joined(blocks: list[Any]) -> Any:
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
