"""Sizes of a graph that is there, of one that is only known by name, and of a model."""

from dataclasses import replace
from pathlib import Path

from torch import nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.datasets import listings, load
from siafu.graph.datasets.catalogue import CATALOGUE, Dataset
from siafu.graph.generate import SHAPES
from siafu.graph.generate.shapes import Shape
from siafu.graph.partition import measure, read_partition
from siafu.graph.partition.quality import PartitionQuality
from siafu.graph.stores.remote import is_address, partitions_directory
from siafu.graph.stores.store import is_store
from siafu.planning.request import KnownGraph
from siafu.server.memory.server_part import parts_in
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.workload import ModelShape

_MEASURED_EDGES = 300_000_000  # partitions of larger graphs are not counted: a plan is to be there in seconds


def shape_of(graph: Graph | GraphShape | str | Path) -> tuple[str, GraphShape]:
    """A name and the sizes of a graph. One that is known, but not on this disk, is neither fetched nor generated."""
    name, shape, _ = planned_graph(graph)
    return name, shape


def planned_graph(graph: Graph | GraphShape | str | Path) -> tuple[str, GraphShape, KnownGraph | None]:
    """The same, with the graph itself if it is there and a plan can look at all of it in seconds."""
    if isinstance(graph, GraphShape):
        return "GRAPH", graph, None
    if isinstance(graph, Graph):
        return graph.source or graph.name, *_looked_at(graph)
    name = str(graph)
    if not (is_address(name) or is_store(Path(name))):
        ready = any(each.name == name and each.ready for each in listings())
        if name in SHAPES and not ready:
            return name, _of_generated(name), None
        if name in CATALOGUE and not ready:
            return name, _of_known(CATALOGUE[name]), None
    return name, *_looked_at(load(name, verify=False))


def _looked_at(graph: Graph) -> tuple[GraphShape, KnownGraph | None]:
    measured = _partitions(graph)
    shape = GraphShape.of(graph, measured)
    learnable = graph.x is not None and graph.y is not None and graph.train is not None and len(graph.train)
    if not learnable or graph.num_edges > _MEASURED_EDGES:
        return shape, None
    parts = {servers: parts_in(graph, found) for servers, found in measured.items()}
    return shape, KnownGraph(graph, parts)


def model_shape(
    model: str | nn.Module,
    *,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 8,
    dropout: float = 0.5,
    precision: str = "fp32",
) -> ModelShape:
    """Sizes of a model: of the named one, as given; or of one of Siafu's own models."""
    from siafu.nn import MODELS

    if isinstance(model, str):
        if model not in MODELS:
            raise BadInput(f"unknown model {model!r}: choose one of {', '.join(MODELS)}")
        for what, count in (("hidden", hidden), ("layers", layers), ("heads", heads)):
            if count < 1:
                raise BadInput(f"{what} is {count}: give a whole number from 1 up")
        return ModelShape(model, hidden, layers, dropout, heads, precision)
    for name, kind in MODELS.items():
        if type(model) is kind:
            config = model.config()
            hidden, layers, dropout = (config[each] for each in ("hidden_channels", "num_layers", "dropout"))
            stored = config.get("precision", precision)
            return ModelShape(name, hidden, layers, dropout, config.get("heads", heads), stored)
    raise BadInput(
        f"a plan is made for one of siafu's models ({', '.join(MODELS)}), not {type(model).__name__}: name the nearest"
    )


def _of_generated(name: str) -> GraphShape:
    shape = SHAPES[name]
    # METIS keeps on one server about the share of the edges that is within communities: docs/partition.md.
    return replace(_of_known(shape), train=shape.train, locality=shape.inside)


def _of_known(known: Shape | Dataset) -> GraphShape:
    return GraphShape(known.num_vertices, known.num_edges, known.num_features, known.num_classes)


def _partitions(graph: Graph) -> dict[int, PartitionQuality]:
    """Quality of a store's own partitions, by their number of servers."""
    source = graph.source
    if source is None or graph.num_edges > _MEASURED_EDGES:
        return {}
    if not (is_address(source) or is_store(Path(source))):
        return {}
    saved = sorted(path for path in partitions_directory(source).glob("*-*-*") if path.is_dir())
    partitions = [read_partition(path, graph) for path in saved]
    return {each.parts: measure(graph, each) for each in partitions if each.parts > 1}
