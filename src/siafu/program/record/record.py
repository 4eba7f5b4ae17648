"""Recording: a model's whole forward pass as one graph of tensor operations, each gather a single one of them."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn import Layer
from siafu.nn.calling import call_with, refuse_types_apart
from siafu.nn.dropout import CountedDropout, on_edges
from siafu.nn.gather import Gather
from siafu.nn.recording import recording
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
    # PyTorch's tracing takes long to import: programs that are read from a file do without.
    from siafu.program.trace.tracing import shapes_only, traced, without_numbers

    refuse_types_apart(model)
    weights = state_of(model)
    note = _Note(weights, dict(model.named_parameters()))
    running: dict[int, RunningStatistics] = {}
    moving: set[str] = set()

    def forward(weights_given: list[Tensor], x: Tensor, vertices: Tensor, key: Tensor) -> Tensor:
        note.begin(weights_given, x)
        note.norms = norms = NormsRecorded(note.name_of)
        with recording(note), norms, CountedDropout(key, vertices) as note.counting:
            named = dict(zip(weights, weights_given, strict=True))

            def run(given: tuple[Any, ...], options: dict[str, Any]) -> Any:
                return torch.func.functional_call(model, named, given, options, tie_weights=False)

            out = call_with(model, graph, x, run)
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
        [without_numbers(shapes, weight) for weight in weights.values()],
        without_numbers(shapes, torch.zeros(_SOME_ROWS, graph.num_features, dtype=kind), rows=True),
        without_numbers(shapes, torch.zeros(_SOME_ROWS, dtype=torch.int64), rows=True),
        without_numbers(shapes, torch.zeros(2, dtype=torch.int64)),
    )
    with mode(model, training=training), torch.no_grad(), _refusing():
        found = traced(forward, *examples, tracing_mode="real")
    operations = found.graph
    operations.eliminate_dead_code()
    *given, features, vertices, key = (node for node in operations.nodes if node.op == "placeholder")
    output = next(node for node in operations.nodes if node.op == "output").args[0]
    if isinstance(output, (tuple, list)):
        (output,) = output
    for node in operations.nodes:
        if node.op == "get_attr":
            node.meta["constant"] = getattr(found, node.target)
    return Recording(
        operations,
        dict(zip(weights, given, strict=True)),
        features,
        vertices,
        key,
        output,
        note.sites,
        note.remarks,
        running,
        moving,
    )


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Everything a model computes with, by name: parameters, then buffers; a shared one under its first name."""
    named = list(itertools.chain(model.named_parameters(), model.named_buffers()))
    for name, tensor in named:
        if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer)):
            raise BadInput(
                f"the model's {name} has no shape yet: give the number of channels instead of -1, or call the model once"
            )
    return {name: tensor.detach() for name, tensor in named}


@contextmanager
def _refusing() -> Iterator[None]:
    """PyTorch's ways to say that a model cannot run on rows without numbers, in our words."""
    from siafu.program.trace.tracing import refusing

    try:
        with refusing():
            yield
    except (RuntimeError, NotImplementedError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(
            f"the model cannot be recorded for any number of rows ({reason}): make it of rows, layers and parameters "
            "that do not depend on the number of vertices"
        ) from error


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

    def begin(self, given: list[Tensor], x: Tensor) -> None:
        self.x = x
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
        site = GatherSite(gather, self.layer, width, dropout, number, weights=names)
        return self._note(site, list(sent), [self.given[name] for name in names])

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
            gather,
            self.layer,
            int(messages.shape[1]),
            apply_edge=apply_edge,
            weights=names,
            features=features,
        )
        return self._note(site, [x], [self.given[name] for name in names])

    def _note(self, site: GatherSite, sent: list[Tensor], weights: list[Tensor]) -> Tensor:
        self.sites.append(site)
        return cast(Tensor, torch.ops.siafu.gather(sent, weights, len(self.sites) - 1, site.width))
