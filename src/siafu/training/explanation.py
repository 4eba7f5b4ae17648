"""Explanation: what a model was compiled to for a graph, stage by stage, and what an epoch of it costs."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from siafu.graph import Graph
from siafu.nn import Softmax
from siafu.pipeline.ids import Lane
from siafu.pipeline.schedule import Schedule, Stage
from siafu.program.headline import describe_gather
from siafu.program.program import GatherStep, Program, TensorPhase
from siafu.program.record.record import state_of
from siafu.program.tensor_program import Rows, Spec, TensorProgram
from siafu.server.plan import compile_programs, rows_of
from siafu.server.schedules import evaluation_schedule, training_schedule


@dataclass(frozen=True, slots=True)
class StageCost:
    """One stage over the whole graph, in one epoch.

    name:       T0, G1, T1(loss), ∇G1, …
    over:       what it goes over: "rows" or "edges"; count: how many of them
    widths_in, widths_out: numbers in a row, of all that is read and made
    parameters: numbers that it reads and that are trained
    flops:      floating-point operations; those of elementary functions are estimates; a gather's adds and products
    bytes:      rows read and written; of a gather, a row an edge
    kept:       bytes that stay until the backward pass, so that it computes no product again
    operations: the tensor program's, or the gather
    program:    the tensor program's name, which is its hash; None: a gather runs as a kernel
    """

    name: str
    over: str
    count: int
    widths_in: tuple[int, ...]
    widths_out: tuple[int, ...]
    parameters: int
    flops: int
    bytes: int
    kept: int
    operations: tuple[str, ...]
    program: str | None
    text: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True)
class Explanation:
    """What runs, and why.

    training, evaluation: the stages of an epoch and of its evaluation, in order
    once:     rows that were computed once for all epochs, such as 'constant0, 1433 wide'
    choices:  what was decided and for what reason
    needed:   which rows the last phase computes
    """

    training: tuple[StageCost, ...]
    evaluation: tuple[StageCost, ...]
    once: tuple[str, ...]
    choices: tuple[str, ...]
    needed: str

    def as_json(self, *, ops: bool) -> dict[str, Any]:
        """As JSON takes it; ops: with the tensor programs in words."""
        found = asdict(self)
        if not ops:
            for stage in (*found["training"], *found["evaluation"]):
                del stage["text"]
        return found


def explain(graph: Graph, model: nn.Module, programs: dict[Lane, Program] | None = None) -> Explanation:
    """Compile `model` for `graph`, as `siafu.train` would, and say what came of it.

    programs: what it was compiled to before; None: it is compiled here
    """
    splits = rows_of(graph)
    learnt = splits.get("train", torch.arange(graph.num_vertices))
    programs = programs or compile_programs(graph, model, learnt)
    train, evaluate = programs["train"], programs["evaluate"]
    trained = _Costs(graph, model, train, _mask(graph, [learnt]), training=True)
    evaluated = _Costs(graph, model, evaluate, _mask(graph, [*splits.values()] or [learnt]), training=False)
    return Explanation(
        tuple(trained.of(training_schedule(train)[0])),
        tuple(evaluated.of(evaluation_schedule(evaluate))),
        tuple(f"{name}, {_width(train.shapes[name])} wide" for name in train.constants),
        train.choices,
        f"the last phase computes {trained.needed_rows:,} of {graph.num_vertices:,} rows in training, those that enter "
        f"the loss, and {evaluated.needed_rows:,} in an evaluation, those of the splits; the gather before it "
        "gathers into those alone",
    )


class _Costs:
    """What the stages of one program cost on one graph."""

    def __init__(
        self, graph: Graph, model: nn.Module, program: Program, needed: NDArray[np.bool_], *, training: bool
    ) -> None:
        self.graph, self.program, self.training = graph, program, training
        self.weights = state_of(model)
        kind = next((each.dtype for each in self.weights.values() if each.is_floating_point()), torch.float32)
        self.itemsize = kind.itemsize
        self.last = len(program.phases) - 1
        self.needed_rows = int(needed.sum())
        self.needed_edges = int(np.diff(graph.indptr)[needed].sum())

    def of(self, schedule: Schedule) -> Iterable[StageCost]:
        for stage in schedule.stages:
            if stage.kind == "tensor":
                yield self._tensor(stage)
            else:
                yield self._gather(stage)

    def _tensor(self, stage: Stage) -> StageCost:
        phase = self.program.phases[stage.phase]
        program = self._program(stage, phase)
        is_last = stage.phase == self.last
        rows = self.needed_rows if is_last else self.graph.num_vertices
        back = stage.direction == "backward" and not is_last
        ends = (phase.outputs, phase.differentiated) if back else (phase.inputs, phase.outputs)
        keeps = self.training and stage.direction == "forward"
        return StageCost(
            f"T{stage.phase}(loss)" if is_last and stage.direction == "backward" else str(stage),
            "rows",
            rows,
            self._widths(ends[0]),
            self._widths(ends[1]),
            self._numbers(phase.learnt),
            program.flops(rows),
            self._row_bytes([spec for _, spec in program.inputs], rows)
            + self._row_bytes([program.specs[number] for _, number in program.outputs], rows),
            self._row_bytes(phase.programs.kept, rows) if keeps else 0,
            tuple(op.name for op in program.ops),
            program.hash,
            str(program),
        )

    def _program(self, stage: Stage, phase: TensorPhase) -> TensorProgram:
        programs = phase.programs
        if stage.direction == "forward":
            return programs.forward_keeping if self.training else programs.forward
        return programs.last or programs.backward_kept or programs.forward

    def _gather(self, stage: Stage) -> StageCost:
        steps = self.program.gathers[stage.phase - 1]
        edges = self.needed_edges if stage.phase == self.last else self.graph.num_edges
        back = stage.direction == "backward"
        programs = [self._on_edges(step, back=back) for step in steps if step.edge is not None]
        sent = tuple(width for step in steps for width in self._widths(step.sent))
        given = tuple(step.site.width for step in steps)
        return StageCost(
            str(stage),
            "edges",
            edges,
            given if back else sent,
            sent if back else given,
            sum(self._numbers(step.learnt) for step in steps),
            sum(self._gather_flops(step, back=back) for step in steps) * edges
            + sum(program.flops(edges) for program in programs),
            sum(self._edge_bytes(step, back=back) for step in steps) * edges,
            0,
            tuple(describe_gather(step.site) for step in steps),
            programs[0].hash if programs else None,
            "\n".join(map(str, programs)),
        )

    def _on_edges(self, step: GatherStep, *, back: bool) -> TensorProgram:
        assert step.edge is not None
        return step.edge.backward or step.edge.forward if back else step.edge.forward

    def _gather_flops(self, step: GatherStep, *, back: bool) -> int:
        """Of one edge, besides what `apply_edge` does."""
        gather, width = step.site.gather, step.site.width
        if isinstance(gather, Softmax):
            # A logit, its exponential and a weighted sum; back, the products that the logits' gradients are made of.
            return (4 if back else 2) * width + 20 * gather.heads
        return (
            2 * width if self.graph.edge_weight is not None and getattr(gather, "weighted", False) else width
        )

    def _edge_bytes(self, step: GatherStep, *, back: bool) -> int:
        """Of the rows that an edge reads."""
        stored = 2 if step.site.gather.precision == "bf16" and self.itemsize == 4 else self.itemsize
        if step.edge is not None:
            ends = 2 * sum(self._widths(step.sent))
            return stored * (ends + step.site.width if back else ends)
        return stored * (step.site.width if back else sum(self._widths(step.sent)))

    def _row_bytes(self, specs: Iterable[Spec | None], rows: int) -> int:
        kinds = {"float": self.itemsize, "int64": 8}
        return sum(
            kinds.get(spec.kind, 1) * math.prod(spec.sizes(rows))
            for spec in specs
            if spec is not None and any(isinstance(size, Rows) for size in spec.shape)
        )

    def _widths(self, names: Iterable[str]) -> tuple[int, ...]:
        return tuple(_width(self.program.shapes[name]) for name in names)

    def _numbers(self, names: Iterable[str]) -> int:
        return sum(self.weights[name].numel() for name in names)


def _width(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def _mask(graph: Graph, rows: Iterable[Tensor]) -> NDArray[np.bool_]:
    mask = np.zeros(graph.num_vertices, np.bool_)
    for ids in rows:
        mask[ids.numpy()] = True
    return mask
