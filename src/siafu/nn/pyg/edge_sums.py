"""Sums of values that must be computed on edges."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from siafu.nn.gathers.gather import Sum
from siafu.nn.pyg.edge_program import gathered
from siafu.nn.pyg.expression import MANY, EdgeCall, Node, Number, StoredWeight, walk
from siafu.nn.pyg.factors import StoredLoops
from siafu.nn.pyg.on_vertices import aligned, at_loops
from siafu.nn.pyg.session import session
from siafu.nn.pyg.standing_in.values import EdgeToken, without_memory
from siafu.nn.pyg.terms import pushed, weight_of


def edges_sum(node: Node, token: EdgeToken) -> Tensor:
    """The sum of values that must be computed on edges."""
    stripped = without_weight(node)
    weighted = stripped is not node
    total = gathered(stripped, Sum(weighted=weighted))
    if token.removed and session().graph.num_self_loops:
        loops = session().constant(StoredLoops(weighted=weighted))
        total = total - aligned(loops, total) * at_loops(stripped)
    return total


def without_weight(node: Node) -> Node:
    """A product without its factor that is the stored weight: the gather multiplies by it; anything else as it is."""
    if not _has_weight(node):
        return node
    found = _stripped(node)
    return node if found is None or _has_weight(found) else found


def _has_weight(node: Node) -> bool:
    return any(isinstance(each, StoredWeight) for each in walk(node))


def _stripped(node: Node) -> Node | None:
    if weight_of(node) is not None:
        one = Number(without_memory(MANY, dtype=node.meta.dtype), 1.0)
        shape: Callable[..., Any] = partial(_ones_shaped, shape=node.shape)
        return EdgeCall(node.meta, shape, (one,), {})
    node = pushed(node)
    if not isinstance(node, EdgeCall) or node.name not in ("mul", "rmul", "neg", "div", "truediv"):
        return None
    arguments = list(node.arguments)
    for k, each in enumerate(arguments):
        divided_by = k == 1 and node.name in ("div", "truediv")
        if isinstance(each, Node) and not divided_by and _has_weight(each):
            arguments[k] = _stripped(each)
            if arguments[k] is None:
                return None
            return EdgeCall(node.meta, node.function, tuple(arguments), node.options)
    return None


def _ones_shaped(ones: Tensor, shape: tuple[int, ...]) -> Tensor:
    return ones.reshape(-1, *[1] * len(shape)).expand(-1, *shape)
