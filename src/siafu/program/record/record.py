"""Recording: a model's whole forward pass as one graph of tensor operations, each gather a single one of them."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StatelessSymbolicContext,
)

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn import Layer
from siafu.nn.calling import takes_features
from siafu.nn.dropout import CountedDropout, on_edges
from siafu.nn.gather import Gather
from siafu.nn.recording import recording
from siafu.program.trace.tracing import traced

EdgeFunction = Callable[[Tensor, Tensor], Tensor]
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
    weights:      names of the weights that `apply_edge` may read
    """

    gather: Gather
    layer: Layer | None
    width: int
    dropout: float = 0.0
    dropout_site: int = 0
    apply_edge: EdgeFunction | None = None
    weights: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Recording:
    """A model's forward pass.

    graph:    its operations; `siafu.gather` stands for sites[site]
    weights:  parameters and buffers by name, as nodes of the graph
    features, vertices, key: the rows that come in, their vertices' ids, and what dropout draws from, as nodes
    output:   the rows that come out, as a node
    sites:    the gathers, in the order in which they were called
    """

    graph: fx.Graph
    weights: dict[str, fx.Node]
    features: fx.Node
    vertices: fx.Node
    key: fx.Node
    output: fx.Node
    sites: list[GatherSite]


def record(model: nn.Module, graph: Graph, *, training: bool) -> Recording:
    """Run `model` on rows without numbers, and note what it does."""
    weights = state_of(model)
    note = _Note(weights)

    def forward(weights_given: list[Tensor], x: Tensor, vertices: Tensor, key: Tensor) -> Tensor:
        note.begin(weights_given, x)
        with recording(note), CountedDropout(key, vertices) as note.counting:
            named = dict(zip(weights, weights_given, strict=True))
            given = (graph, x) if takes_features(model) else (graph,)
            out = torch.func.functional_call(model, named, given, tie_weights=False)
        if not isinstance(out, Tensor):
            raise BadInput(
                f"the model gives a {type(out).__name__}: it must give one tensor, a row for each vertex"
            )
        return out

    kind = next((w.dtype for w in weights.values() if w.is_floating_point()), torch.float32)
    shapes = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
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
        operations, dict(zip(weights, given, strict=True)), features, vertices, key, output, note.sites
    )


def without_numbers(mode: FakeTensorMode, tensor: Tensor, *, rows: bool = False) -> Tensor:
    """A stand-in for `tensor` that has a shape only; with `rows`, any number of them."""
    sizes = [DimDynamic.STATIC] * tensor.ndim
    if rows:
        sizes[0] = DimDynamic.DUCK
    context: Any = StatelessSymbolicContext(dynamic_sizes=sizes, constraint_sizes=[None] * tensor.ndim)
    return mode.from_tensor(tensor, symbolic_context=context)


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Everything a model computes with, by name: parameters, then buffers; a shared one under its first name."""
    named = itertools.chain(model.named_parameters(), model.named_buffers())
    return {name: tensor.detach() for name, tensor in named}


@contextmanager
def _refusing() -> Iterator[None]:
    """What PyTorch says of a model that cannot run on rows without numbers, in our words."""
    try:
        yield
    except (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode) as error:
        raise BadInput(
            "what the model does depends on the rows' values: use torch.where instead of a condition"
        ) from error
    except (RuntimeError, NotImplementedError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(
            f"the model cannot be recorded for any number of rows ({reason}): make it of rows, layers and parameters "
            "that do not depend on the number of vertices"
        ) from error


@contextmanager
def mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """`model` in training or evaluation mode, every part of it; afterwards as it was."""
    before = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        yield
    finally:
        for module, was in before.items():
            module.training = was


@dataclass(eq=False)
class _Note:
    """What `recording` calls back."""

    names: dict[str, Tensor]
    sites: list[GatherSite] = field(default_factory=list)
    counting: CountedDropout | None = None
    layer: Layer | None = None

    def begin(self, given: list[Tensor], x: Tensor) -> None:
        self.x = x
        self.given = dict(zip(self.names, given, strict=True))
        self.sites.clear()

    def features(self) -> Tensor:
        return self.x

    def entered(self, layer: nn.Module) -> None:
        self.layer = cast(Layer, layer)

    def gather(self, gather: Gather, sent: tuple[Tensor, ...], dropout: float) -> Tensor:
        assert self.counting is not None
        number = self.counting.next_site() if dropout > 0 else 0
        width = int(sent[0].shape[1])
        return self._note(GatherSite(gather, self.layer, width, dropout, number), list(sent), [])

    def gather_messages(
        self, gather: Gather, x: Tensor, apply_edge: EdgeFunction, parameters: list[Tensor]
    ) -> Tensor:
        # What this computes is never used, but its width is.
        with on_edges():
            messages = apply_edge(x, x)
        if messages.ndim != 2:
            raise BadInput(f"apply_edge gives {messages.ndim} dimensions: it must give one row for an edge")
        names = tuple(
            name for name, tensor in self.given.items() if any(tensor is each for each in parameters)
        )
        site = GatherSite(gather, self.layer, int(messages.shape[1]), apply_edge=apply_edge, weights=names)
        return self._note(site, [x], [self.given[name] for name in names])

    def _note(self, site: GatherSite, sent: list[Tensor], weights: list[Tensor]) -> Tensor:
        self.sites.append(site)
        return cast(Tensor, torch.ops.siafu.gather(sent, weights, len(self.sites) - 1, site.width))
