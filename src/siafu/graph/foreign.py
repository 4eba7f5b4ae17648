"""Graphs of other libraries, read by the shape of their objects: neither PyG nor DGL is imported."""

from pathlib import PurePath
from typing import Any

import numpy as np

from siafu.base.errors import BadInput
from siafu.graph import check
from siafu.graph.graph import Graph
from siafu.graph.several_types import from_several_types, is_of_several_types


def graph_of(given: Any, what: str) -> Graph:
    """A Graph as it is, or that of PyG's `Data`; what: who takes it, for a refusal."""
    if isinstance(given, Graph):
        return given
    if is_of_several_types(given):
        return from_several_types(given)
    if hasattr(given, "edge_index") and hasattr(given, "num_nodes"):
        return from_pyg(given)
    if isinstance(given, str | PurePath):
        raise BadInput(f"{what} takes a graph, not its name or path: give siafu.load({str(given)!r})")
    kind, home = type(given).__name__, type(given).__module__.partition(".")[0]
    if home == "networkx":
        raise BadInput(
            f"{what} takes a siafu.Graph, not NetworkX's {kind}: number its vertices from 0, and give "
            f"Graph.from_edges(*numpy.array(g.edges()).T, num_vertices=len(g), undirected={'Di' not in kind}, x=…, y=…)"
        )
    if hasattr(given, "state_dict") and hasattr(given, "forward"):
        raise BadInput(f"{what} was given the model {kind} in the place of the graph: change their order")
    raise BadInput(
        f"{what} takes a siafu.Graph or PyG's Data, not {kind} of {home}: make one with Graph.from_pyg, from_dgl or from_edges"
    )


def from_pyg(data: Any) -> Graph:
    if is_of_several_types(data):
        return from_several_types(data)
    edges = getattr(data, "edge_index", None)
    if edges is None or check.array(edges, "edge_index").ndim != 2 or len(edges) != 2:
        raise BadInput("from_pyg wants a Data with an edge_index of shape [2, E]")
    src, dst = check.array(edges, "edge_index")
    weight = getattr(data, "edge_weight", None)
    if weight is None:
        weight = _one_number_per_edge(getattr(data, "edge_attr", None))
    return Graph.from_edges(
        src,
        dst,
        num_vertices=int(data.num_nodes),
        edge_weight=weight,
        edge_attr=getattr(data, "edge_attr", None),
        edge_type=getattr(data, "edge_type", None),
        x=getattr(data, "x", None),
        y=getattr(data, "y", None),
        **{name: _mask(getattr(data, f"{name}_mask", None), name) for name in ("train", "val", "test")},
    )


def from_dgl(graph: Any) -> Graph:
    if not hasattr(graph, "edges") or not hasattr(graph, "ndata"):
        raise BadInput("from_dgl wants a homogeneous DGLGraph")
    src, dst = (check.array(ends, "edges") for ends in graph.edges(order="eid"))
    rows, edge_rows = graph.ndata, graph.edata
    return Graph.from_edges(
        src,
        dst,
        num_vertices=int(graph.num_nodes()),
        edge_weight=_first(edge_rows, "w", "weight", "edge_weight"),
        edge_attr=_first(edge_rows, "feat", "edge_attr"),
        edge_type=_first(edge_rows, "edge_type", "rel_type", "etype"),
        x=_first(rows, "feat", "x"),
        y=_first(rows, "label", "y"),
        **{name: _mask(_first(rows, f"{name}_mask"), name) for name in ("train", "val", "test")},
    )


def _first(table: Any, *names: str) -> Any:
    return next((table[name] for name in names if name in table), None)


def _one_number_per_edge(attributes: Any) -> Any:
    """`edge_attr` is a weight besides where it is one number an edge."""
    if attributes is None:
        return None
    values = check.array(attributes, "edge_attr")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    return values if values.ndim == 1 else None


def _mask(mask: Any, name: str) -> Any:
    if mask is None:
        return None
    values = check.array(mask, name)
    if values.ndim != 1:
        raise BadInput(
            f"{name}_mask has shape {values.shape}: choose one split, for example {name}_mask[:, 0]"
        )
    return values.astype(np.bool_)
