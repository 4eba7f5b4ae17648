"""EdgeExpression: an expression that no kernel has, as the edge function of a gather."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from siafu.nn.gathers.edgewise import edge_columns, gather_messages
from siafu.nn.gathers.gather import Gather
from siafu.nn.layers.layer import Layer
from siafu.nn.pyg.expression import (
    EdgeCall,
    End,
    Node,
    NodeValues,
    Number,
    StoredFeatures,
    StoredType,
    StoredWeight,
    walk,
)
from siafu.nn.pyg.made_tensors import written_out
from siafu.nn.pyg.session import refusal, session
from siafu.nn.recording import recorder

_MOST_NUMBERS = 4096  # of a tensor that is neither rows nor a parameter: it travels along with each row


def gathered(node: Node, gather: Gather) -> Tensor:
    """[rows, …]: the values of each vertex's stored edges, computed a block of edges at a time."""
    node = written_out(node, lambda tensor: _parameter(tensor) is not None)
    packed = _Packing()
    parameters: list[tuple[Tensor, nn.Parameter]] = []
    for each in walk(node):
        if isinstance(each, End):
            packed.add(each.rows, each.rows)
        elif isinstance(each, Tensor):
            parameter = _parameter(each)
            if parameter is not None:
                parameters.append((each, parameter))
            else:
                packed.add(each, _as_rows(each))
        elif isinstance(each, Node) and type(each) not in _COMPUTED:
            raise refusal(
                f"{type(each).__name__} in a message", "write the message with x_i, x_j and edge_weight"
            )
    if not packed.spans:
        nothing = session().x.new_zeros((session().rows, 1))
        packed.add(nothing, nothing)
    columns = _edge_columns(node)
    layer = EdgeExpression(node, packed.spans, parameters, session().layer_name, columns)
    out = layer.run(packed.rows(), gather, [tensor for tensor, _ in parameters])
    return out if len(node.shape) == 1 else out.reshape(-1, *node.shape)


def _edge_columns(node: Node) -> int:
    """Columns of what edges have that an expression reads: features, or these with weight and type."""
    read = {type(each) for each in walk(node)}
    if read & {StoredWeight, StoredType}:
        return edge_columns(session().graph)
    return session().graph.num_edge_features if StoredFeatures in read else 0


def _parameter(tensor: Tensor) -> nn.Parameter | None:
    who = recorder()
    if who is not None:
        return who.parameter(tensor)
    return tensor if isinstance(tensor, nn.Parameter) else None


def _as_rows(tensor: Tensor) -> Tensor:
    """A tensor that the model made of its weights or that is a buffer: the same in every row."""
    if any(isinstance(size, torch.SymInt) for size in tensor.shape):
        raise refusal(
            "rows of vertices in `message`", "give them to `propagate`, and take them as x_i or x_j"
        )
    if tensor.numel() > _MOST_NUMBERS:
        raise refusal(
            f"a tensor of {tensor.numel()} numbers, made of parameters, in `message`",
            "make it a parameter of its own",
        )
    return tensor.reshape(1, -1).expand(session().rows, -1)


@dataclass(eq=False)
class _Packing:
    """Rows side by side: what an edge reads at its ends. spans: first and last column, and shape, by the tensors' ids"""

    def __post_init__(self) -> None:
        self.spans: dict[int, tuple[int, int, tuple[int, ...], bool]] = {}
        self._parts: list[Tensor] = []
        self._width = 0

    def add(self, tensor: Tensor, rows: Tensor) -> None:
        if id(tensor) in self.spans:
            return
        same = tensor is rows
        flat = rows[:, None] if rows.ndim == 1 else rows.flatten(1)
        first, self._width = self._width, self._width + int(flat.shape[1])
        shape = tuple(int(size) for size in (tensor.shape[1:] if same else tensor.shape))
        self.spans[id(tensor)] = first, self._width, shape, same
        self._parts.append(flat)

    def rows(self) -> Tensor:
        return self._parts[0] if len(self._parts) == 1 else torch.cat(self._parts, 1)


_COMPUTED = (EdgeCall, End, Number, StoredFeatures, StoredWeight, StoredType)


class EdgeExpression(Layer):
    """A layer whose `apply_edge` computes an expression.

    spans:      where each tensor's rows are in what an edge reads
    parameters: as the expression has them, and as the user's module does
    title:      the user's layer, for people
    features:   columns of what edges have that it reads; 0: none
    """

    def __init__(
        self,
        node: Node,
        spans: dict[int, tuple[int, int, tuple[int, ...], bool]],
        parameters: list[tuple[Tensor, nn.Parameter]],
        title: str,
        features: int = 0,
    ) -> None:
        super().__init__()
        self._node, self._spans, self.title, self._features = node, spans, title, features
        graph = session().graph
        own = graph.num_edge_features
        self._columns: dict[type[Node], Any] = {
            StoredFeatures: slice(0, own),
            StoredWeight: own,
            StoredType: own + (graph.edge_weight is not None),
        }
        self._places = {id(given): f"parameter{k}" for k, (given, _) in enumerate(parameters)}
        for k, (_, parameter) in enumerate(parameters):
            self.register_parameter(f"parameter{k}", parameter)
        self._given: dict[int, Tensor] | None = None

    def run(self, rows: Tensor, gather: Gather, parameters: list[Tensor]) -> Tensor:
        """Gather the values; while a model is recorded, its parameters are those that the recorder gave it."""
        who = recorder()
        if who is None:
            return self._gathered(rows, gather, list(self.parameters()))
        who.entered(self)
        self._given = {id(each): each for each in parameters}
        try:
            return self._gathered(rows, gather, parameters)
        finally:
            self._given = None

    def _gathered(self, rows: Tensor, gather: Gather, parameters: list[Tensor]) -> Tensor:
        graph = session().graph
        return gather_messages(graph, rows, self.apply_edge, parameters, gather, features=self._features)

    def apply_edge(self, source: Tensor, target: Tensor, features: Tensor | None = None) -> Tensor:
        def columns(tensor: Tensor, rows: Tensor) -> Tensor:
            first, last, shape, _ = self._spans[id(tensor)]
            found = rows[:, first:last]
            return found if len(shape) == 1 else found[:, 0] if not shape else found.unflatten(1, shape)

        def leaf(node: Node) -> Tensor:
            if isinstance(node, Number):
                return source.new_full((source.shape[0],), node.value)
            if isinstance(node, (StoredFeatures, StoredWeight, StoredType)):
                assert features is not None
                return features[:, self._columns[type(node)]]
            assert isinstance(node, End)
            return columns(node.rows, source if node.side == "source" else target)

        def tensor(value: Tensor, call: EdgeCall) -> Tensor:
            if self._given is not None and id(value) in self._given:
                return self._given[id(value)]
            if id(value) in self._places:
                found: Tensor = getattr(self, self._places[id(value)])
                return found
            return columns(value, source).reshape(-1, *_beside(value, call))

        out: Any = NodeValues(leaf, source.shape[0], tensor).of(self._node)
        flat: Tensor = out if out.ndim == 2 else out[:, None] if out.ndim == 1 else out.flatten(1)
        return flat


_ELEMENTWISE = frozenset(
    {"add", "radd", "sub", "rsub", "mul", "rmul", "div", "truediv", "pow", "maximum", "minimum"}
)


def _beside(value: Tensor, call: EdgeCall) -> tuple[int, ...]:
    """The shape, for one edge, in which a tensor that is no row fits the call's other arguments."""
    shape, dims = tuple(int(size) for size in value.shape), call.meta.ndim
    if call.name not in _ELEMENTWISE or (len(shape) == dims and shape[0] != 1):
        raise refusal(
            f"{call.name} in `message` with a tensor that is made of parameters",
            "make it a parameter of its own",
        )
    inner = shape[1:] if len(shape) == dims else shape
    return (1,) * (dims - 1 - len(inner)) + inner
