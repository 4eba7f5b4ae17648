"""Values of edges computed on vertices: of one end alone, or of a self-loop, where both ends are one."""

from typing import Any

import torch
from torch import Tensor

from siafu.nn.gathers.gather import Gather, GcnSum
from siafu.nn.pyg.expression import (
    EdgeCall,
    End,
    Filled,
    GcnWeight,
    Node,
    NodeValues,
    Number,
    StoredFeatures,
    StoredWeight,
    replaced,
)
from siafu.nn.pyg.factors import GcnFactor, GcnLoop
from siafu.nn.pyg.session import refusal, session
from siafu.nn.pyg.standing_in.values import lifted


def at_loops(node: Node) -> Tensor:
    """[rows, …]: the value of a self-loop that was added to each vertex."""

    def leaf(each: Node) -> Tensor:
        if isinstance(each, End):
            return each.rows
        if isinstance(each, Number):
            return session().x.new_full((session().rows,), each.value, dtype=each.meta.dtype)
        if isinstance(each, Filled):
            return each.loops
        if isinstance(each, StoredFeatures):
            raise refusal(
                "edge_attr of stored self-loops that forward removes, or of added ones without a fill_value",
                "remove self-loops from data.edge_index before, and give fill_value to add_self_loops",
            )
        raise refusal(
            f"{type(each).__name__} on self-loops that forward adds",
            "give fill_value to add_self_loops, or add them to data before",
        )

    found: Tensor = NodeValues(leaf, session().rows).of(expanded(node))
    return found


def on_vertices(value: Any) -> Any:
    """A factor of one end alone, computed for each vertex instead of each edge."""

    def leaf(each: Node) -> Tensor:
        if isinstance(each, Number):
            return session().x.new_full((session().rows,), each.value, dtype=each.meta.dtype)
        assert isinstance(each, End)
        return each.rows

    return NodeValues(leaf, session().rows).of(value)


def expanded(node: Node) -> Node:
    """The tree with normalised weights written out: a factor of each end, a stored weight, and what a self-loop weighs."""

    def change(each: Node) -> Node | None:
        if not isinstance(each, GcnWeight):
            return None
        gather = gcn_gather(each)
        factor = session().constant(GcnFactor(of=gather))
        edges = lifted(factor, "source").node
        if each.weighted:
            edges = EdgeCall(each.meta, torch.mul, (edges, StoredWeight(each.meta)), {})
        edges = EdgeCall(each.meta, torch.mul, (edges, lifted(factor, "target").node), {})
        if each.loops is None:
            return edges
        return Filled(each.meta, edges, session().constant(GcnLoop(of=gather)) * factor * factor)

    return replaced(node, change)


def on_stored(node: Node) -> Node:
    return replaced(node, lambda each: on_stored(each.edges) if isinstance(each, Filled) else None)


def gcn_gather(weight: GcnWeight) -> GcnSum:
    if weight.loops is None:
        return GcnSum(weighted=weight.weighted, self_loops=False)
    return GcnSum(weighted=weight.weighted, loop_weight=weight.loops)


def gather_rows(gather: Gather, rows: Tensor | None, node: Node) -> Tensor:
    """A gather of rows of any shape; of ones, if there are none, in a shape that fits those of `node`."""
    if rows is None:
        return session().constant(gather).reshape(-1, *[1] * len(node.shape))
    return unflat_rows(session().gather(gather, flat_rows(rows)), rows)


def flat_rows(rows: Tensor) -> Tensor:
    return rows if rows.ndim == 2 else rows[:, None] if rows.ndim == 1 else rows.flatten(1)


def unflat_rows(flat: Tensor, like: Tensor) -> Tensor:
    if like.ndim == 2:
        return flat
    return flat[:, 0] if like.ndim == 1 else flat.unflatten(1, [int(size) for size in like.shape[1:]])


def aligned(numbers: Tensor, like: Tensor) -> Tensor:
    """[rows] in a shape that multiplies `like` row by row."""
    return numbers.reshape(-1, *[1] * (like.ndim - 1))


def in_shape_of(rows: Tensor, node: Node) -> Tensor:
    """`rows` in the shape of the values that were summed."""
    wanted = node.shape
    if tuple(int(size) for size in rows.shape[1:]) == wanted:
        return rows
    return rows.expand(-1, *wanted)
