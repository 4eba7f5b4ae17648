"""Recording: a model's whole forward pass as one graph of tensor operations, each gather a single one of them."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn import Layer
from siafu.nn.calling import call_with, in_columns, refuse_types_apart
from siafu.nn.dropout import CountedDropout, on_edges
from siafu.nn.gathers.gather import Gather
from siafu.nn.precision import asked_precision
from siafu.nn.recording import recording
from siafu.nn.tensors import Precision
from siafu.nn.vertex_weights import embeddings_of_vertices, rows_perhaps
from siafu.program.record.functions import FunctionsRecorded, own_gradients_refused
from siafu.program.record.row_axis import row_axis
from siafu.program.record.statistics import NormsRecorded, RunningStatistics

EdgeFunction = Callable[..., Tensor]
_SOME_ROWS = 11  # a size to trace with; it ends up symbolic, but must differ from the sizes 0 and 1

_library = torch.library.Library("siafu", "FRAGMENT")
_library.define("gather(Tensor[] sent, Tensor[] weights, int site, int width) -> Tensor")


@torch.library.impl(_library, "gather", "CompositeExplicitAutograd")
def _gather(sent: list[Tensor], weights: list[Tensor], site: int, width: int) -> Tensor:
    return sent[0].new_empty((sent[0].shape[0], width))


@dataclass(frozen=True, eq=False, slots=True)
class GatherSite:
    """One gather of a model.

    gather:       what it does
    layer:        the layer that it belongs to, for people; None: it was called by itself
    width:        of the rows it gives
    dropout:      share of the attention weights put to zero
    dropout_site: which of the model's dropouts that is
    apply_edge:   what makes messages out of an edge's ends; None: rows are gathered as they are
    weights:      names of the weights that `apply_edge` may read, or that the gather itself does, in its order
    features:     columns of the edges' features that `apply_edge` gets besides; 0: none
    """

    gather: Gather
    layer: Layer | None
    width: int
    dropout: float = 0.0
    dropout_site: int = 0
    apply_edge: EdgeFunction | None = None
    weights: tuple[str, ...] = ()
    features: int = 0

    @property
    def layer_name(self) -> str:
        """The layer's name, for people."""
        return str(getattr(self.layer, "title", type(self.layer).__name__))


@dataclass(frozen=True, eq=False, slots=True)
class Recording:
    """A model's forward pass.

    graph:    its operations; `siafu.gather` stands for sites[site]
    weights:  parameters and buffers by name, as nodes of the graph
    features, vertices, key: the rows that come in, their vertices' ids, and what dropout draws from, as nodes
    output:   the rows that come out, as a node
    sites:    the gathers, in the order in which they were called
    remarks:  what there is to say about it, for people
    running:  buffers that follow statistics of the whole graph, by the site of `siafu.moments`
    moving:   names of buffers that change from epoch to epoch
    """

    graph: fx.Graph
    weights: dict[str, fx.Node]
    features: fx.Node
    vertices: fx.Node
    key: fx.Node
    output: fx.Node
    sites: list[GatherSite]
    remarks: list[str] = field(default_factory=list)
    running: dict[int, RunningStatistics] = field(default_factory=dict)
    moving: set[str] = field(default_factory=set)


def record(model: nn.Module, graph: Graph, *, training: bool) -> Recording:
    """Run `model` on rows without numbers, and note what it does."""
    known, perhaps = embeddings_of_vertices(model, graph), rows_perhaps(model, graph)
    if not perhaps:
        return _record(model, graph, known, training=training)
    try:
        found = _record(model, graph, known, training=training)
        if row_axis(found.output.meta.get("val")) is not None:
            return found
        refused = None
    except BadInput as error:
        refused = error
    # A parameter with as many rows as vertices is first taken for a map.
    try:
        return _record(model, graph, known | perhaps, training=training)
    except BadInput as error:
        raise refused or error from None


def _record(model: nn.Module, graph: Graph, of_vertices: frozenset[str], *, training: bool) -> Recording:
    """of_vertices: names of the weights that have a row for each vertex: each vertex sees its own"""
    # PyTorch's tracing takes long to import: programs that are read from a file do without.
    from siafu.program.trace.tracing import shapes_only, traced, without_numbers

    refuse_types_apart(model)
    weights = state_of(model)
    first_names = _first_names(model)
    note = _Note(weights, dict(model.named_parameters()), precision=asked_precision(model))
    running: dict[int, RunningStatistics] = {}
    moving: set[str] = set()

    def forward(weights_given: list[Tensor], x: Tensor, vertices: Tensor, key: Tensor) -> Tensor:
        # What goes along edges is made by a phase: a row of a weight is copied there.
        weights_given = [
            each.clone() if name in of_vertices else each
            for name, each in zip(weights, weights_given, strict=True)
        ]
        note.begin(weights_given, x, vertices)
        note.norms = norms = NormsRecorded(note.name_of)
        with (
            recording(note),
            FunctionsRecorded(note, of_vertices),
            own_gradients_refused(),
            norms,
            CountedDropout(key, vertices) as note.counting,
            torch.enable_grad(),
        ):
            given_by_name = dict(zip(weights, weights_given, strict=True))
            named = {name: given_by_name[first] for name, first in first_names.items()}

            def run(given: tuple[Any, ...], options: dict[str, Any]) -> Any:
                return torch.func.functional_call(model, named, given, options, tie_weights=False)

            out = in_columns(call_with(model, graph, x, run))
        running.clear()
        running.update(norms.running)
        moving.update(norms.moving)
        if not isinstance(out, Tensor):
            raise BadInput(
                f"the model gives a {type(out).__name__}: it must give one tensor, a row for each vertex"
            )
        return out

    kind = next((w.dtype for w in weights.values() if w.is_floating_point()), torch.float32)
    shapes = shapes_only()
    examples = (
        [
            without_numbers(shapes, torch.zeros(_SOME_ROWS, *weight.shape[1:], dtype=weight.dtype), rows=True)
            if name in of_vertices
            else without_numbers(shapes, weight)
            for name, weight in weights.items()
        ],
        without_numbers(shapes, torch.zeros(_SOME_ROWS, graph.num_features, dtype=kind), rows=True),
        without_numbers(shapes, torch.zeros(_SOME_ROWS, dtype=torch.int64), rows=True),
        without_numbers(shapes, torch.zeros(2, dtype=torch.int64)),
    )
    with mode(model, training=training), torch.no_grad(), _refusing(graph):
        found = traced(forward, *examples, tracing_mode="real")
    operations = found.graph
    operations.eliminate_dead_code()
    *given, features, vertices, key = (node for node in operations.nodes if node.op == "placeholder")
    for node in operations.nodes:
        if node.op == "get_attr":
            node.meta["constant"] = getattr(found, node.target)
    return Recording(
        operations,
        dict(zip(weights, given, strict=True)),
        features,
        vertices,
        key,
        output_of(operations),
        note.sites,
        note.remarks,
        running,
        moving,
    )


def output_of(graph: fx.Graph) -> fx.Node:
    """The node that a recorded graph gives."""
    found: Any = next(node for node in graph.nodes if node.op == "output").args[0]
    if isinstance(found, (tuple, list)):
        (found,) = found
    return cast(fx.Node, found)


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Everything a model computes with, by name: parameters, then buffers; a shared one under its first name."""
    named = _every_name(model)
    for name, tensor in named:
        if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer)):
            raise BadInput(
                f"the model's {name} has no shape yet: give the number of channels instead of -1, or call the model once"
            )
    return {name: tensor.detach() for name, tensor in named}


def _first_names(model: nn.Module) -> dict[str, str]:
    """A name for every place of a parameter or buffer, and the first that it has: a weight that two layers share is one.

    A module that is there twice has its places once.
    """
    known = {id(tensor): name for name, tensor in reversed(_every_name(model))}
    places = {
        f"{prefix}.{own}" if prefix else own: tensor
        for prefix, module in model.named_modules()
        for own, tensor in (*module._parameters.items(), *module._buffers.items())
        if tensor is not None
    }
    return {name: known[id(tensor)] for name, tensor in places.items()}


def _every_name(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


@contextmanager
def _refusing(graph: Graph) -> Iterator[None]:
    """PyTorch's ways to say that a model cannot run on rows without numbers, in our words."""
    from siafu.program.trace.tracing import refusing

    try:
        with refusing(), _silent(logging.getLogger("torch._subclasses.fake_tensor")):
            yield
    except (RuntimeError, NotImplementedError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(_wrong_width(reason, graph) or _not_of_rows(reason)) from error


def _wrong_width(reason: str, graph: Graph) -> str | None:
    """The refusal of a product whose sides do not fit, as PyTorch tells it; None: it is something else."""
    found = re.search(r"got \[\w+, (\d+)\] X \[(\d+), \d+\]", reason)
    if found is None:
        return None
    width, wanted = map(int, found.groups())
    if width != graph.num_features:
        return f"a linear map of the model wants rows of {wanted} numbers and gets {width}: check the widths of its layers"
    if width == 0:
        return f"the model wants {wanted} features a vertex, and the graph has none: give it x, or learn rows with nn.Embedding"
    return f"the model wants {wanted} features a vertex, and the graph has {width}: build it for {width} (graph.num_features)"


def _not_of_rows(reason: str) -> str:
    told = re.sub(r"\(?/\S+\.(cpp|h):\d+:? ?", "", reason)  # where PyTorch was built says nothing to anybody
    return (
        f"the model cannot be recorded for any number of rows ({told}): make it of rows, layers and parameters that do not "
        "depend on the number of vertices; attention of every vertex to every other (GPSConv, nn.MultiheadAttention) is not there"
    )


@contextmanager
def _silent(logger: logging.Logger) -> Iterator[None]:
    """A logger that says nothing: PyTorch logs a traceback of what we refuse in one line."""
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was


@contextmanager
def restored(modules: Iterable[nn.Module], attribute: str) -> Iterator[None]:
    """Modules whose attribute may change; afterwards it is as it was."""
    before = {module: getattr(module, attribute) for module in modules}
    try:
        yield
    finally:
        for module, was in before.items():
            setattr(module, attribute, was)


@contextmanager
def mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """`model` in training or evaluation mode, every part of it; afterwards as it was."""
    with restored(model.modules(), "training"):
        model.train(training)
        yield


@dataclass(eq=False)
class _Note:
    """The listener that `recording` calls."""

    names: dict[str, Tensor]
    parameters: dict[str, nn.Parameter]
    remarks: list[str] = field(default_factory=list)
    sites: list[GatherSite] = field(default_factory=list)
    counting: CountedDropout | None = None
    norms: NormsRecorded | None = None
    layer: Layer | None = None
    precision: Precision | None = None

    def begin(self, given: list[Tensor], x: Tensor, vertices: Tensor) -> None:
        self.x, self.numbers = x, vertices
        self.given = dict(zip(self.names, given, strict=True))
        self.sites.clear()
        self.remarks.clear()

    def name_of(self, tensor: Any) -> str | None:
        return next((name for name, each in self.given.items() if each is tensor), None)

    def parameter(self, tensor: Tensor) -> nn.Parameter | None:
        return self.parameters.get(self.name_of(tensor) or "")

    def remark(self, words: str) -> None:
        if words not in self.remarks:
            self.remarks.append(words)

    def features(self) -> Tensor:
        return self.x

    def vertices(self) -> Tensor:
        return self.numbers

    def running_mean(self, rows: Tensor, buffer: Tensor | None, momentum: float) -> Tensor:
        assert self.norms is not None
        return self.norms.running_mean(rows, buffer, momentum)

    def moves(self, buffer: Tensor) -> None:
        assert self.norms is not None
        self.norms.moves(buffer)

    def entered(self, layer: nn.Module) -> None:
        self.layer = cast(Layer, layer)

    def gather(
        self, gather: Gather, sent: tuple[Tensor, ...], dropout: float, parameters: tuple[Tensor, ...] = ()
    ) -> Tensor:
        assert self.counting is not None
        number = self.counting.next_site() if dropout > 0 else 0
        width = gather.width(int(sent[0].shape[1]))
        names = tuple(self._name(each) for each in parameters)
        site = GatherSite(self._precise(gather), self.layer, width, dropout, number, weights=names)
        return self._note(site, list(sent), [self.given[name] for name in names])

    def _precise(self, gather: Gather) -> Gather:
        """`gather` in the precision that was asked for the whole model."""
        return gather if self.precision is None else replace(gather, precision=self.precision)

    def _name(self, parameter: Tensor) -> str:
        found = next((name for name, each in self.given.items() if each is parameter), None)
        if found is None:
            raise BadInput(
                f"{type(self.layer).__name__}: a gather reads a tensor that is made of parameters: give it a parameter itself"
            )
        return found

    def gather_messages(
        self,
        gather: Gather,
        x: Tensor,
        apply_edge: EdgeFunction,
        parameters: list[Tensor],
        features: int = 0,
    ) -> Tensor:
        # What this computes is never used, but its width is.
        more = [x.new_empty((x.shape[0], features))] if features else []
        with on_edges():
            messages = apply_edge(x, x, *more)
        if messages.ndim != 2:
            raise BadInput(f"apply_edge gives {messages.ndim} dimensions: it must give one row for an edge")
        names = tuple(
            name for name, tensor in self.given.items() if any(tensor is each for each in parameters)
        )
        site = GatherSite(
            self._precise(gather),
            self.layer,
            int(messages.shape[1]),
            apply_edge=apply_edge,
            weights=names,
            features=features,
        )
        return self._note(site, [x], [self.given[name] for name in names])

    def _note(self, site: GatherSite, sent: list[Tensor], weights: list[Tensor]) -> Tensor:
        if weights and not torch.is_grad_enabled():
            raise BadInput(
                f"{site.layer_name} has parameters on edges and runs under torch.no_grad: freeze them with requires_grad_(False)"
            )
        self.sites.append(site)
        found = cast(Tensor, torch.ops.siafu.gather(sent, weights, len(self.sites) - 1, site.width))
        return found if torch.is_grad_enabled() else found.detach()
