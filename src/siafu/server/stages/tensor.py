"""Tensor stages: a tensor phase, forward or backward, on threads or on Lambdas."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from torch import Tensor

from siafu.pipeline.schedule import Stage
from siafu.pipeline.stage_kind import TENSOR
from siafu.program.program import TensorPhase
from siafu.program.tensor_program import TensorProgram
from siafu.server.costs.extent import Extent
from siafu.server.costs.held_array import HeldArray
from siafu.server.costs.program_work import row_work
from siafu.server.costs.reduce_cost import reduce_cost
from siafu.server.costs.stage_cost import StageCost
from siafu.server.costs.work import Work
from siafu.server.gathers.registry import behaviour_of, column_bytes
from siafu.server.lane import Done, Lane, Weights
from siafu.server.remote import RemotePhases, TaskInputs, TaskSettings
from siafu.server.rows.interval_rows import gradient_of
from siafu.server.rows.lasting_rows import lasting_rows, places_of
from siafu.server.scattered import Scattered
from siafu.server.stages.behaviour import LocalStage, StageBehaviour
from siafu.server.stages.draws import Draws

_ID = 8  # bytes of a vertex's number


class LocalTensorStage(LocalStage):
    """Computes an interval's rows, here or elsewhere."""

    def __init__(self, lane: Lane, stage: Stage, draws: Draws) -> None:
        self._lane, self._stage, self._draws, self._training = lane, stage, draws, lane.training
        self._remote = RemotePhases(lane)
        if stage.phase == len(lane.program.phases) - 1:
            self._compute = lane.learn if lane.training else lane.tally
        else:
            self._compute = partial(
                lane.forward if stage.direction == "forward" else lane.backward, stage.phase
            )
        self.scattered = [
            *(_scattered(lane, stage) if stage.scatters else ()),
            *(_summed(lane, stage) if stage.sums else ()),
        ]

    def run(self, interval: int, weights: Weights, epoch: int) -> Done:
        self._take_totals(interval, epoch)
        return self._compute(interval, weights, self._draws.of(epoch))

    def task_inputs(self, interval: int, epoch: int, settings: TaskSettings) -> TaskInputs:
        self._take_totals(interval, epoch)
        return self._remote.task_inputs(
            self._stage, interval, self._draws.key(epoch), settings, training=self._training
        )

    def _take_totals(self, interval: int, epoch: int) -> None:
        stage, lane = self._stage, self._lane
        if not stage.totals:
            return
        if stage.direction == "forward" or stage.phase == len(lane.program.phases) - 1:
            lane.statistics.take(stage.phase, interval, epoch)
        else:
            lane.statistics.take_gradients(stage.phase, interval, epoch)

    def finish(self, interval: int, outputs: Mapping[str, Tensor]) -> Done:
        return self._remote.finish(self._stage, interval, outputs, training=self._training)


def _scattered(lane: Lane, stage: Stage) -> list[Scattered]:
    if stage.direction == "forward":
        return [each.sent_forward for each in lane.gathers[stage.phase]]
    return [each.sent_backward for each in lane.gathers[stage.phase - 1]]


def _summed(lane: Lane, stage: Stage) -> Iterator[Scattered]:
    if stage.direction == "forward":
        for each in lane.statistics.groups[stage.phase]:
            yield Scattered.whole(each.exchange, (each.forward_table,))
        return
    for each in lane.statistics.groups[stage.phase - 1]:
        if each.backward_table is not None:
            yield Scattered.whole(each.exchange, (each.backward_table,))


class TensorStages(StageBehaviour):
    """Tensor phases. The last of a training makes the loss and goes back at once; that of an evaluation measures."""

    kind = TENSOR

    def local(self, lane: Lane, stage: Stage, draws: Draws) -> LocalStage:
        return LocalTensorStage(lane, stage, draws)

    def cost(self, extent: Extent, stage: Stage) -> StageCost:
        phase = extent.program.phases[stage.phase]
        program = _program(extent, stage)
        rows, is_last = round(extent.rows_of(stage)), stage.phase == extent.last
        read, made = _ends(phase, stage, is_last=is_last)
        keeps = extent.training and stage.direction == "forward" and stage.phase not in extent.savings.remade
        reduced = reduce_cost(extent, stage)
        return StageCost(
            f"{stage.kind.letter}{stage.phase}(loss)"
            if is_last and stage.direction == "backward"
            else str(stage),
            "rows",
            rows,
            extent.widths(read),
            extent.widths(made),
            extent.parameters(phase.learnt),
            program.flops(rows) + round(reduced.flops),
            round(reduced.moved)
            + extent.row_bytes([spec for _, spec in program.inputs], rows)
            + extent.row_bytes([program.specs[number] for _, number in program.outputs], rows),
            extent.row_bytes(phase.programs.kept, rows) if keeps else 0,
            (*reduced.names, *(op.name for op in program.ops)),
            program.hash,
            str(program),
        )

    def work(self, extent: Extent, stage: Stage) -> Work:
        phase = extent.program.phases[stage.phase]
        program = _program(extent, stage)
        is_last, back, rows = (
            stage.phase == extent.last,
            stage.direction == "backward",
            extent.rows_of(stage),
        )
        received, made = extent.bytes(phase.inputs), extent.bytes(phase.outputs)
        constant = _constant_bytes(extent, phase)
        if is_last and extent.training:
            # In come the sums, out go their gradients.
            made = extent.bytes(phase.differentiated)
        elif back:
            received, made = extent.bytes(phase.outputs), extent.bytes(phase.differentiated)
            constant = 0.0
        read, written = _ends(phase, stage, is_last=is_last)
        size, reduced = extent.itemsize, reduce_cost(extent, stage)
        found = replace(
            row_work(program).times(rows),
            widths_in=extent.widths(read),
            widths_out=extent.widths(written),
            streamed=rows * (_touched_bytes(program, size) * (3 if is_last else 1) + 2 * made),
            widest=max(size, *(extent.bytes([name]) for name in (*phase.inputs, *phase.outputs))),
            received=rows * (received + (_ID if not back or is_last else 0)),
            constant=rows * (constant + (_ID if constant else 0)),
            sent=rows * made,
            weights=float(size * extent.parameters(phase.weights)),
            gradients=float(size * extent.parameters(phase.learnt)) if back else 0.0,
            ghost_bytes=_ghost_bytes(extent, stage),
            sum_bytes=reduced.sent,
        )
        found = replace(found, moved=found.moved + reduced.moved)
        return replace(found, again=_again(extent, phase, rows)) if back and not is_last else found

    def held(self, extent: Extent, stage: Stage) -> tuple[HeldArray, ...]:
        return _held_back(extent, stage) if stage.direction == "backward" else _held_forth(extent, stage)


def _held_forth(extent: Extent, stage: Stage) -> tuple[HeldArray, ...]:
    """What later phases read, and what the backward task wants kept."""
    phase = extent.program.phases[stage.phase]
    keeps = extent.training and stage.phase not in extent.savings.remade
    lasting = lasting_rows(extent.program, training=extent.training, remade=extent.savings.remade)
    left = [
        HeldArray(
            name,
            "read by later phases",
            "backward",
            columns,
            extent.itemsize,
            forward="all",
            aligned=False,
            on_disk="rows",
        )
        for name, columns in zip(phase.outputs, extent.widths(phase.outputs), strict=True)
        if name in lasting
    ]
    for k, spec in enumerate(phase.programs.kept if keeps else ()):
        size = extent.itemsize if spec.kind == "float" else np.dtype(spec.kind).itemsize
        name, purpose = f"kept/{stage.phase}/{k}", "saves the backward pass a product"
        columns = math.prod(spec.sizes(1))
        left.append(
            HeldArray(
                name,
                purpose,
                "backward",
                columns,
                size,
                forward="all",
                aligned=False,
                on_threads=True,
                on_disk="rows",
            )
        )
    return tuple(left)


def _held_back(extent: Extent, stage: Stage) -> tuple[HeldArray, ...]:
    """Gradients of rows that were not gathered for this phase: an earlier one takes them; the latest phase makes them."""
    later = {name for number in range(stage.phase + 1, extent.last + 1) for name in _added(extent, number)}
    places = places_of(extent.program, extent.savings.remade) if extent.savings.rows_in_place else {}
    names = [
        name for name in _added(extent, stage.phase) if name not in later and gradient_of(name) not in places
    ]
    return tuple(
        HeldArray(
            f"gradient/{name}",
            "for an earlier phase",
            "backward",
            columns,
            extent.itemsize,
            backward="all",
            aligned=False,
            on_disk="rows",
        )
        for name, columns in zip(names, extent.widths(names), strict=True)
    )


def _added(extent: Extent, phase: int) -> list[str]:
    """Rows whose gradients a phase adds up where others add theirs."""
    gathered = [step.out for step in extent.program.gathers[phase - 1]] if phase else []
    return [name for name in extent.program.phases[phase].differentiated if name not in gathered]


def _program(extent: Extent, stage: Stage) -> TensorProgram:
    programs = extent.program.phases[stage.phase].programs
    keeps = extent.training and stage.phase not in extent.savings.remade
    if stage.direction == "forward":
        return programs.forward_keeping if keeps else programs.forward
    backward = programs.backward_kept if keeps else programs.backward
    return programs.last or backward or programs.forward


def _ends(phase: TensorPhase, stage: Stage, *, is_last: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the rows that a stage reads, and of those that it makes."""
    if stage.direction == "backward" and not is_last:
        return phase.outputs, phase.differentiated
    return phase.inputs, phase.outputs


def _constant_bytes(extent: Extent, phase: TensorPhase) -> float:
    """Of a row of what a phase reads and is the same in every epoch."""
    return extent.bytes(name for name in phase.inputs if name in extent.program.constants)


def _touched_bytes(program: TensorProgram, itemsize: int) -> float:
    """Of a row that the task reads from memory."""
    return float(
        sum(
            itemsize * math.prod(spec.sizes(1))
            for name, spec in program.inputs
            if name.startswith(("rows/", "gradient/", "kept/", "output/"))
        )
    )


def _again(extent: Extent, phase: TensorPhase, rows: float) -> Work | None:
    """What a Lambda computes and receives more where it has not kept the forward pass."""
    whole, kept = phase.programs.backward, phase.programs.backward_kept
    if whole is None or kept is None:
        return None
    constant = _constant_bytes(extent, phase)
    return replace(
        row_work(whole).less(row_work(kept)).times(rows),
        received=rows * (extent.bytes(phase.inputs) + _ID),
        constant=rows * (constant + (_ID if constant else 0)),
    )


def _ghost_bytes(extent: Extent, stage: Stage) -> float:
    """Of a row that goes to a ghost after this stage."""
    if not stage.scatters:
        return 0.0
    forward = stage.direction == "forward"
    group = extent.program.gathers[stage.phase if forward else stage.phase - 1]
    if stage.everywhere:
        return sum(column_bytes(step, extent, made=False, back=not forward) for step in group)
    return sum(
        behaviour_of(step.site.gather).ghost_row(step.site.gather, step.site.width, back=not forward)
        for step in group
    )
