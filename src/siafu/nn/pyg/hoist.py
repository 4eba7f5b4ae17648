"""Parts of an expression that each end of an edge says alone, moved from the edges to the vertices.

f(x_j)                       rows of the source: computed once a vertex
W [x_i, x_j - x_i] + b       (W₁ - W₂) x_i + b, rows of the target, and W₂ x_j, rows of the source: their sum stays

A product over the edges becomes two over the vertices, of which there are fewer; a linear map of several layers deep is taken apart from
the inside, up to the first function that is not linear.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from siafu.nn.pyg.expression import EdgeCall, End, Node, Side, replaced, walk
from siafu.nn.pyg.on_vertices import on_vertices
from siafu.nn.pyg.standing_in.values import lifted
from siafu.nn.pyg.terms import SHAPES, sides

_WIDER = 2  # how many times wider than what it is made of a row may be that is kept for a vertex


def hoisted(node: Node) -> Node:
    """`node` with what can be computed on vertices as rows of their ends."""
    return replaced(node, _moved)


@dataclass(frozen=True, eq=False, slots=True)
class Ends:
    """A value of edges as a sum: its source's terms and its target's, each with a factor; what no end says is the target's.

    mapped: whether a term has a product or a parameter in it, which an edge need not repeat
    """

    source: list[tuple[float, Any]]
    target: list[tuple[float, Any]]
    mapped: bool = False

    def plus(self, other: "Ends", factor: float = 1.0) -> "Ends":
        more = other.times(factor)
        return Ends(self.source + more.source, self.target + more.target, self.mapped or other.mapped)

    def times(self, factor: float) -> "Ends":
        source, target = (
            [(factor * each, what) for each, what in part] for part in (self.source, self.target)
        )
        return Ends(source, target, self.mapped)


def ends_of(value: Any) -> Ends | None:
    """`value` as a sum of terms of one end each; None: it is none."""
    which = sides(value)
    if which == {"source"}:
        return Ends([(1.0, value)], [], _has_product(value))
    if which <= {"target"}:
        return Ends([], [(1.0, value)], isinstance(value, Tensor) or _has_product(value))
    if not isinstance(value, EdgeCall) or value.part is not None or which != {"source", "target"}:
        return None
    if _is_map(value):
        return _mapped(value)
    if value.options:
        return None
    if value.name == "neg":
        inner = ends_of(value.arguments[0])
        return None if inner is None else inner.times(-1.0)
    if len(value.arguments) != 2:
        return None
    one, other = value.arguments
    if value.name in ("add", "radd", "sub", "rsub"):
        return _sum(one, other, value.name)
    return _scaled(one, other, value.name)


def rows_of(terms: list[tuple[float, Any]]) -> Tensor:
    """A sum of terms of one end, computed for each vertex."""
    total: Any = None
    for factor, what in sorted(terms, key=lambda term: not isinstance(term[1], Node)):  # rows first
        value = on_vertices(what)
        if total is None:
            total = value if factor == 1 else -value if factor == -1 else value * factor
        elif abs(factor) == 1:
            total = total + value if factor > 0 else total - value
        else:
            total = total + value * factor
    found: Tensor = total
    return found


def _sum(one: Any, other: Any, name: str) -> Ends | None:
    left, right = ends_of(one), ends_of(other)
    if left is None or right is None:
        return None
    if name == "rsub":
        left, right = right, left
    return left.plus(right, -1.0 if "sub" in name else 1.0)


def _scaled(one: Any, other: Any, name: str) -> Ends | None:
    """A product with a number, or a quotient by one."""
    if name in ("mul", "rmul") and isinstance(one, (int, float)):
        one, other = other, one
    if not isinstance(other, (int, float)) or name not in ("mul", "rmul", "div", "truediv"):
        return None
    found = ends_of(one)
    return None if found is None else found.times(1 / other if "div" in name else float(other))


def _mapped(call: EdgeCall) -> Ends | None:
    """A linear map of terms of one end each: a map of each end's rows, with the blocks of weights that meet one term added first."""
    inner, weight, bias = _map_of(call)
    blocks = _side_by_side(inner)
    maps: dict[Side, dict[Any, tuple[Any, Tensor]]] = {"source": {}, "target": {}}
    first = 0
    for block in blocks:
        found = ends_of(block)
        if found is None:
            return None
        width = int(block.meta.shape[-1])
        part = weight if len(blocks) == 1 else weight[:, first : first + width]
        first += width
        for side, terms in (("source", found.source), ("target", found.target)):
            for factor, what in terms:
                if not isinstance(what, Node) or what.shape != block.shape:
                    return None
                _add_map(maps[side], what, part, factor)  # type: ignore[index]
    if not maps["source"] or not maps["target"]:
        return None
    ends = {side: _map_sum(list(each.values())) for side, each in maps.items()}
    if bias is not None:
        ends["target"] = ends["target"] + bias
    source, target = lifted(ends["source"], "source").node, lifted(ends["target"], "target").node
    return Ends([(1.0, source)], [(1.0, target)], mapped=True)


def _map_sum(maps: list[tuple[Any, Tensor]]) -> Tensor:
    """A sum of linear maps, for each vertex."""
    return reduce(torch.add, [F.linear(on_vertices(what), part) for what, part in maps])


def _add_map(maps: dict[Any, tuple[Any, Tensor]], what: Node, part: Tensor, factor: float) -> None:
    key = id(what.rows) if isinstance(what, End) else id(what)
    if key not in maps:
        maps[key] = what, part if factor == 1 else part * factor
        return
    known = maps[key][1]
    maps[key] = what, known + part if factor == 1 else known - part if factor == -1 else known + part * factor


def _side_by_side(node: Node) -> list[Node]:
    """Values whose columns a value has, one after the other."""
    if not isinstance(node, EdgeCall) or node.name not in ("cat", "concat", "concatenate"):
        return [node]
    given = dict(zip(("tensors", "dim"), node.arguments, strict=False)) | node.options
    if given.get("dim", 0) not in (-1, node.meta.ndim - 1) or not all(
        isinstance(each, Node) for each in given["tensors"]
    ):
        return [node]
    return list(given["tensors"])


def _is_map(call: EdgeCall) -> bool:
    if call.function is F.linear:
        given = dict(zip(("input", "weight", "bias"), call.arguments, strict=False)) | call.options
        return isinstance(given["input"], Node) and not isinstance(given["weight"], Node)
    if call.name not in ("matmul", "mm") or len(call.arguments) != 2:
        return False
    one, other = call.arguments
    return isinstance(one, Node) and isinstance(other, Tensor) and other.ndim == 2


def _map_of(call: EdgeCall) -> tuple[Node, Tensor, Tensor | None]:
    """What is mapped, the weight as `F.linear` takes it, and the bias."""
    if call.function is F.linear:
        given = dict(zip(("input", "weight", "bias"), call.arguments, strict=False)) | call.options
        return given["input"], given["weight"], given.get("bias")
    one, other = call.arguments
    return one, other.t(), None


def _moved(node: Node) -> Node | None:
    """What stands for `node`; None: it stays."""
    if not isinstance(node, EdgeCall):
        return None
    which = sides(node)
    if which in ({"source"}, {"target"}):
        return lifted(on_vertices(node), next(iter(which))).node if _pays(node) else None  # type: ignore[arg-type]
    if which != {"source", "target"}:
        return None
    found = ends_of(node)
    if found is None or not found.mapped:
        return None
    source, target = (
        lifted(rows_of(found.source), "source").node,
        lifted(rows_of(found.target), "target").node,
    )
    return EdgeCall(node.meta, torch.add, (source, target), {})


def _pays(node: EdgeCall) -> bool:
    """Whether a value of one end does more than change its shape, and is not much wider than what it is made of.

    Rows of vertices travel as numbers, so that a condition stays where it is.
    """
    if not node.meta.dtype.is_floating_point:
        return False
    calls = [each for each in walk(node) if isinstance(each, EdgeCall)]
    if all(each.name in SHAPES for each in calls):
        return False
    read = sum(each.meta[0].numel() for each in walk(node) if isinstance(each, End))
    return node.meta[0].numel() <= _WIDER * read


def _has_product(value: Any) -> bool:
    return isinstance(value, Node) and any(
        isinstance(each, Tensor) or (isinstance(each, EdgeCall) and _is_map(each)) for each in walk(value)
    )
