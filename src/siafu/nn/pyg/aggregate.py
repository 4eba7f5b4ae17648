"""Aggregation: from an expression and a reduction to gathers.

x_j                                   a kernel: Sum, Mean or Max
weight · x_j, and sums of products    Sum or GcnSum, with factors of vertices before and after
softmax(leaky_relu(a_j + b_i)) · x_j  the attention kernel
other softmaxes of both ends          `pair_attention`: GATv2's and Transformer's
max of f(s_j + t_i), f rising         Max of s_j, and f on vertices: `extremes`
anything else                         an edge program, without what one end says alone: `hoist`
"""

from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from siafu.nn.gathers.gather import Max, Mean, Softmax, Sum
from siafu.nn.pyg.edge_program import gathered
from siafu.nn.pyg.edge_sums import edges_sum
from siafu.nn.pyg.expression import (
    EdgeCall,
    EdgeSoftmax,
    End,
    GcnWeight,
    Node,
    Side,
    StoredFeatures,
    replaced,
    turned,
    walk,
)
from siafu.nn.pyg.extremes import greatest
from siafu.nn.pyg.factors import OutWeight, StoredLoops
from siafu.nn.pyg.hoist import hoisted
from siafu.nn.pyg.on_vertices import (
    aligned,
    at_loops,
    expanded,
    flat_rows,
    gather_rows,
    gcn_gather,
    in_shape_of,
    on_stored,
    on_vertices,
    unflat_rows,
)
from siafu.nn.pyg.pair_attention import pair_attention
from siafu.nn.pyg.session import refusal, session
from siafu.nn.pyg.standing_in.token_functions import refuse_turned
from siafu.nn.pyg.standing_in.values import EdgeToken, EdgeValue, lifted
from siafu.nn.pyg.terms import SHAPES, Term, pushed, sides, terms_of

_FAR_BELOW = 1e30
_REDUCTIONS = {"add": "sum", "amax": "max", "amin": "min"}


def aggregate(node: Node, how: str, token: EdgeToken) -> Tensor:
    """[rows, …]: the values of each vertex's edges, reduced; `token` says which edges these are, and at which end."""
    how = _REDUCTIONS.get(how, how)
    if node.axis:
        return _stacked_sum(node, how)
    if token.end == "source":
        return _by_source(node, how, token)
    if any(isinstance(each, EdgeSoftmax) and each.end != "target" for each in walk(node)):
        raise refusal("a softmax over out-edges in a sum over in-edges", "normalise over edge_index[1]")
    if isinstance(node, StoredFeatures) and how in ("sum", "mean") and not token.added:
        return session().features_of_edges("mean" if how == "mean" else "sum", removed=token.removed)
    if how == "min":
        return -aggregate(EdgeCall(node.meta, torch.neg, (node,), {}), "max", token)
    if how == "mean":
        return _mean(node, token)
    if how == "sum":
        return _sum(node, token)
    if how == "max":
        return _max(node, token)
    raise refusal(f"aggregation {how!r}", "use sum, mean, max, min, var or std")


def softmax(logits: Node, dropout: float = 0.0, end: Side = "target") -> EdgeValue:
    return EdgeValue(EdgeSoftmax(logits.meta, logits, dropout, end))


def count(token: EdgeToken) -> Tensor:
    """[rows]: number of edges into each vertex."""
    found = session().constant(Sum(weighted=False))
    if token.removed and session().graph.num_self_loops:
        found = found - session().constant(StoredLoops(weighted=False))
    return found + token.added if token.added else found


# Sums.


def _sum(node: Node, token: EdgeToken) -> Tensor:
    attended = _attention(node, token)
    attended = _pair_attention(node, token) if attended is None else attended
    if attended is not None:
        return attended
    if any(isinstance(each, EdgeSoftmax) for each in walk(node)):
        return _of_softmax(node, token)
    terms = terms_of(node)
    normal = [isinstance(term.weight, GcnWeight) for term in terms or ()]
    if terms is not None and any(normal) and all(normal):
        return reduce(torch.add, (_gcn_term(term, node) for term in terms))
    node = expanded(node)
    stored = hoisted(on_stored(node))
    terms = terms_of(stored)
    total = edges_sum(stored, token) if terms is None else _terms_sum(terms, stored, token)
    return total + at_loops(node) if token.added else total


def _terms_sum(terms: list[Term], node: Node, token: EdgeToken) -> Tensor:
    without_loops = token.removed and session().graph.num_self_loops > 0

    def of(term: Term) -> Tensor:
        weighted = term.weight is not None
        source, target = _product(term.of_side("source")), _signed(term)
        total = gather_rows(Sum(weighted=weighted), source, node)
        if without_loops:
            loops = aligned(session().constant(StoredLoops(weighted=weighted)), total)
            total = total - (loops if source is None else loops * source)
        return in_shape_of(total if target is None else total * target, node)

    return reduce(torch.add, map(of, terms))


def _gcn_term(term: Term, node: Node) -> Tensor:
    weight = term.weight
    assert isinstance(weight, GcnWeight)
    target = _signed(term)
    total = gather_rows(gcn_gather(weight), _product(term.of_side("source")), node)
    return in_shape_of(total if target is None else total * target, node)


def _signed(term: Term) -> Any:
    """The factors that are applied after the gather; None: there are none."""
    found = _product(term.of_side("target"))
    if term.sign > 0:
        return found
    return -1.0 if found is None else -found


def _product(factors: list[Any]) -> Any:
    values = [on_vertices(each) for each in factors]
    return reduce(torch.mul, values) if values else None


def _by_source(node: Node, how: str, token: EdgeToken) -> Tensor:
    """A reduction over out-edges: a sum of weights alone, which the graph says, or of anything where each edge stands both ways."""
    terms = terms_of(on_stored(node))
    plain = terms is not None and len(terms) == 1 and sides(node) <= {"weight", "Filled"}
    if how != "sum" or not plain or terms is None or isinstance(terms[0].weight, GcnWeight):
        refuse_turned(f"aggregation {how!r} over a vertex's out-edges")
        return aggregate(turned(node), how, token.row("target"))
    weighted = terms[0].weight is not None
    total = session().constant(OutWeight(weighted=weighted))
    if token.removed and session().graph.num_self_loops:
        total = total - session().constant(StoredLoops(weighted=weighted))
    scale = _signed(terms[0])
    total = total if scale is None else total * scale
    return total + at_loops(node) if token.added else total


def _stacked_sum(node: Node, how: str) -> Tensor:
    """A sum of rows that stand in stacks, [stacks, edges, …]: normalised weights times the sources' rows."""
    terms = terms_of(node)
    term = terms[0] if terms is not None and len(terms) == 1 else None
    if how != "sum" or term is None or not isinstance(term.weight, GcnWeight) or _signed(term) is not None:
        raise refusal("an aggregation of stacks of rows", "let vertices come first, as in [vertices, …]")
    source = _product(term.of_side("source")).movedim(node.axis, 0)
    return unflat_rows(session().gather(gcn_gather(term.weight), flat_rows(source)), source).movedim(
        0, node.axis
    )


# Means and maxima.


def _mean(node: Node, token: EdgeToken) -> Tensor:
    if token.stored_only and sides(node) == {"source"}:
        return gather_rows(Mean(), on_vertices(node), node)
    total = _sum(node, token)
    return total / aligned(count(token).clamp(min=1), total)


def _max(node: Node, token: EdgeToken, *, exact: bool = True) -> Tensor:
    """The greatest value; if not `exact`, one that is no less."""
    if exact and token.removed and not token.added and session().graph.num_self_loops:
        raise refusal(
            "a maximum over edges without the stored self-loops", "remove them from data.edge_index before"
        )
    node = _staged(expanded(node), token)
    stored = on_stored(node)
    stored = hoisted(stored)
    if sides(stored) == {"source"}:
        found = gather_rows(Max(), on_vertices(stored), stored)
    else:
        reached = greatest(stored)
        found = gathered(stored, Max()) if reached is None else reached
    if not token.added:
        return found
    # A self-loop's value is the same whether it was stored or added.
    none = 1 - session().constant(Sum(weighted=False)).clamp(max=1)
    return torch.maximum(found - aligned(none * _FAR_BELOW, found), at_loops(node))


# Softmax.


def _attention(node: Node, token: EdgeToken) -> Tensor | None:
    """softmax(leaky_relu(a_j + b_i)) · x_j as one gather; None: `node` is something else."""
    if not (token.one_loop_each or token.stored_only):
        return None
    for weight, rows in _factor_pairs(node):
        found = _softmax_in(weight)
        if found is None or sides(rows) != {"source"}:
            continue
        logits = _logits(found.logits)
        heads = found.shape or (1,)
        by_head = found.shape + (1,) * (len(node.shape) - len(found.shape)) == weight.shape
        if logits is None or len(heads) != 1 or not by_head or rows.shape != node.shape:
            continue
        if len(node.shape) != 2 and heads != (1,):
            continue
        source, target, slope = logits
        gather = Softmax(heads=heads[0], slope=slope, self_loops=token.one_loop_each)
        value = on_vertices(rows)
        out = session().gather(
            gather, flat_rows(value), flat_rows(source), flat_rows(target), dropout=found.dropout
        )
        return unflat_rows(out, value)
    return None


def _pair_attention(node: Node, token: EdgeToken) -> Tensor | None:
    """Softmax of what both ends say together, as one gather; None: `node` is something else."""
    for weight, rows in _factor_pairs(node):
        found = _softmax_in(weight)
        attended = None if found is None else pair_attention(found, weight, rows, node, token)
        if attended is not None:
            return attended
    return None


def _factor_pairs(node: Node) -> list[tuple[Node, Node]]:
    node = pushed(node)
    if not isinstance(node, EdgeCall) or node.name not in ("mul", "rmul"):
        return []
    one, other = node.arguments
    if not (isinstance(one, Node) and isinstance(other, Node)):
        return []
    return [(one, other), (other, one)]


def _softmax_in(node: Node) -> EdgeSoftmax | None:
    """The softmax that a node is, with dimensions of size 1 added."""
    inner: Any = node
    while isinstance(inner, EdgeCall) and inner.name in SHAPES:
        inner = inner.arguments[0]
    return inner if isinstance(inner, EdgeSoftmax) else None


def _logits(node: Node) -> tuple[Tensor, Tensor, float] | None:
    """A source's and a target's part, and the slope of the leaky ReLU over their sum."""
    slope = 1.0
    if isinstance(node, EdgeCall) and node.function is F.leaky_relu:
        given = (
            *node.arguments[1:2],
            *(node.options.get(key) for key in ("negative_slope",) if key in node.options),
        )
        slope, node = float(given[0]) if given else 0.01, node.arguments[0]
    terms = terms_of(node)
    if terms is None or not 0 <= slope <= 1 or any(term.weight is not None for term in terms):
        return None
    if any(term.of_side("source") and term.of_side("target") for term in terms):
        return None
    parts: dict[str, list[Tensor]] = {"source": [], "target": []}
    for term in terms:
        side = "source" if term.of_side("source") else "target"
        value = _product(list(term.factors))
        if not isinstance(value, Tensor) or value.ndim != len(node.shape) + 1:
            return None
        parts[side].append(in_shape_of(value if term.sign > 0 else -value, node))
    if not parts["source"] and not parts["target"]:
        return None
    some = (parts["source"] + parts["target"])[0]
    source, target = (
        reduce(torch.add, found) if found else torch.zeros_like(some) for found in parts.values()
    )
    return source, target, slope


def _of_softmax(node: Node, token: EdgeToken) -> Tensor:
    """Σ softmax · value: sums of exp · value and of exp, by one gather, and their quotient."""
    for weight, rows in _factor_pairs(node):
        found = _softmax_in(weight)
        if found is None or any(isinstance(each, EdgeSoftmax) for each in walk(rows)):
            continue
        powers = _powers(found, token)
        shaped = _substituted(weight, found, powers)
        message = EdgeCall(node.meta, torch.mul, (shaped, rows), {})
        totals = _sums_side_by_side([message, powers], token)
        # In the shape in which the weights were multiplied.
        below = End(found.meta, totals[1] + 1e-16, "target")
        shaped = _substituted(weight, found, below)
        quotient: Tensor = totals[0] / on_vertices(shaped)
        return quotient
    return _sum(_staged(node, token), token)


def _substituted(node: Node, old: Node, new: Node) -> Node:
    return replaced(node, lambda each: new if each is old else None)


def _powers(found: EdgeSoftmax, token: EdgeToken) -> Node:
    if found.dropout:
        raise refusal(
            "dropout of attention weights whose logits are no sum of a source's and a target's number",
            "set its dropout to 0, and drop rows before or after it",
        )
    # Whatever is subtracted from all logits of a vertex makes no difference, so it has no gradient.
    logits = expanded(found.logits)
    top = lifted(_max(logits, token, exact=False).detach(), "target").node
    return EdgeCall(found.meta, torch.exp, (EdgeCall(found.meta, torch.sub, (logits, top), {}),), {})


def _staged(node: Node, token: EdgeToken) -> Node:
    """The tree with every softmax as a quotient of exp and of its sum, which is gathered before."""

    def change(each: Node) -> Node | None:
        if not isinstance(each, EdgeSoftmax):
            return None
        powers = _powers(EdgeSoftmax(each.meta, _staged(each.logits, token), each.dropout), token)
        total = lifted(_sum(powers, token) + 1e-16, "target").node
        return EdgeCall(each.meta, torch.div, (powers, total), {})

    return replaced(node, change)


def _sums_side_by_side(nodes: list[Node], token: EdgeToken) -> list[Tensor]:
    """Sums of several values by one gather."""
    whole = [expanded(each) for each in nodes]
    stored = [on_stored(each) for each in whole]
    totals = _split_sum(stored, token)
    if not token.added:
        return totals
    return [total + at_loops(each) for total, each in zip(totals, whole, strict=True)]


def _split_sum(nodes: list[Node], token: EdgeToken) -> list[Tensor]:
    joined = EdgeValue.__torch_function__(torch.cat, (), ([_columns(EdgeValue(each)) for each in nodes], 1))
    total = edges_sum(joined.node, token)
    widths = [_columns(EdgeValue(each)).shape[1] for each in nodes]
    return [part.reshape(-1, *each.shape) for part, each in zip(total.split(widths, 1), nodes, strict=True)]


def _columns(value: EdgeValue) -> Any:
    return value if value.ndim == 2 else value.unsqueeze(-1) if value.ndim == 1 else value.flatten(1)
