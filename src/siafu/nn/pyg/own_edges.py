"""`apply_edge` of our own layers, taken apart as messages of PyG's layers are."""

from torch import Tensor

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn.gathers.gather import Max
from siafu.nn.layers.layer import Layer
from siafu.nn.pyg.bridge import EdgeFunctions
from siafu.nn.pyg.edge_program import gathered
from siafu.nn.pyg.expression import Node
from siafu.nn.pyg.extremes import greatest
from siafu.nn.pyg.hoist import hoisted
from siafu.nn.pyg.session import PygCall, entered
from siafu.nn.pyg.standing_in.values import EdgeValue, lifted

_NOT_TAKEN_APART = (
    BadInput,
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    NotImplementedError,
)


def messages_gathered(layer: Layer, graph: Graph, x: Tensor) -> Tensor | None:
    """The layer's gather of its messages, with what its vertices can compute left to them; None: it cannot be taken apart."""
    with entered(PygCall(graph, x, [layer])):
        node = _message(layer, x)
        if node is None or len(node.shape) != 1:
            return None
        node = hoisted(node)
        reached = greatest(node) if isinstance(layer.gather, Max) else None
        return gathered(node, layer.gather) if reached is None else reached


def _message(layer: Layer, x: Tensor) -> Node | None:
    try:
        with EdgeFunctions():
            made = layer.apply_edge(lifted(x, "source"), lifted(x, "target"))
    except _NOT_TAKEN_APART:
        return None
    return made.node if isinstance(made, EdgeValue) else None
