"""Calling a PyG model on a graph: its own `forward` with stand-ins for edges, and PyG's functions that know them."""

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn.calling import RunModel, forward_parameters
from siafu.nn.pyg.aggregate import softmax
from siafu.nn.pyg.expression import MANY, EdgeSoftmax, StoredFeatures, StoredType, StoredWeight, leaves
from siafu.nn.pyg.session import PygCall, entered, is_entered, refusal
from siafu.nn.pyg.standing_in import functions, layers, relations
from siafu.nn.pyg.standing_in.norms import one_graph
from siafu.nn.pyg.standing_in.value_functions import filled_with
from siafu.nn.pyg.standing_in.values import EdgeToken, EdgeValue, without_memory
from siafu.nn.recording import recorder


def call_pyg(model: nn.Module, graph: Graph, x: Tensor, run: RunModel) -> Any:
    """Result of `run` for the model's arguments: x, and stand-ins for its edges."""
    call = PygCall(graph, x, [model])
    with ExitStack() as stack:
        stack.enter_context(entered(call))
        stack.enter_context(_named_layers(call))
        stack.enter_context(_unchanged(model))
        stack.enter_context(_stand_ins(model))
        stack.enter_context(EdgeFunctions())
        try:
            out = run((), _arguments(model, graph, x))
        except (ValueError, TypeError, AssertionError, AttributeError, LookupError) as error:
            if isinstance(error, BadInput):
                raise
            if graph.x is None and "NoneType" in str(error):
                raise BadInput(
                    f"{call.layer_name}: the graph has no features, and the model's x is None: give it x, or learn rows with nn.Embedding"
                ) from error
            raise BadInput(
                f"{call.layer_name}: {' '.join(str(error).split()) or type(error).__name__}: "
                "the model's forward cannot be run with stand-ins for its edges"
            ) from error
    if isinstance(out, (tuple, list)):
        raise BadInput(
            f"{type(model).__name__}: forward gives {len(out)} values: give one tensor, a row for each vertex: "
            "the one that the loss reads (without return_attention_weights)"
        )
    return out


def _arguments(model: nn.Module, graph: Graph, x: Tensor) -> dict[str, Any]:
    """By name: rows, the token, weights if there are any; what has a default and is unknown keeps it."""
    name, wanted = type(model).__name__, forward_parameters(model)
    token, weight = EdgeToken(), None
    if graph.edge_weight is not None:
        weight = EdgeValue(StoredWeight(without_memory(MANY, dtype=x.dtype)))
    features = _features(graph, x)
    types_of_edges = None
    if graph.edge_type is not None:
        types_of_edges = EdgeValue(StoredType(without_memory(MANY, dtype=torch.int64)))
    known = {
        "x": x if x.shape[1] else None,
        "edge_index": token,
        "num_nodes": x.shape[0],
        "n_id": _numbers(x),
        "batch": None,
    }
    wanted, called = _in_our_words(wanted)
    if "edge_index" not in wanted:
        data = types.SimpleNamespace(
            **known,
            edge_weight=weight,
            edge_attr=features,
            edge_type=types_of_edges,
            num_features=x.shape[1],
            num_node_features=x.shape[1],
            num_edges=graph.num_edges,
        )
        return {next(iter(wanted)): data}
    given = {key: value for key, value in known.items() if key in wanted}
    if "edge_weight" in wanted:
        if weight is not None:
            given["edge_weight"] = weight
        elif wanted["edge_weight"].default is inspect.Parameter.empty:
            given["edge_weight"] = None
        _remark(
            f"{name}'s edge_weight: {'None, the graph has no weights' if weight is None else 'the weights of the graph'}"
        )
    elif weight is not None:
        _remark(f"{name}'s forward takes no edge_weight: the weights of the graph do not count")
    if "edge_attr" in wanted:
        if features is not None:
            given["edge_attr"] = features
        elif wanted["edge_attr"].default is inspect.Parameter.empty:
            raise BadInput(
                f"{name}'s forward wants 'edge_attr', which the graph has not: give data.edge_attr, or give 'edge_attr' a default"
            )
        told = (
            "None, the graph has none"
            if features is None
            else f"those of the graph, {graph.num_edge_features} columns"
        )
        _remark(f"{name}'s edge_attr: {told}")
    elif features is not None:
        _remark(f"{name}'s forward takes no edge_attr: the features of edges do not count")
    if "edge_type" in wanted:
        if types_of_edges is not None:
            given["edge_type"] = types_of_edges
        elif wanted["edge_type"].default is inspect.Parameter.empty:
            raise BadInput(
                f"{name}'s forward wants 'edge_type', which the graph has not: give data.edge_type, or give 'edge_type' a default"
            )
        _remark(
            f"{name}'s edge_type: {'None, the graph has none' if types_of_edges is None else 'those of the graph'}"
        )
    elif types_of_edges is not None:
        _remark(f"{name}'s forward takes no edge_type: the types of edges do not count")
    for key, parameter in wanted.items():
        missing = parameter.default is inspect.Parameter.empty and key not in given
        if missing and parameter.kind in (
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        ):
            raise BadInput(
                f"{name}'s forward wants {key!r}, which Siafu has not: it gives x, edge_index, edge_weight, edge_attr, edge_type, num_nodes and n_id; "
                f"give {key!r} a default"
            )
    return {called.get(key, key): value for key, value in given.items()}


def _in_our_words(
    wanted: dict[str, inspect.Parameter],
) -> tuple[dict[str, inspect.Parameter], dict[str, str]]:
    """Arguments of a forward with x and edge_index by these names, and the user's words for them.

    One argument alone is the data.
    """
    open_ones = [
        name
        for name, each in wanted.items()
        if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        and each.default is inspect.Parameter.empty
        and name not in _KNOWN
    ]
    missing = [name for name in ("x", "edge_index") if name not in wanted]
    if "edge_index" in missing and len(open_ones) + ("x" in wanted) < 2:
        return wanted, {}
    called = dict(zip(missing, open_ones, strict=False))
    ours = {theirs: own for own, theirs in called.items()}
    return {ours.get(name, name): each for name, each in wanted.items()}, called


_KNOWN = frozenset({"x", "edge_index", "edge_weight", "edge_attr", "edge_type", "num_nodes", "n_id", "batch"})
"""Arguments that Siafu gives by their names."""


def _numbers(x: Tensor) -> Tensor:
    """Numbers of the vertices, as PyG's `data.n_id` has them."""
    who = recorder()
    return torch.arange(x.shape[0]) if who is None else who.vertices()


def _remark(words: str) -> None:
    who = recorder()
    if who is not None:
        who.remark(words)


def _features(graph: Graph, x: Tensor) -> EdgeValue | None:
    if graph.edge_attr is None:
        return None
    return EdgeValue(StoredFeatures(without_memory(MANY, graph.num_edge_features, dtype=x.dtype)))


# What is different while the call goes on.


@contextmanager
def _named_layers(call: PygCall) -> Iterator[None]:
    """Keeps note of whose `forward` runs, for refusals and for those who read about the program."""

    def enter(module: nn.Module, given: Any) -> None:
        call.modules.append(module)

    def leave(module: nn.Module, given: Any, out: Any) -> None:
        call.modules.pop()

    handles = register_module_forward_pre_hook(enter), register_module_forward_hook(leave)
    try:
        yield
    finally:
        for each in handles:
            each.remove()


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Put away what layers keep (`cached=True`, the last attention), and restore it afterwards: no stand-in stays."""
    before = [(each, dict(each.__dict__)) for each in model.modules()]
    for each, _ in before:
        for name in [name for name in each.__dict__ if name.startswith("_cached_")]:
            each.__dict__[name] = None
        if any(kind.__name__ == "InvertibleModule" for kind in type(each).__mro__):
            each.__dict__["disable"] = True  # what is kept for the backward pass is chosen later
    try:
        yield
    finally:
        for each, state in before:
            each.__dict__.clear()
            each.__dict__.update(state)


@contextmanager
def _stand_ins(model: nn.Module) -> Iterator[None]:
    """PyG's functions and layers, and the user's names for them, know stand-ins; without PyG there is nothing to do."""
    pyg = sys.modules.get("torch_geometric")
    if pyg is None:
        yield
        return
    from torch_geometric.nn import FastRGCNConv, MessagePassing, RGCNConv
    from torch_geometric.nn.aggr import Aggregation, MultiAggregation

    replaced = _replacements()
    undo: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for space in _namespaces(model):
            for name, found in list(space.items()):
                new = replaced.get(id(found)) if callable(found) else None
                if new is not None:
                    undo.append((space, name, found))
                    space[name] = new
        for each in model.modules():
            if isinstance(each, MessagePassing):
                layers.refuse_overrides(each)
                if type(each).forward in (RGCNConv.forward, FastRGCNConv.forward):
                    each.__dict__["forward"] = types.MethodType(relations.rgcn, each)
                each.__dict__["propagate"] = types.MethodType(layers.propagate, each)
                each.__dict__["edge_updater"] = types.MethodType(layers.edge_updater, each)
        if recorder() is not None:
            one_graph(model)
        called = Aggregation.__call__
        Aggregation.__call__ = layers.aggregation_call(called, MultiAggregation)
        try:
            yield
        finally:
            Aggregation.__call__ = called
    finally:
        for space, name, found in undo:
            space[name] = found


def _replacements() -> dict[int, Callable[..., Any]]:
    """By the ids of PyG's functions: those that take their place."""
    from torch_geometric import utils
    from torch_geometric.nn.conv import gcn_conv
    from torch_geometric.utils import num_nodes

    homes = (utils, num_nodes, gcn_conv)
    found: dict[int, Callable[..., Any]] = {}
    for name, own in functions.STAND_INS.items():
        original = next(vars(home)[name] for home in homes if name in vars(home))
        other = functions.other_edges(name) if name in functions.OF_EDGES else original
        found[id(original)] = _either(own, other, original)
    for name, wrap in functions.WRAPPED.items():
        original = getattr(utils, name)
        found[id(original)] = _either(wrap(original), functions.other_edges(name), original)
    for refused in functions.WHOLE:
        original = getattr(utils, refused.__name__)
        found[id(original)] = _while_called(refused, original)
    found[id(checkpoint)] = _while_called(_run_once, checkpoint)
    for name in functions.CHANGES_GRAPH:
        original = getattr(utils, name, None)
        if original is not None:
            found[id(original)] = _either(functions.changing(name), original, original)
    return found


def _either(
    own: Callable[..., Any], other: Callable[..., Any], original: Callable[..., Any]
) -> Callable[..., Any]:
    """`own` where a stand-in is among the arguments, `other` elsewhere; `original` in threads that call no model of ours."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        if not is_entered():
            return original(*args, **kwargs)
        ours = any(isinstance(each, (EdgeToken, EdgeValue)) for each in (*args, *kwargs.values()))
        return (own if ours else other)(*args, **kwargs)

    return chosen


def _while_called(own: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """`own` while a model of ours is called, `original` elsewhere."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (own if is_entered() else original)(*args, **kwargs)

    return chosen


def _run_once(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """In the place of `torch.utils.checkpoint.checkpoint`: what a program keeps for its gradient is decided later."""
    for name in (
        "use_reentrant",
        "context_fn",
        "determinism_check",
        "debug",
        "early_stop",
        "preserve_rng_state",
    ):
        kwargs.pop(name, None)
    return function(*args, **kwargs)


def _namespaces(model: nn.Module) -> list[dict[str, Any]]:
    """Where names of PyG's functions are looked up: its own modules, and those that the model's classes are written in."""
    spaces = [
        vars(module)
        for name, module in list(sys.modules.items())
        if name.startswith(("torch_geometric", "torch.utils.checkpoint"))
        and isinstance(module, types.ModuleType)
    ]
    for each in model.modules():
        for kind in type(each).__mro__:
            spaces += [
                member.__globals__ for member in vars(kind).values() if isinstance(member, types.FunctionType)
            ]
    return list({id(space): space for space in spaces}.values())


class EdgeFunctions(TorchFunctionMode):
    """PyTorch's functions where they make or drop values of edges, and one that tensor programs lack."""

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (F.dropout, torch.dropout) and args and isinstance(args[0], EdgeValue):
            return _dropped(*args, **kwargs)
        if func in _MADE and args:
            made = _made(func, *args, **kwargs)
            if made is not None:
                return made
        if func in _EXTREMES and args and isinstance(args[0], Tensor) and not isinstance(args[0], EdgeValue):
            dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if type(dim) is int and not kwargs.get("keepdim", False):
                if isinstance(args[0].shape[dim], torch.SymInt):
                    raise _mixing("max" if func in (torch.max, Tensor.max) else "min")
                return _extreme(args[0], dim, greatest=func in (torch.max, Tensor.max))
        if recorder() is None:
            return func(*args, **kwargs)
        if func in (torch.nonzero, Tensor.nonzero) and _has_rows(args[0]):
            raise refusal("nonzero picks rows of some vertices", "take all rows, and choose with torch.where")
        out = func(*args, **kwargs)
        if _is_plain(out) and not _has_rows(out) and any(map(_has_rows, leaves((args, kwargs)))):
            name = str(getattr(func, "__name__", func))
            if not name.startswith("new_") and name not in _OF_ALL:
                raise _mixing(name)
        return out


def _is_plain(value: Any) -> bool:
    """Whether a value is a tensor that stands for itself."""
    return isinstance(value, Tensor) and not isinstance(value, (EdgeValue, EdgeToken))


def _has_rows(value: Any) -> bool:
    """Whether a value has a row for each vertex, while a model is recorded."""
    return _is_plain(value) and any(isinstance(size, torch.SymInt) for size in value.shape)


def _mixing(operation: str) -> BadInput:
    return refusal(
        f"{operation} mixes the rows of different vertices",
        "outside of an aggregation each vertex is computed alone, but for sums, means, variances and what norms make of them",
    )


_MADE = {torch.ones: 1.0, torch.zeros: 0.0, Tensor.new_ones: 1.0, Tensor.new_zeros: 0.0}
_OF_ALL = frozenset({"sum", "mean", "var", "std", "var_mean"})
"""Functions over all vertices that a recorded model may use."""
_EXTREMES = (torch.max, Tensor.max, torch.min, Tensor.min)


def _made(func: Any, *args: Any, **kwargs: Any) -> EdgeValue | None:
    """A tensor with a row for each edge, of one number; None: a tensor of something else."""
    like, given = (args[0], args[1:]) if isinstance(args[0], Tensor) else (None, args)
    size = given[0] if given and isinstance(given[0], (tuple, list)) else given
    if isinstance(like, EdgeValue) or not size or type(size[0]) is not int or size[0] != MANY:
        return None
    dtype = kwargs.get("dtype") or (torch.get_default_dtype() if like is None else like.dtype)
    return filled_with(_MADE[func], tuple(size), dtype)


def _dropped(value: EdgeValue, p: float = 0.5, training: bool = True, inplace: bool = False) -> EdgeValue:
    if not training or p == 0:
        return value
    if not isinstance(value.node, EdgeSoftmax):
        raise refusal(
            "dropout of values of edges cannot be counted",
            "drop rows of vertices instead, or attention weights as GATConv does",
        )
    return softmax(value.node.logits, p, value.node.end)


class _Extreme(NamedTuple):
    """As `torch.max` has it along a dimension; where the greatest stands is not known."""

    values: Tensor
    indices: None = None


def _extreme(rows: Tensor, dim: int, *, greatest: bool) -> _Extreme:
    """The greatest or least along a dimension of a row; of equals the first gets the gradient, as PyTorch has it."""
    best, *others = rows.unbind(dim)
    for each in others:
        best = torch.where(each > best if greatest else each < best, each, best)
    return _Extreme(best)
