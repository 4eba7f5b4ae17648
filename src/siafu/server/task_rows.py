"""TaskRows: rows of one program on one graph server, by interval: what tasks read and leave for each other."""

from collections.abc import Sequence

import torch
from torch import Tensor

from siafu.program.execute.sparse_rows import SparseRows
from siafu.program.program import GatherStep, Program
from siafu.server.gathers.local_gather import LocalGather
from siafu.server.lane_statistics import LaneStatistics
from siafu.server.phase_runner import PhaseRunner, RowsIn
from siafu.server.rows.blocks import Block, Chunk
from siafu.server.rows.interval_rows import IntervalRows, gradient_of
from siafu.server.rows.lasting_rows import lasting_rows, places_of
from siafu.server.rows.sparse_constants import ConstantTable, is_half_factor
from siafu.server.rows.spilled_rows import SpilledRows
from siafu.server.rows.streamed_rows import StreamedRows
from siafu.tables import NamedTables


class TaskRows:
    """Rows of a program's phases, and their gradients. `Lane`, whose tasks they are of, says what is given."""

    def __init__(
        self,
        program: Program,
        bounds: Sequence[tuple[int, int]],
        vertices: Tensor,
        constants: dict[str, ConstantTable],
        gathers: Sequence[Sequence[LocalGather]],
        statistics: LaneStatistics,
        *,
        training: bool,
        remade: frozenset[int],
        in_place: bool,
        beside: "TaskRows | None",
        disk: NamedTables | None,
    ) -> None:
        self.program, self.bounds, self.gathers, self.training = program, bounds, gathers, training
        self.statistics, self.constants = statistics, constants
        self._factors = frozenset(name for name in constants if is_half_factor(program, name))
        self._vertices, self._disk = vertices, disk
        self._paired = [list(zip(*each, strict=True)) for each in zip(program.gathers, gathers, strict=True)]
        self._gatherers: list[dict[str, LocalGather]] = [
            {},
            *({step.out: local for step, local in group} for group in self._paired),
        ]
        self._memory: list[dict[str, Tensor]] = beside._memory if beside else [{} for _ in bounds]
        self._places = places_of(program, remade) if in_place else {}
        self._runners = [
            PhaseRunner(phase, training=training, keeps=number not in remade)
            for number, phase in enumerate(program.phases)
        ]
        self._lasting = lasting_rows(program, training=training, remade=remade)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what tasks have left for others: gradients of a pass that was broken off would be added to the next's."""
        self._rows = [
            self._interval_rows(first, last, memory)
            for (first, last), memory in zip(self.bounds, self._memory, strict=True)
        ]
        for group in self.gathers:
            for local in group:
                local.begin_anew()
        self.statistics.begin_anew()

    def _interval_rows(self, first: int, last: int, memory: dict[str, Tensor]) -> IntervalRows:
        if self._disk is None:
            return IntervalRows(last - first, memory, self._places)
        return SpilledRows(first, last - first, self._disk)

    def is_constant(self, name: str) -> bool:
        """Whether rows of that name are the same in every epoch."""
        return name in self.constants

    def ids(self, block: Block) -> Tensor:
        return self._vertices[block.first : block.last]

    def labelled_ids(self, block: Block) -> Tensor:
        return _pick(self.ids(block), block.labelled)

    def inputs(self, phase: int, interval: int, block: Block) -> list[RowsIn]:
        """Inputs of a phase, for some rows."""
        rows = self._rows[interval]
        return [self._operand(name, rows, block) for name in self.program.phases[phase].inputs]

    def _inputs_again(self, phase: int, interval: int, block: Block) -> dict[int, RowsIn]:
        """Inputs of a phase that its backward task reads, too, by their places."""
        rows, inputs = self._rows[interval], self.program.phases[phase].inputs
        return {k: self._operand(inputs[k], rows, block) for k in self._runners[phase].reads_inputs}

    def dense_inputs(self, phase: int, interval: int, block: Block) -> list[Tensor]:
        """The same with every zero, for whoever multiplies elsewhere."""
        return [self._row(name, self._rows[interval], block) for name in self.program.phases[phase].inputs]

    def labelled_inputs(self, interval: int, block: Block) -> list[Tensor]:
        """Inputs of the last phase, for the rows that it computes."""
        last = len(self.program.phases) - 1
        return [_pick(each, block.labelled) for each in self.dense_inputs(last, interval, block)]

    def kept(self, phase: int, interval: int, block: Block) -> list[Tensor]:
        """Rows that a phase kept of its forward pass."""
        count = len(self._runners[phase].kept_shapes)
        return [self._rows[interval].get(_kept(phase, k), block.inside) for k in range(count)]

    def put_kept(self, phase: int, interval: int, block: Block, kept: Sequence[Tensor]) -> None:
        """Keep rows of a phase for its backward pass."""
        for k, each in enumerate(kept):
            self._rows[interval].put(_kept(phase, k), block.inside, each)

    def reread_outputs(self, phase: int, interval: int, block: Block) -> dict[int, Tensor]:
        """Outputs of a phase that its backward pass reads, for some rows, by their places among the outputs."""
        outputs, rows = self.program.phases[phase].outputs, self._rows[interval]
        return {k: rows.get(outputs[k], block.inside) for k in self._runners[phase].reads_outputs}

    def put_outputs(self, phase: int, interval: int, block: Block, made: Sequence[Tensor]) -> None:
        """Rows that a phase made: what lasts is stored, what goes along edges is sent."""
        rows = self._rows[interval]
        outputs = dict(zip(self.program.phases[phase].outputs, made, strict=True))
        for name, each in outputs.items():
            if name in self._lasting:
                rows.put(name, block.inside, each)
        for gather, local in self._steps(phase):
            sent = (outputs[n] if n in outputs else self._row(n, rows, block) for n in gather.sent)
            local.send(block.first, block.last, tuple(sent))
        for reduce, statistic in self.statistics.after(phase):
            name = reduce.sent
            statistic.add(interval, outputs[name] if name in outputs else self._row(name, rows, block))

    def end_forward(self, phase: int, interval: int) -> None:
        """All rows of an interval are made: its part of the statistics is known."""
        for _, statistic in self.statistics.after(phase):
            statistic.end(interval)

    def output_gradients(self, phase: int, interval: int, block: Block) -> list[Tensor]:
        """The gradients of what a phase made of some rows."""
        return [self._gradient(phase, interval, block, name) for name in self.program.phases[phase].outputs]

    def put_last_gradients(self, interval: int, block: Block, of_rows: Sequence[Tensor]) -> None:
        """The gradients of what the last phase read, for its labelled rows."""
        phase = len(self.program.phases) - 1
        for name, gradient in zip(self.program.phases[phase].differentiated, of_rows, strict=True):
            local = self._gatherer(phase, name)
            if local is not None:
                local.send_back(block.first, block.last, gradient)
            else:
                self._rows[interval].add_some(gradient_of(name), block.inside, block.labelled, gradient)

    def put_gradients(self, phase: int, interval: int, block: Block, of_rows: Sequence[Tensor]) -> None:
        """The gradients of what a phase read: added to those of others, or sent back along the edges."""
        rows = self._rows[interval]
        made = dict(zip(self.program.phases[phase].differentiated, of_rows, strict=True))
        for name in self._sent_earlier(phase):
            found = self._with_adjoints(phase, interval, block, name, made.get(name))
            if found is not None:
                made[name] = found
        for name, gradient in made.items():
            local = self._gatherer(phase, name)
            if local is None:
                rows.add(gradient_of(name), block.inside, gradient)
            elif name in self.program.phases[phase].differentiated:
                if rows.has(gradient_of(name)):
                    gradient = gradient + rows.get(gradient_of(name), block.inside)
                local.send_back(block.first, block.last, gradient)

    def send_back_unread(self, phase: int, interval: int, rows: Block | Chunk) -> None:
        """Send back the gradients of what was gathered for `phase` and read by later ones alone."""
        for name, local in self._unread(phase):
            known = self._rows[interval]
            found = known.get(gradient_of(name), rows.inside) if known.has(gradient_of(name)) else None
            found = self._with_adjoints(phase, interval, rows, name, found)
            assert found is not None, f"nobody reads {name}"
            local.send_back(rows.first, rows.last, found)

    def end_backward(self, phase: int, interval: int) -> None:
        """All rows have their gradients: forget what is used up."""
        step = self.program.phases[phase]
        used = (*step.outputs, *step.differentiated, *(name for name, _ in self._unread(phase)))
        self._rows[interval].forget(gradient_of(name) for name in used if self._is_used_up(phase, name))

    def _gradient(self, phase: int, interval: int, block: Block, name: str) -> Tensor:
        rows = self._rows[interval]
        found = rows.get(gradient_of(name), block.inside) if rows.has(gradient_of(name)) else None
        found = self._with_adjoints(phase, interval, block, name, found)
        assert found is not None, f"no gradient of {name} has come"
        return found

    def _with_adjoints(
        self, phase: int, interval: int, rows: Block | Chunk, name: str, found: Tensor | None
    ) -> Tensor | None:
        """Gradients of some rows: `found`, and what comes from statistics after `phase`; None: there are none."""
        for reduce, statistic in self.statistics.after(phase):
            if reduce.sent == name and reduce.differentiated:
                values = self._row(name, self._rows[interval], rows) if reduce.variance else None
                count = rows.last - rows.first
                found = self.statistics.adjoint(reduce, statistic, interval, count, values, found)
        return found

    def _sent_earlier(self, phase: int) -> list[str]:
        """Rows that statistics after `phase` are of, which the phase has not made itself."""
        outputs = self.program.phases[phase].outputs
        unread = [name for name, _ in self._unread(phase)]
        sent = dict.fromkeys(reduce.sent for reduce, _ in self.statistics.after(phase))
        return [name for name in sent if name not in outputs and name not in unread]

    def _unread(self, phase: int) -> list[tuple[str, LocalGather]]:
        """Rows gathered for `phase` that it does not read itself, and whose they are."""
        if phase == 0:
            return []
        read = self.program.phases[phase].differentiated
        return [(gather.out, local) for gather, local in self._steps(phase - 1) if gather.out not in read]

    def _steps(self, before: int) -> list[tuple[GatherStep, LocalGather]]:
        """The gathers that come after tensor phase `before`."""
        return self._paired[before]

    def _gatherer(self, phase: int, name: str) -> LocalGather | None:
        """Whose rows those are, if they are gathered just before `phase`."""
        return self._gatherers[phase].get(name)

    def _is_used_up(self, phase: int, name: str) -> bool:
        """Whether no earlier phase reads the gradient of these rows after the backward task of `phase`."""
        return name in self.program.phases[phase].outputs or self._gatherer(phase, name) is not None

    def _operand(self, name: str, rows: IntervalRows, block: Block) -> RowsIn:
        constant = self.constants.get(name)
        if isinstance(constant, SparseRows):
            return constant.rows(block.first, block.last)
        if constant is not None and name in self._factors:
            return _picked(constant, block)
        return self._row(name, rows, block)

    def _row(self, name: str, rows: IntervalRows, block: Block | Chunk) -> Tensor:
        constant = self.constants.get(name)
        if constant is None:
            return rows.get(name, block.inside)
        if isinstance(constant, SparseRows):
            return constant.rows(block.first, block.last).dense()
        picked = _picked(constant, block)
        # Stored in half the memory, they are widened where they are used: a block at a time, in the cache.
        return picked.float() if picked.dtype == torch.bfloat16 else picked


def _kept(phase: int, number: int) -> str:
    return f"kept/{phase}/{number}"


def _picked(constant: Tensor | StreamedRows, block: Block | Chunk) -> Tensor:
    """A block of constant rows, in the type that they are stored in."""
    first, last = block.first, block.last
    return constant.block(first, last) if isinstance(constant, StreamedRows) else constant[first:last]


def _pick(rows: Tensor, which: Tensor | None) -> Tensor:
    return rows if which is None else rows.index_select(0, which)
