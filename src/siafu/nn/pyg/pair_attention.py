"""Attention whose logit is a function of both ends, found in an expression: GATv2's sum, and Transformer's product.

softmax(⟨att, leaky_relu(x_j + b_i [+ e_ij])⟩) · x_j                  additive
softmax(⟨q_i, k_j [+ e_ij]⟩ · factor) · (v_j [+ e_ij])                product, e_ij = edge_attr_ij Wᵀ
"""

from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from siafu.nn.gathers.pair_softmax import PairSoftmax
from siafu.nn.pyg.expression import EdgeCall, EdgeSoftmax, End, Filled, Node, StoredFeatures
from siafu.nn.pyg.on_vertices import flat_rows, on_vertices, unflat_rows
from siafu.nn.pyg.session import session
from siafu.nn.pyg.standing_in.values import EdgeToken
from siafu.nn.pyg.terms import SHAPES, sides
from siafu.nn.recording import recorder


@dataclass(frozen=True, eq=False, slots=True)
class _Term:
    """e_ij. weight: W; loops: features of the self-loops that were added, None: none were"""

    weight: Tensor
    loops: Tensor | None


@dataclass(frozen=True, eq=False, slots=True)
class _Sum:
    """A sum on edges, taken apart: nodes of one end each, and what features add."""

    source: list[Node]
    target: list[Node]
    term: _Term | None


def pair_attention(
    found: EdgeSoftmax, weight: Node, rows: Node, node: Node, token: EdgeToken
) -> Tensor | None:
    """Σ `found` · `rows` as one gather; None: it is of another form.

    weight: `found` in the shape in which `rows` are multiplied by it; node: their product
    """
    if not (token.one_loop_each or token.stored_only):
        return None
    heads = found.shape or (1,)
    by_head = found.shape + (1,) * (len(node.shape) - len(found.shape)) == weight.shape
    if len(heads) != 1 or not by_head or rows.shape != node.shape or len(node.shape) > 2:
        return None
    if len(node.shape) != 2 and heads != (1,):
        return None
    logits = found.logits
    call = _Call(heads[0], found.dropout, token)
    return _additive(logits, rows, call) if _is_sum_of_products(logits) else _product(logits, rows, call)


@dataclass(frozen=True, eq=False, slots=True)
class _Call:
    heads: int
    dropout: float
    token: EdgeToken

    def gather(self, form: Any, slope: float, rows: list[Tensor], term: _Term | None, *att: Tensor) -> Tensor:
        gather = PairSoftmax(
            form=form,
            heads=self.heads,
            slope=slope,
            self_loops=self.token.one_loop_each,
            features=0 if term is None else int(term.weight.shape[1]),
        )
        sent = [flat_rows(each) for each in rows]
        parameters = att
        if term is not None:
            parameters = (*att, term.weight)
            if gather.self_loops:
                assert term.loops is not None
                sent.append(term.loops)
        out = session().gather(gather, *sent, dropout=self.dropout, parameters=parameters)
        return unflat_rows(out, rows[0])


def _additive(logits: Node, rows: Node, call: _Call) -> Tensor | None:
    inner, att = _summed_product(logits)
    if not isinstance(att, Tensor):
        inner, att = att, inner
    if not (isinstance(att, Tensor) and isinstance(inner, EdgeCall) and inner.function is F.leaky_relu):
        return None
    if not _is_parameter(att) or att.numel() != rows.meta[0].numel():
        return None
    given = (*inner.arguments[1:2], *(v for k, v in inner.options.items() if k == "negative_slope"))
    slope = float(given[0]) if given else 0.01
    parts = _apart(inner.arguments[0])
    if (
        parts is None
        or not 0 <= slope <= 1
        or not _is_same(parts.source, rows)
        or not _fits(parts.term, call)
    ):
        return None
    source = on_vertices(rows)
    target = _total(parts.target, source)
    return call.gather("additive", slope, [source, target], parts.term, att)


def _product(logits: Node, rows: Node, call: _Call) -> Tensor | None:
    logits, factor = _unscaled(logits)
    one, other = _summed_product(logits)
    if not (isinstance(one, Node) and isinstance(other, Node)):
        return None
    query, keys = (one, other) if sides(one) == {"target"} else (other, one)
    if sides(query) != {"target"} or query.shape != rows.shape:
        return None
    key, value = _apart(keys), _apart(rows)
    if key is None or value is None or key.target or value.target or not key.source or not value.source:
        return None
    if not _fits(key.term, call) or not _is_same_term(key.term, value.term):
        return None
    sent = [_total(key.source, None), _total(value.source, None), on_vertices(query) * factor]
    return call.gather("product", 1.0, sent, key.term)


def _is_sum_of_products(logits: Node) -> bool:
    one, other = _summed_product(logits)
    return isinstance(one, Tensor) or isinstance(other, Tensor)


def _summed_product(node: Node) -> tuple[Any, Any]:
    """The factors of a product that is summed over its last dimension; None twice: it is none."""
    none = None, None
    if not isinstance(node, EdgeCall) or node.name != "sum" or not isinstance(node.arguments[0], EdgeCall):
        return none
    inner, given = (
        node.arguments[0],
        node.options | dict(zip(("dim", "keepdim"), node.arguments[1:], strict=False)),
    )
    last = (-1, len(inner.meta.shape) - 1)
    dim = given.get("dim")
    dim = dim[0] if isinstance(dim, (tuple, list)) and len(dim) == 1 else dim
    if dim not in last or given.get("keepdim", False) or inner.name not in ("mul", "rmul") or inner.options:
        return none
    return inner.arguments[0], inner.arguments[1]


def _unscaled(node: Node) -> tuple[Node, float]:
    """A value without the number that it is multiplied by or divided by, and that number."""
    if isinstance(node, EdgeCall) and not node.options and len(node.arguments) == 2:
        one, other = node.arguments
        if node.name in ("mul", "rmul", "div", "truediv") and isinstance(other, (int, float)):
            return one, (1 / other if node.name in ("div", "truediv") else float(other))
    return node, 1.0


def _apart(node: Any) -> _Sum | None:
    """A sum of values of the source alone, of the target alone, and of mapped features."""
    found = _Sum([], [], None)
    terms: list[_Term] = []
    waiting = [node]
    while waiting:
        each = waiting.pop(0)
        if not isinstance(each, Node) or each.shape != node.shape:
            return None
        ends = sides(each)
        if ends == {"source"}:
            found.source.append(each)
        elif ends == {"target"}:
            found.target.append(each)
        elif isinstance(each, EdgeCall) and each.name in ("add", "radd") and not each.options:
            waiting = [*each.arguments, *waiting]
        else:
            term = _mapped_features(each)
            if term is None:
                return None
            terms.append(term)
    if len(terms) > 1:
        return None
    return _Sum(found.source, found.target, terms[0] if terms else None)


def _mapped_features(node: Any) -> _Term | None:
    """edge_attr Wᵀ in any shape."""
    while isinstance(node, EdgeCall) and node.name in SHAPES:
        node = node.arguments[0]
    if not isinstance(node, EdgeCall) or node.function is not F.linear:
        return None
    given = dict(zip(("input", "weight", "bias"), node.arguments, strict=False)) | node.options
    inner, weight = given["input"], given["weight"]
    if given.get("bias") is not None or not _is_parameter(weight):
        return None
    if isinstance(inner, Filled) and isinstance(inner.edges, StoredFeatures):
        if id(inner.loops) not in session().loop_features:
            return None
        return _Term(weight, inner.loops)
    return _Term(weight, None) if isinstance(inner, StoredFeatures) else None


def _is_parameter(tensor: Any) -> bool:
    who = recorder()
    return isinstance(tensor, Tensor) and (who is None or who.parameter(tensor) is not None)


def _fits(term: _Term | None, call: _Call) -> bool:
    """Whether self-loops have features if there are any."""
    return term is None or (term.loops is not None) == call.token.one_loop_each


def _is_same(nodes: list[Node], rows: Node) -> bool:
    if len(nodes) != 1:
        return False
    one, other = nodes[0], rows
    return one is other or (isinstance(one, End) and isinstance(other, End) and one.rows is other.rows)


def _is_same_term(one: _Term | None, other: _Term | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.weight is other.weight and one.loops is other.loops


def _total(nodes: list[Node], like: Tensor | None) -> Tensor:
    if not nodes:
        assert like is not None
        return torch.zeros_like(like)
    found: Tensor = reduce(torch.add, [on_vertices(each) for each in nodes])
    return found
