"""Maxima of messages that rise or fall with what their source says, and so are reached by its extremes.

max_j f(s_j + t_i) = f(max_j s_j + t_i)        f rises; EdgeConv's ReLU does
max_j f(s_j + t_i) = f(min_j s_j + t_i)        f falls

Nothing is computed on edges then: the gather compares rows of the sources. Equal maxima are equal before f, too, or lie where it is flat
and passes no gradient, so that gradients are those of the maximum of messages.
"""

from typing import Any

from torch import Tensor

from siafu.nn.gathers.gather import Max, Sum
from siafu.nn.pyg.expression import EdgeCall, End, Node, replaced
from siafu.nn.pyg.hoist import Ends, ends_of, rows_of
from siafu.nn.pyg.on_vertices import aligned, gather_rows, on_vertices
from siafu.nn.pyg.session import session
from siafu.nn.pyg.terms import sides

_RISING = frozenset(
    {
        *("relu", "relu6", "hardtanh", "leaky_relu", "elu", "selu", "celu"),
        *("tanh", "sigmoid", "logsigmoid", "hardsigmoid", "softplus", "softsign", "exp", "expm1"),
    }
)


def greatest(node: Node) -> Tensor | None:
    """[rows, …]: the greatest value over each vertex's stored edges, 0 where it has none; None: it must be computed on edges."""
    found = _base(node, 1.0)
    if found is None:
        return None
    base, ends, direction = found
    source = rows_of(ends.source)
    if tuple(int(size) for size in source.shape[1:]) != base.shape:
        return None
    best = gather_rows(Max(), source if direction > 0 else -source, base)
    best = best if direction > 0 else -best
    total = best + rows_of(ends.target) if ends.target else best
    reached = End(base.meta, total, "target")
    value: Tensor = on_vertices(replaced(node, lambda each: reached if each is base else None))
    return value * aligned(session().constant(Sum(weighted=False)).clamp(max=1), value)


def _base(node: Any, direction: float) -> tuple[Node, Ends, float] | None:
    """The sum of an end's terms each that `node` is a rising or falling function of, and which of both: 1 or -1."""
    if not isinstance(node, EdgeCall) or node.part is not None:
        return None
    ends = ends_of(node)
    if ends is not None:
        return (node, ends, direction) if ends.source else None
    if node.name in _RISING:
        return _base(node.arguments[0], direction) if _is_plain(node) else None
    if node.options:
        return None
    if node.name == "neg":
        return _base(node.arguments[0], -direction)
    if len(node.arguments) != 2:
        return None
    (inner, turned), fixed = _inner(node.name, *node.arguments)
    if (
        inner is None
        or not sides(fixed) <= {"target"}
        or (turned == 0 and not isinstance(fixed, (int, float)))
    ):
        return None
    return _base(inner, direction * (turned or (1.0 if fixed > 0 else -1.0)))


def _is_plain(call: EdgeCall) -> bool:
    """Whether a function's own numbers, such as a slope, leave it rising."""
    given = [*call.arguments[1:], *call.options.values()]
    return call.name == "hardtanh" or all(isinstance(each, (int, float)) and each >= 0 for each in given)


def _inner(name: str, one: Any, other: Any) -> tuple[tuple[Any, float], Any]:
    """The operand that a source speaks in with the direction in which the result follows it (0: that of the other's sign), and the other."""
    first = "source" in sides(one)
    if first == ("source" in sides(other)):
        return (None, 1.0), None
    inner, fixed = (one, other) if first else (other, one)
    if name in ("add", "radd"):
        return (inner, 1.0), fixed
    if name in ("sub", "rsub"):
        return (inner, 1.0 if first == (name == "sub") else -1.0), fixed
    if name in ("mul", "rmul") or (name in ("div", "truediv") and first):
        return (inner, 0.0), fixed
    return (None, 1.0), None
