"""Terms: a value of edges as a sum of products of what its source, its target and its weight say alone.

Such a sum needs nothing on edges: each product is a gather of rows, with factors before and after it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from siafu.nn.pyg.expression import EdgeCall, End, GcnWeight, Node, StoredWeight, leaves, walk

SHAPES = frozenset({"view", "reshape", "unsqueeze", "squeeze", "expand", "expand_as", "flatten", "unflatten"})
_AT_MOST = 8  # terms: a product of long sums is better computed on edges


@dataclass(frozen=True, eq=False, slots=True)
class Term:
    """sign · Π factors: numbers, tensors that are no rows, nodes of one end alone, and a weight at most."""

    factors: tuple[Any, ...]
    sign: int = 1

    def of_side(self, side: str) -> list[Any]:
        """The factors that belong to an end; what belongs to none goes with the target's."""
        return [each for each in self.factors if _side(each) == side]

    @property
    def weight(self) -> StoredWeight | GcnWeight | None:
        found = [weight for each in self.factors if (weight := weight_of(each)) is not None]
        return found[0] if found else None


def terms_of(node: Node) -> list[Term] | None:
    """`node` as a sum of terms; None: it is none."""
    found = _terms(node)
    if found is None or len(found) > _AT_MOST:
        return None
    for term in found:
        if sum(weight_of(each) is not None for each in term.factors) > 1:
            return None
    return found


def sides(value: Any) -> set[str]:
    """Ends and values of edges that a value depends on: source, target, weight, or others."""
    if not isinstance(value, Node):
        return set()
    found: set[str] = set()
    for each in walk(value):
        if isinstance(each, End):
            found.add(each.side)
        elif isinstance(each, (StoredWeight, GcnWeight)):
            found.add("weight")
        elif isinstance(each, Node) and not isinstance(each, EdgeCall):
            found.add(type(each).__name__)
    return found - {"Number"}


def weight_of(value: Any) -> StoredWeight | GcnWeight | None:
    """The weight that a value is, in whatever shape."""
    while isinstance(value, EdgeCall) and value.name in SHAPES:
        value = value.arguments[0]
    return value if isinstance(value, (StoredWeight, GcnWeight)) else None


def pushed(node: Node) -> Node:
    """A change of shape moved below the product that it is of, where the factors have one shape."""
    if not (isinstance(node, EdgeCall) and node.name in SHAPES and isinstance(node.arguments[0], EdgeCall)):
        return node
    inner = pushed(node.arguments[0])
    if not (isinstance(inner, EdgeCall) and inner.name in ("mul", "rmul", "neg", "div", "truediv")):
        return node
    given = [each for each in leaves((inner.arguments, inner.options)) if isinstance(each, (Node, Tensor))]
    if any(not isinstance(each, Node) and each.ndim > 0 for each in given):
        return node
    if any(isinstance(each, Node) and each.shape != inner.shape for each in given):
        return node

    def shaped(each: Any) -> Any:
        if not isinstance(each, Node):
            return each
        return EdgeCall(node.meta, node.function, (each, *node.arguments[1:]), node.options)

    return EdgeCall(node.meta, inner.function, tuple(map(shaped, inner.arguments)), inner.options)


def _side(value: Any) -> str:
    if weight_of(value) is not None:
        return "weight"
    return "source" if sides(value) == {"source"} else "target"


def _terms(value: Any) -> list[Term] | None:
    if len(sides(value) & {"source", "target", "weight"}) == 0 and sides(value):
        return None
    if sides(value) in (set(), {"source"}, {"target"}) or weight_of(value) is not None:
        return [Term((value,))]
    node = pushed(value)
    if not isinstance(node, EdgeCall) or node.options or node.part is not None:
        return None
    how = _SUMS.get(node.name)
    return None if how is None else how(*node.arguments)


def _added(one: Any, other: Any) -> list[Term] | None:
    left, right = _terms(one), _terms(other)
    return None if left is None or right is None else left + right


def _less(one: Any, other: Any) -> list[Term] | None:
    negative = _negated(other)
    left = _terms(one)
    return None if left is None or negative is None else left + negative


def _negated(one: Any) -> list[Term] | None:
    found = _terms(one)
    return None if found is None else [Term(each.factors, -each.sign) for each in found]


def _times(one: Any, other: Any) -> list[Term] | None:
    left, right = _terms(one), _terms(other)
    if left is None or right is None:
        return None
    return [Term(a.factors + b.factors, a.sign * b.sign) for a, b in product(left, right)]


def _over(one: Any, other: Any) -> list[Term] | None:
    if not isinstance(other, (Node, Tensor)):
        return _times(one, 1.0 / other)
    if isinstance(other, Tensor):
        return _times(one, 1.0 / other)
    if len(sides(other)) > 1 or weight_of(other) is not None:
        return None
    return _times(one, EdgeCall(other.meta, torch.reciprocal, (other,), {}))


_SUMS: dict[str, Callable[..., list[Term] | None]] = {
    "add": _added,
    "radd": _added,
    "sub": _less,
    "rsub": lambda one, other: _less(other, one),
    "neg": _negated,
    "mul": _times,
    "rmul": _times,
    "div": _over,
    "truediv": _over,
    "true_divide": _over,
}
