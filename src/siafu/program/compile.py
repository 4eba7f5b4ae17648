"""Compile: from a model and a graph to a Program."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, fx, nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn import Layer
from siafu.objective.objective import Objective, target_of
from siafu.objective.outputs_only import ANY_WIDTH
from siafu.objective.registry import objective_for
from siafu.program.density import pays_off, sampled_density, saved_by_sparse_products
from siafu.program.half_products import half_phase
from siafu.program.phase_programs import PhasePrograms
from siafu.program.program import GatherStep, Program, ReduceStep, TensorPhase
from siafu.program.record.commute import commute
from siafu.program.record.cut import Cut, CutGather, CutPhase, CutReduce, cut, is_row
from siafu.program.record.evaluate import evaluate
from siafu.program.record.numbers_only import numbers_only
from siafu.program.record.over_rows import over_rows
from siafu.program.record.record import GatherSite, Recording, record, restored, state_of
from siafu.program.record.rows_first import rows_first
from siafu.program.tensor_program import Kind
from siafu.program.trace.phase import LossFunction, RowSpec, trace_phase


def compile_model(
    model: nn.Module,
    graph: Graph,
    objective: Objective | None = None,
    *,
    training: bool,
    loss_scale: float = 1.0,
    sparse: bool = True,
    once: bool = False,
) -> Program:
    """Take `model` apart for `graph`.

    objective:  what is learnt; None: what the graph's labels are for
    training:   with dropout, and with the loss and its gradient in the last phase; else for an evaluation
    loss_scale: what the sum of the rows' losses is multiplied with
    sparse:     products can be taken with features without their zeros: tensor tasks run where the rows are
    once:       it runs a single time: nothing is gained by computing a wide gather before it
    """
    objective = objective or objective_for(graph)
    saved = saved_by_sparse_products(graph) if sparse else 0.0
    sides = _choose_sides(model, graph, training=training, saved=saved, once=once)
    with _placed(sides):
        trainable = _trainable(model)
        loss = _Loss.of(objective, graph, loss_scale) if training else None
        found = _compiled(model, graph, objective, trainable, loss, sides)
        # What gradients do not reach is not learnt: an optimizer would let it decay.
        unreached = _unreached(found) if training else set()
        if unreached:
            found = _compiled(model, graph, objective, trainable - unreached, loss, sides)
        return found


def _compiled(
    model: nn.Module,
    graph: Graph,
    objective: Objective,
    trainable: set[str],
    loss: "_Loss | None",
    sides: dict[Layer, tuple[bool, str]],
) -> Program:
    """trainable: names of the parameters that are learnt; loss: of a training"""
    recording = record(model, graph, training=loss is not None)
    over_rows(recording, graph.num_vertices)
    rows_first(recording)
    numbers_only(recording, trainable)
    recording, moved = commute(recording, trainable)
    parts = cut(recording, trainable)
    _check_output(parts, graph, objective)
    compiler = _Compiler(model, parts, trainable, loss)
    return compiler.program((*recording.remarks, *_reasons(sides), *moved, *_folded(parts)))


def _unreached(program: Program) -> set[str]:
    """Names of parameters that get nothing but zeros for gradients, wherever they are read: detached, or under `no_grad`."""
    of_gathers = {name for group in program.gathers for step in group for name in step.learnt}
    reached, read = set(of_gathers), set[str]()
    for phase in program.phases:
        backward = phase.programs.last or phase.programs.backward
        read |= set(phase.learnt)
        reached |= set(phase.learnt) - (
            set() if backward is None else backward.filled_outputs("grad/weight/")
        )
    return read - reached


def _trainable(model: nn.Module) -> set[str]:
    return {name for name, each in model.named_parameters() if each.requires_grad}


@dataclass(frozen=True, slots=True, eq=False)
class _Loss:
    """The end of a training's last phase.

    function: what it gives and the target's rows → the loss
    target:   what a row of the target looks like
    """

    function: LossFunction
    target: RowSpec

    @classmethod
    def of(cls, objective: Objective, graph: Graph, scale: float) -> "_Loss":
        y = target_of(objective, graph)
        kind = "float" if y.is_floating_point() else str(y.dtype).removeprefix("torch.")
        spec = RowSpec(tuple(y.shape[1:]), cast(Kind, kind))

        def loss(outputs: list[Tensor], y: Tensor) -> Tensor:
            found = objective.loss(outputs[-1], y)
            if found.ndim:
                raise BadInput(
                    f"objective {objective.name} gives a loss of {found.ndim} dimensions: a loss is one number, the sum of "
                    "its rows' losses"
                )
            return found * scale

        return cls(loss, spec)


class _Compiler:
    def __init__(self, model: nn.Module, parts: Cut, trainable: set[str], loss: _Loss | None) -> None:
        self.model, self.parts, self.trainable, self.loss = model, parts, trainable, loss
        self.state = state_of(model)
        self.names = _names(parts)
        self.totals = _total_names(parts)

    def program(self, choices: tuple[str, ...]) -> Program:
        parts = self.parts
        last = len(parts.phases) - 1
        return Program(
            tuple(self._phase(phase, number == last) for number, phase in enumerate(parts.phases)),
            tuple(tuple(self._gather(each) for each in group) for group in parts.gathers),
            {name: _shape(node) for node, name in self.names.items()},
            tuple(self.names[node] for node in parts.constants),
            parts,
            choices,
            tuple(tuple(self._reduce(each) for each in group) for group in parts.reduces),
        )

    def _phase(self, phase: CutPhase, is_last: bool) -> TensorPhase:
        differentiated = [node for node in phase.inputs if node not in self.parts.constants]
        learnt = tuple(name for name in phase.weights if name in self.trainable)
        loss = self.loss if is_last else None
        moved = [self.totals[node] for node in phase.totals if self._is_moved(node)]
        programs = trace_phase(
            _function(phase, self.parts.recording, self.totals),
            [RowSpec(_shape(node)) for node in phase.inputs],
            {name: self.state[name] for name in phase.weights},
            of_vertices={name for name in phase.weights if is_row(self.parts.recording.weights[name])},
            learnt=learnt,
            differentiated=[phase.inputs.index(node) for node in differentiated],
            loss=loss.function if loss is not None else None,
            target=loss.target if loss is not None else None,
            totals={self.totals[node]: tuple(map(int, node.meta["val"].shape)) for node in phase.totals},
            moved=moved,
        )
        if self._is_mixed():
            programs = half_phase(programs)
        return TensorPhase(
            tuple(self.names[node] for node in phase.inputs),
            tuple(self.names[node] for node in phase.outputs),
            phase.weights,
            learnt,
            tuple(self.names[node] for node in differentiated),
            programs,
            tuple(self.totals[node] for node in phase.totals),
            tuple(moved),
        )

    def _is_mixed(self) -> bool:
        """Whether all layers ask for products of bfloat16."""
        sites = self.parts.recording.sites
        return bool(sites) and all(site.gather.precision == "mixed" for site in sites)

    def _is_moved(self, total: fx.Node) -> bool:
        """Whether the rows that a statistic is of change with what is learnt."""
        return total.args[0] not in self.parts.constants

    def _reduce(self, reduce: CutReduce) -> ReduceStep:
        return ReduceStep(
            self.names[reduce.sent],
            self.totals[reduce.out],
            _shape(reduce.sent),
            reduce.variance,
            self._is_moved(reduce.out),
            reduce.running,
        )

    def _gather(self, gather: CutGather) -> GatherStep:
        differentiated = [node for node in gather.sent if node not in self.parts.constants]
        site = gather.site
        return GatherStep(
            site,
            tuple(self.names[node] for node in gather.sent),
            self.names[gather.out],
            None if site.apply_edge is None else self._edge(site, _shape(gather.sent[0])),
            tuple(name for name in site.weights if name in self.trainable),
            tuple(self.names[node] for node in differentiated),
        )

    def _edge(self, site: GatherSite, shape: tuple[int, ...]) -> PhasePrograms:
        call = _EdgeCall(site, self.model)

        def function(
            rows: list[Tensor], weights: dict[str, Tensor], vertices: Tensor, key: Tensor
        ) -> list[Tensor]:
            return [torch.func.functional_call(call, call.local(weights), tuple(rows))]

        return trace_phase(
            function,
            [RowSpec(shape), RowSpec(shape), *([RowSpec((site.features,))] if site.features else [])],
            {name: self.state[name] for name in site.weights},
            learnt=tuple(name for name in site.weights if name in self.trainable),
            differentiated=[0, 1],
            loss=None,
        )


class _EdgeCall(nn.Module):
    """A layer's `apply_edge` as a module, so that its weights can be given from outside."""

    def __init__(self, site: GatherSite, model: nn.Module) -> None:
        super().__init__()
        assert site.layer is not None
        self.layer = site.layer
        names = {id(each): name for name, each in model.named_parameters()}
        self.by_name = {
            names[id(each)]: f"layer.{name}"
            for name, each in site.layer.named_parameters()
            if id(each) in names
        }

    def local(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return {self.by_name[name]: weight for name, weight in weights.items()}

    def forward(self, *rows: Tensor) -> Tensor:
        messages: Tensor = self.layer.apply_edge(*rows)
        return messages


def _function(
    phase: CutPhase, recording: Recording, totals: dict[fx.Node, str]
) -> Callable[..., list[Tensor]]:
    """The phase's operations as a function that can be traced."""

    def function(
        rows: list[Tensor], weights: dict[str, Tensor], vertices: Tensor, key: Tensor
    ) -> list[Tensor]:
        known: dict[fx.Node, Any] = dict(zip(phase.inputs, rows, strict=True))
        known[recording.vertices], known[recording.key] = vertices, key
        known |= {node: weights[totals[node]] for node in phase.totals}
        known |= {recording.weights[name]: weights[name] for name in phase.weights}
        # Not that of `rows`: where one gather follows another, the phase between them has none of its own.
        count = vertices.shape[0]
        return [evaluate(node, known, count) for node in phase.outputs]

    return function


def _names(parts: Cut) -> dict[fx.Node, str]:
    """A name for everything that stands in a table."""
    names: dict[fx.Node, str] = {node: f"constant{k}" for k, node in enumerate(parts.constants)}
    for depth, group in enumerate(parts.gathers):
        for k, gather in enumerate(group):
            names[gather.out] = f"gathered{depth + 1}" + (f".{k}" if len(group) > 1 else "")
    for number, phase in enumerate(parts.phases):
        for k, node in enumerate(phase.outputs):
            names.setdefault(node, f"rows{number}" + (f".{k}" if len(phase.outputs) > 1 else ""))
    return names


def _total_names(parts: Cut) -> dict[fx.Node, str]:
    """A name for each statistic; no weight has such a name."""
    return {
        reduce.out: f"moments/{depth + 1}" + (f".{k}" if len(group) > 1 else "")
        for depth, group in enumerate(parts.reduces)
        for k, reduce in enumerate(group)
    }


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(int(size) for size in node.meta["val"].shape[1:])


def _check_output(parts: Cut, graph: Graph, objective: Objective) -> None:
    shape, outputs = _shape(parts.recording.output), objective.outputs(graph)
    if shape != (outputs,) and not (outputs == ANY_WIDTH and len(shape) == 1):
        raise BadInput(
            f"the model gives rows of shape {list(shape)} for a graph of {graph.num_classes} classes, whose objective "
            f"({objective.name}) wants rows of {outputs}: build it with out_channels={outputs}"
            f"{_on_gaps(graph, outputs)}{_on_quantities(graph, objective, shape)}"
        )


def _on_quantities(graph: Graph, objective: Objective, shape: tuple[int, ...]) -> str:
    """Words on a model of one output, whose author may mean quantities: floats of whole numbers are taken for classes."""
    if objective.name != "classes" or shape != (1,) or graph.class_names:
        return ""
    return ", or learn y as a quantity: objective='regression' (--objective regression)"


def _on_gaps(graph: Graph, outputs: int) -> str:
    """Words on classes that no vertex has: then the highest label may be a mistake."""
    if graph.y is None or graph.y.ndim != 1 or graph.y.dtype.kind == "f" or outputs != graph.num_classes:
        return ""
    counts = np.bincount(graph.y[graph.y >= 0], minlength=outputs)
    unused, highest = np.flatnonzero(counts == 0), int(graph.y.max(initial=-1))
    if len(unused) == 0 or highest < unused[0]:
        return ""
    few = ", ".join(map(str, unused[:5])) + (", …" if len(unused) > 5 else "")
    return (
        f", unless the label {highest} of vertex {int(np.argmax(graph.y == highest))} is a mistake: "
        f"no vertex has class {few}"
    )


# Sides: where a linear map that commutes with the gather goes.


def _choose_sides(
    model: nn.Module, graph: Graph, *, training: bool, saved: float, once: bool
) -> dict[Layer, tuple[bool, str]]:
    """Decide, for each layer that has a choice, whether its linear map goes before the gather; with the reason.

    saved: products for each column that a map of the features saves, beside one of gathered features that are computed once
    once:  as `compile_model` takes it
    """
    free = [each for each in model.modules() if isinstance(each, Layer) and each.linear_first is not None]
    if not free:
        return {}
    after, before = (
        _sides(model, graph, dict.fromkeys(free, (first, "")), training=training) for first in (False, True)
    )
    chosen = {}
    for layer in free:
        if layer not in after or layer not in before:
            continue
        (folded, wide, _), (_, narrow, multiplied) = after[layer], before[layer]
        folded = folded and not once
        if folded and multiplied and pays_off(saved, narrow):
            chosen[layer] = (True, _told(graph, narrow))
        elif folded:
            chosen[layer] = (False, f"its gather, {wide} wide, runs once and never again")
        elif narrow <= wide:
            chosen[layer] = (True, f"rows are gathered {narrow} wide instead of {wide}")
        else:
            chosen[layer] = (False, f"rows are gathered {wide} wide instead of {narrow}")
    return chosen


def _sides(
    model: nn.Module, graph: Graph, sides: dict[Layer, tuple[bool, str]], *, training: bool
) -> dict[Layer, tuple[bool, int, bool]]:
    """With the maps on these sides: whether each layer's gather is folded, the width of what it gathers, and whether
    the features are multiplied and read in no other way."""
    with _placed(sides):
        recording = record(model, graph, training=training)
        over_rows(recording, graph.num_vertices)
        parts = cut(recording, _trainable(model))
        multiplied = len(parts.phases) > 2 and _is_multiplied_only(recording)
        return {
            site.layer: (site in parts.folded, site.width, multiplied)
            for site in recording.sites
            if site.layer is not None
        }


def _is_multiplied_only(recording: Recording) -> bool:
    aten, features = torch.ops.aten, recording.features
    places = {aten.mm.default: 0, aten.addmm.default: 1}
    return all(
        user.target in places
        and [k for k, each in enumerate(user.args) if each is features] == [places[user.target]]
        for user in features.users
    )


def _told(graph: Graph, narrow: int) -> str:
    zeros, fewer = (100 * (1 - sampled_density(graph, gathered=each)) for each in (False, True))
    return (
        f"{zeros:.0f} % of the features are zeros, which products skip; gathered once they would be {fewer:.0f} %. "
        f"Rows are gathered {narrow} wide in every epoch"
    )


@contextmanager
def _placed(sides: dict[Layer, tuple[bool, str]]) -> Iterator[None]:
    with restored(sides, "linear_first"):
        for layer, (first, _) in sides.items():
            layer.linear_first = first
        yield


def _reasons(sides: dict[Layer, tuple[bool, str]]) -> list[str]:
    return [
        f"layer {number} ({type(layer).__name__}): the linear map goes {'before' if first else 'after'} the gather: {why}"
        for number, (layer, (first, why)) in enumerate(sides.items(), 1)
    ]


def _folded(parts: Cut) -> list[str]:
    return [
        f"the {type(site.gather).__name__} gather of {site.layer_name}, {site.width} wide, depends on the "
        "features alone: folded"
        for site in parts.folded
    ]
