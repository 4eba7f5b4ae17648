"""Reordering: a layout of a graph in which gathers find more of their rows in the cache."""

from siafu.graph.graph import Graph
from siafu.graph.reorder.advice import Advice, advise, first_look, recommend
from siafu.graph.reorder.layout import held_layout, write_layout
from siafu.graph.reorder.orders import ORDERS, make_order

__all__ = [
    "ORDERS",
    "Advice",
    "advise",
    "first_look",
    "make_order",
    "recommend",
    "reorder",
    "write_layout",
]


def reorder(graph: Graph, order: str = "auto", *, memory: str | None = None) -> Graph:
    """`Graph.reorder`."""
    plain = graph.replace(layout=None)
    if order != "auto":
        return graph.replace(layout=held_layout(plain, make_order(plain, order, memory=memory), order))
    advice = advise(plain, memory=memory)
    if advice.order is None or advice.vertex_order is None:
        return plain
    return graph.replace(layout=held_layout(plain, advice.vertex_order, advice.order))
