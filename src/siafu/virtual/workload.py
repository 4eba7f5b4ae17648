"""Workload: what a model's epoch has to do on a graph, stage by stage, from the programs that would run."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from siafu.graph.graph import Graph
from siafu.kernels import LANES, MAX_TILE
from siafu.nn import Softmax, build
from siafu.pipeline.ids import Lane, PhaseId, StageId
from siafu.pipeline.schedule import Schedule, Stage
from siafu.program.program import GatherStep, Program, TensorPhase
from siafu.program.record.record import state_of
from siafu.program.tensor_program import TensorProgram
from siafu.server.plan import Programs, compile_programs, rows_of
from siafu.server.schedules import Groups, evaluation_schedule, training_schedule
from siafu.virtual.costs import Work
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.program_work import RowWork, row_work

_FLOAT = 4
_LINE = 64  # bytes: rows of a table start on a cache line
_ID = 8


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model that is to be built.

    name: "gcn", "gat", "sage" or "gin"
    heads: gat: of every layer but the last, together `hidden` wide
    """

    name: str = "gcn"
    hidden: int = 64
    layers: int = 2
    dropout: float = 0.5
    heads: int = 8


@dataclass(frozen=True)
class Workload:
    """The stages of an epoch and of an evaluation, and what each has to do on the whole graph.

    work:             by lane and stage
    parameter_bytes:  of each phase whose parameters are updated together; parameter_tensors: how many they are
    constant_bytes:   rows that are computed once and kept, a vertex: the features, folded or not
    activation_bytes: tables, kept rows and gradients, a vertex
    ghost_bytes:      the tables' rows, a ghost
    """

    training: Schedule
    evaluation: Schedule
    work: Mapping[tuple[Lane, StageId], Work]
    parameter_bytes: Mapping[PhaseId, float]
    parameter_tensors: Mapping[PhaseId, int]
    constant_bytes: float
    activation_bytes: float
    ghost_bytes: float

    def server_bytes(self, shape: GraphShape, servers: int) -> float:
        """Memory of one graph server: edges both ways, constant rows, labels, tables with ghosts, what is kept."""
        vertices, edges = shape.vertices / servers, shape.edges / servers
        rows = vertices * (self.constant_bytes + self.activation_bytes + 2 * _ID)
        return rows + 2 * _FLOAT * edges + shape.ghosts_of_server(servers) * (self.ghost_bytes + 2 * _ID)


def workload_of(model: ModelShape, shape: GraphShape) -> Workload:
    """Compile the model as `siafu.train` would and say what its stages cost on a graph of that shape."""
    programs, numbers = _compiled(model, shape.features, shape.classes)
    return workload_from(programs, numbers, shape)


@lru_cache(maxsize=32)
def _compiled(model: ModelShape, features: int, classes: int) -> tuple[Programs, Mapping[str, int]]:
    """A model's programs, and how many numbers each of its weights has; no graph's edges matter to them."""
    options = {"act": "elu", "heads": model.heads, "out_heads": 1} if model.name == "gat" else {}
    config = {
        "in_channels": features,
        "hidden_channels": model.hidden,
        "num_layers": model.layers,
        "out_channels": classes,
        "dropout": model.dropout,
    }
    module = build(model.name, config | options)
    vertices = np.arange(2)
    graph = Graph.from_csr(
        np.zeros(3, np.int64),
        np.zeros(0, np.int32),
        x=np.zeros((2, features), np.float32),
        y=np.zeros(2, np.int64),
        train=vertices,
        num_classes=classes,
        name="shape",
    )
    programs = compile_programs(graph, module, rows_of(graph)["train"])
    return programs, {name: each.numel() for name, each in state_of(module).items()}


def workload_from(programs: Programs, numbers: Mapping[str, int], shape: GraphShape) -> Workload:
    """What compiled programs have to do on a graph; numbers: in each weight."""
    training, groups = training_schedule(programs["train"])
    evaluation = evaluation_schedule(programs["evaluate"])
    lanes = {
        "train": _Lane(programs["train"], numbers, shape, shape.train, shape.train_edges, training=True),
        "evaluate": _Lane(
            programs["evaluate"], numbers, shape, shape.labelled, shape.labelled, training=False
        ),
    }
    work: dict[tuple[Lane, StageId], Work] = {}
    for stage in training.stages:
        work["train", stage.id] = lanes["train"].of(stage)
    for stage in evaluation.stages:
        work["evaluate", stage.id] = lanes["evaluate"].of(stage)
    return Workload(
        training,
        evaluation,
        work,
        _parameter_bytes(groups, numbers),
        {phase: len(names) for phase, names in groups.items()},
        lanes["train"].constant_bytes,
        sum(each.activation_bytes for each in lanes.values()),
        sum(each.ghost_bytes for each in lanes.values()),
    )


def _parameter_bytes(groups: Groups, numbers: Mapping[str, int]) -> dict[PhaseId, float]:
    return {phase: float(_FLOAT * sum(numbers[name] for name in names)) for phase, names in groups.items()}


class _Lane:
    """What the stages of one program cost on one graph.

    needed, needed_edges: shares of the rows and edges that the last phase and the gather before it go over
    """

    def __init__(
        self,
        program: Program,
        numbers: Mapping[str, int],
        shape: GraphShape,
        needed: float,
        needed_edges: float,
        *,
        training: bool,
    ) -> None:
        self.program, self.numbers, self.shape, self.training = program, numbers, shape, training
        self.needed, self.needed_edges = needed, needed_edges
        self.last = len(program.phases) - 1

    def of(self, stage: Stage) -> Work:
        return self._tensor(stage) if stage.kind == "tensor" else self._gather(stage)

    @property
    def constant_bytes(self) -> float:
        return self._bytes(self.program.constants)

    @property
    def activation_bytes(self) -> float:
        """A vertex: the gathers' tables and sums, what the phases keep, and the gradients of what was gathered."""
        kept = sum(
            _FLOAT * math.prod(spec.sizes(1)) for phase in self.program.phases for spec in phase.programs.kept
        )
        tables = 2 * self.ghost_bytes if self.training else 1.5 * self.ghost_bytes
        return tables + (kept if self.training else 0)

    @property
    def ghost_bytes(self) -> float:
        """A vertex's rows in all gathers' tables, forth and, in training, back."""
        one_way = sum(_table_row(step) for group in self.program.gathers for step in group)
        return one_way * (2 if self.training else 1)

    def _tensor(self, stage: Stage) -> Work:
        phase = self.program.phases[stage.phase]
        is_last, back = stage.phase == self.last, stage.direction == "backward"
        rows = self.shape.vertices * (self.needed if is_last else 1.0)
        program = _program(phase, stage, training=self.training)
        amounts = row_work(program)
        widths = self._bytes(phase.inputs), self._bytes(phase.outputs)
        constant = self._bytes(name for name in phase.inputs if name in self.program.constants)
        into, made = widths
        if is_last and self.training:
            # In come the sums, out go their gradients.
            made = self._bytes(phase.differentiated)
        elif back:
            into, made = self._bytes(phase.outputs), self._bytes(phase.differentiated)
            constant = 0.0
        work = _scaled(amounts, rows)
        ends = (
            (phase.outputs, phase.differentiated) if back and not is_last else (phase.inputs, phase.outputs)
        )
        found = replace(
            work,
            widths_in=self._widths(ends[0]),
            widths_out=self._widths(ends[1]),
            streamed=rows * (self._touched(phase, stage) * (3 if is_last else 1) + 2 * made),
            widest=max(_FLOAT, *(self._bytes([name]) for name in (*phase.inputs, *phase.outputs))),
            received=rows * (into + (_ID if not back or is_last else 0)),
            constant=rows * (constant + (_ID if constant else 0)),
            sent=rows * made,
            weights=float(_FLOAT * sum(self.numbers[name] for name in phase.weights)),
            gradients=float(_FLOAT * sum(self.numbers[name] for name in phase.learnt)) if back else 0.0,
            ghost_bytes=self._scattered(stage),
        )
        return replace(found, again=self._again(phase, stage, found)) if back and not is_last else found

    def _touched(self, phase: TensorPhase, stage: Stage) -> float:
        """Bytes of a row that the task reads from memory."""
        program = _program(phase, stage, training=self.training)
        return float(
            sum(
                _FLOAT * math.prod(spec.sizes(1))
                for name, spec in program.inputs
                if name.startswith(("rows/", "gradient/", "kept/", "output/"))
            )
        )

    def _again(self, phase: TensorPhase, stage: Stage, found: Work) -> Work | None:
        """What a Lambda computes and receives more where it has not kept the forward pass."""
        whole, kept = phase.programs.backward, phase.programs.backward_kept
        if whole is None or kept is None:
            return None
        more = _less(row_work(whole), row_work(kept))
        constant = self._bytes(name for name in phase.inputs if name in self.program.constants)
        rows = found.rows
        return replace(
            _scaled(more, rows),
            received=rows * (self._bytes(phase.inputs) + _ID),
            constant=rows * (constant + (_ID if constant else 0)),
        )

    def _scattered(self, stage: Stage) -> float:
        """Bytes of a row that goes to a ghost after this stage."""
        if not stage.scatters:
            return 0.0
        forward = stage.direction == "forward"
        group = self.program.gathers[stage.phase if forward else stage.phase - 1]
        return sum(_sent_row(step, back=not forward) for step in group)

    def _gather(self, stage: Stage) -> Work:
        steps = self.program.gathers[stage.phase - 1]
        back = stage.direction == "backward"
        is_last = stage.phase == self.last
        rows = self.shape.vertices * (self.needed if is_last and not back else 1.0)
        edges = self.shape.edges * (self.needed_edges if is_last else 1.0)
        slabs = tuple(row for step in steps for row in _slabs(step))
        on_edges = [_scaled(row_work(_edge_program(step, back=back)), edges) for step in steps if step.edge]
        made = sum(_FLOAT * step.site.width for step in steps)
        return Work(
            rows=rows,
            edges=edges,
            widths_in=tuple(step.site.width for step in steps),
            widths_out=tuple(step.site.width for step in steps),
            products=tuple(each for work in on_edges for each in work.products),
            moved=sum(work.moved for work in on_edges),
            functions=sum(work.functions for work in on_edges),
            streamed=rows * made,
            row_bytes=slabs,
            blocked=not any(isinstance(step.site.gather, Softmax) for step in steps),
            heads=sum(_heads(step) for step in steps),
            back=back,
        )

    def _bytes(self, names: Iterable[str]) -> float:
        return float(_FLOAT * sum(self._widths(names)))

    def _widths(self, names: Iterable[str]) -> tuple[int, ...]:
        return tuple(math.prod(self.program.shapes[name]) for name in names)


def _program(phase: TensorPhase, stage: Stage, *, training: bool) -> TensorProgram:
    programs = phase.programs
    if stage.direction == "forward":
        return programs.forward_keeping if training else programs.forward
    return programs.last or programs.backward_kept or programs.forward


def _edge_program(step: GatherStep, *, back: bool) -> TensorProgram:
    assert step.edge is not None
    return (step.edge.backward or step.edge.forward) if back else step.edge.forward


def _heads(step: GatherStep) -> int:
    gather = step.site.gather
    return gather.heads if isinstance(gather, Softmax) else 0


def _columns(step: GatherStep) -> int:
    """Of a table's row, padded as kernels want it."""
    heads = _heads(step)
    if not heads:
        return step.site.width
    return heads * -(-(step.site.width // heads) // LANES) * LANES


def _slabs(step: GatherStep) -> Sequence[float]:
    """The bytes of a row that are gathered together: whole cache lines, up to a tile of columns at a time."""
    columns = _columns(step)
    widths = [min(MAX_TILE, columns - first) for first in range(0, columns, MAX_TILE)]
    return [float(-(-width * _FLOAT // _LINE) * _LINE) for width in widths]


def _table_row(step: GatherStep) -> float:
    return sum(_slabs(step)) + 4.0 * _FLOAT * _heads(step)


def _sent_row(step: GatherStep, *, back: bool) -> float:
    """Bytes that travel to a ghost: a table's row, and logits."""
    return sum(_slabs(step)) + _heads(step) * _FLOAT * (3 if back else 1)


def _scaled(amounts: RowWork, rows: float) -> Work:
    return Work(
        rows=rows,
        products=tuple(replace(each, flops=each.flops * rows) for each in amounts.products),
        moved=amounts.moved * rows,
        draws=amounts.draws * rows,
        functions=amounts.functions * rows,
        calls=amounts.calls,
    )


def _less(whole: RowWork, part: RowWork) -> RowWork:
    """What `whole` does that `part` does not."""
    products = list(whole.products)
    for each in part.products:
        if each in products:
            products.remove(each)
    return RowWork(
        tuple(products),
        max(0.0, whole.moved - part.moved),
        max(0.0, whole.draws - part.draws),
        max(0.0, whole.functions - part.functions),
        max(0, whole.calls - part.calls),
    )
