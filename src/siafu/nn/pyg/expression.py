"""Expressions: values of edges that are not computed, as trees that an aggregation can look at."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

MANY = 1_000_003
"""Stands for the number of edges in every shape: a prime that no model has for a width."""

Side = Literal["source", "target"]


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """A value for each edge.

    meta: its shape and type, as a tensor without memory that has one dimension of `MANY`: the first, where not said
    """

    meta: Tensor

    @property
    def axis(self) -> int:
        """The dimension that counts edges."""
        return list(self.meta.shape).index(MANY)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one edge's value."""
        return tuple(self.meta.shape[1:])


@dataclass(frozen=True, eq=False, slots=True)
class End(Node):
    """The rows of an edge's source or target."""

    rows: Tensor
    side: Side


@dataclass(frozen=True, eq=False, slots=True)
class StoredWeight(Node):
    """The graph's own edge weights."""


@dataclass(frozen=True, eq=False, slots=True)
class StoredFeatures(Node):
    """The graph's own `edge_attr`."""


@dataclass(frozen=True, eq=False, slots=True)
class StoredType(Node):
    """The graph's own `edge_type`."""


@dataclass(frozen=True, eq=False, slots=True)
class GcnWeight(Node):
    """PyG's `gcn_norm`. weighted: of stored weights; loops: weight of the self-loop a vertex gets, None: none is added"""

    weighted: bool
    loops: float | None


@dataclass(frozen=True, eq=False, slots=True)
class EdgeSoftmax(Node):
    """The softmax of `logits` over the edges of each target, or of each source. dropout: share of it put to zero"""

    logits: Node
    dropout: float = 0.0
    end: Side = "target"


@dataclass(frozen=True, eq=False, slots=True)
class Number(Node):
    """The same number for all edges."""

    value: float


@dataclass(frozen=True, eq=False, slots=True)
class Filled(Node):
    """`edges` on the stored edges, `loops` on those that were added: rows of vertices."""

    edges: Node
    loops: Tensor


@dataclass(frozen=True, eq=False, slots=True)
class IsLoop(Node):
    """Whether an edge is a self-loop; negated: whether it is none."""

    negated: bool


@dataclass(frozen=True, eq=False, slots=True)
class Never(Node):
    """False on every edge."""


@dataclass(frozen=True, eq=False, slots=True)
class EdgeCall(Node):
    """A function of values of edges, of weights and of numbers; part: which of its results, None: the only one."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    part: int | None = None

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", self.function)).strip("_")


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """`value` with every leaf of its tuples, lists and dictionaries changed."""
    if isinstance(value, torch.Size):
        return torch.Size(change(each) for each in value)
    if isinstance(value, (tuple, list)):
        return type(value)(mapped(change, each) for each in value)
    if isinstance(value, dict):
        return {key: mapped(change, each) for key, each in value.items()}
    return change(value)


def leaves(value: Any) -> Iterator[Any]:
    """Values inside tuples, lists and dictionaries."""
    if isinstance(value, (tuple, list)):
        for each in value:
            yield from leaves(each)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))
    else:
        yield value


def children(node: Node) -> Iterator[Any]:
    """Operands of a node: nodes, tensors and numbers."""
    if isinstance(node, EdgeCall):
        yield from leaves((node.arguments, node.options))
    elif isinstance(node, EdgeSoftmax):
        yield node.logits
    elif isinstance(node, Filled):
        yield node.edges


def walk(node: Node) -> Iterator[Any]:
    """A node and all below it, each once; tensors that it reads are among them."""
    seen: set[int] = set()
    waiting: list[Any] = [node]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or not isinstance(each, (Node, Tensor)):
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, Node):
            waiting += children(each)


def replaced(node: Node, change: Callable[[Node], Node | None], known: dict[int, Node] | None = None) -> Node:
    """The tree with the nodes that `change` gives something for replaced by that, from the top."""
    known = {} if known is None else known
    if id(node) in known:
        return known[id(node)]
    found = change(node)
    if found is None:
        found = _rebuilt(node, lambda each: replaced(each, change, known))
    known[id(node)] = found
    return found


def turned(node: Node) -> Node:
    """The value of the edge the other way: what was said of its source is said of its target."""
    other: dict[Side, Side] = {"source": "target", "target": "source"}

    def change(each: Node) -> Node | None:
        if isinstance(each, End):
            return End(each.meta, each.rows, other[each.side])
        if isinstance(each, EdgeSoftmax):
            return EdgeSoftmax(each.meta, turned(each.logits), each.dropout, other[each.end])
        return None

    return replaced(node, change)


def _rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    def of(value: Any) -> Any:
        return change(value) if isinstance(value, Node) else value

    if isinstance(node, EdgeCall):
        arguments, options = mapped(of, node.arguments), mapped(of, node.options)
        return EdgeCall(node.meta, node.function, arguments, options, node.part)
    if isinstance(node, EdgeSoftmax):
        return EdgeSoftmax(node.meta, change(node.logits), node.dropout, node.end)
    if isinstance(node, Filled):
        return Filled(node.meta, change(node.edges), node.loops)
    return node


@dataclass(eq=False)
class NodeValues:
    """Computes nodes, once each.

    leaf:   values of nodes that are no calls
    count:  how many rows there are
    tensor: what to take for a tensor that is no row, in a call; None: itself
    """

    leaf: Callable[[Node], Tensor]
    count: Any
    tensor: Callable[[Tensor, EdgeCall], Tensor] | None = None

    def __post_init__(self) -> None:
        self._known: dict[int, Any] = {}
        self._kept: list[Any] = []  # ids are of living objects only

    def of(self, value: Any) -> Any:
        """The value of a node; whatever else is given stands for itself."""
        if not isinstance(value, Node):
            return value
        if id(value) not in self._known:
            self._kept.append(value)
            self._known[id(value)] = self._call(value) if isinstance(value, EdgeCall) else self.leaf(value)
        return self._known[id(value)]

    def _call(self, node: EdgeCall) -> Any:
        # The parts of one call share their arguments, so what they have in common is computed once.
        key = id(node.arguments)
        if node.part is None or key not in self._known:
            self._kept.append(node.arguments)

            def given(value: Any) -> Any:
                if isinstance(value, Tensor) and self.tensor is not None:
                    return self.tensor(value, node)
                return self.count if type(value) is int and value == MANY else self.of(value)

            out = node.function(*mapped(given, node.arguments), **mapped(given, node.options))
            if node.part is None:
                return out
            self._known[key] = out
        return self._known[key][node.part]
