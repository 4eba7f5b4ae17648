"""Lane: one program on one graph server: what its tasks read, make and leave for each other."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from siafu.objective.objective import Objective
from siafu.objective.tally import Tally
from siafu.program.execute.sparse_rows import SparseRows
from siafu.program.program import GatherStep, Program, TensorPhase
from siafu.server.fused_gathers import Draw, FusedGathers
from siafu.server.gathers.early_gather import EarlyGather
from siafu.server.gathers.local_gather import LocalGather
from siafu.server.lane_statistics import LaneStatistics
from siafu.server.phase_runner import PhaseRunner, RowsIn
from siafu.server.rows.blocks import Block, Chunk, Labels, block_rows, blocks_of, chunks_of
from siafu.server.rows.interval_rows import IntervalRows, gradient_of
from siafu.server.rows.lasting_rows import lasting_rows, places_of
from siafu.server.rows.sparse_constants import ConstantTable
from siafu.server.rows.spilled_rows import SpilledRows
from siafu.server.rows.streamed_rows import StreamedRows
from siafu.server.statistics import LocalStatistics
from siafu.tables import NamedTables
from siafu.weights.gradient_sums import GradientSums

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Done:
    """What a task gives besides rows.

    gradients: of the weights that its phase reads, by name
    edge_gradients: of the weights that edge functions read, where a tensor task gathers gradients itself
    measures:  its rows' part of the loss, where a training's epoch ends; where an evaluation ends, its rows' tallies by
               split, as `Objective.encode` has them; else nothing
    """

    gradients: dict[str, Tensor] = field(default_factory=dict)
    measures: tuple[float, ...] = ()
    edge_gradients: Mapping[str, Tensor] = field(default_factory=dict)


class Lane:
    """A program's tables on one server; every method runs one task, on one interval, in the calling thread.

    bounds:    the server's intervals, as ranges of own rows
    vertices:  [n] the user's numbers of the own vertices, which dropout draws by
    constants: rows that never change, [n, …] each, in the type to compute in or in bfloat16, or without their zeros
    gathers:   for each graph phase, its gathers on this server's edges
    labels:    of the rows that the last phase computes
    objective: what is learnt
    training:  whether a backward pass follows
    fused:     the graph phases, by place, whose gathered rows have no table: a tensor phase gathers what it reads, a chunk
               at a time, and gathers it again on the way back
    remade:    the tensor phases that keep nothing for their backward pass: it computes the products again
    in_place:  gradients take the place of rows of an interval that nobody reads any more
    beside:    a lane whose rows' memory this one uses, and which never runs at a time with it; None: it has its own
    disk:      where rows of intervals are; None: in memory
    statistics: for each place between two tensor phases, statistics over all vertices; (): there are none anywhere
    leads:     its first interval is the first of all: it gives the statistics that buffers of the model follow
    """

    def __init__(
        self,
        program: Program,
        bounds: Sequence[tuple[int, int]],
        vertices: Tensor,
        constants: dict[str, ConstantTable],
        gathers: Sequence[Sequence[LocalGather]],
        labels: Labels,
        objective: Objective,
        *,
        training: bool,
        fused: frozenset[int] = frozenset(),
        remade: frozenset[int] = frozenset(),
        in_place: bool = False,
        beside: "Lane | None" = None,
        disk: NamedTables | None = None,
        statistics: Sequence[Sequence[LocalStatistics]] = (),
        leads: bool = True,
    ) -> None:
        self.statistics = LaneStatistics(program, statistics, len(bounds), leads=leads)
        self._disk = disk
        self.program, self.bounds, self.gathers, self.training = program, bounds, gathers, training
        self._paired = [list(zip(*each, strict=True)) for each in zip(program.gathers, gathers, strict=True)]
        self._gatherers: list[dict[str, LocalGather]] = [
            {},
            *({step.out: local for step, local in group} for group in self._paired),
        ]
        self._objective = objective
        self._vertices, self.constants = vertices, constants
        self._memory: list[dict[str, Tensor]] = beside._memory if beside else [{} for _ in bounds]
        self._places = places_of(program, remade) if in_place else {}
        self.begin_anew()
        self._runners = [
            PhaseRunner(phase, training=training, keeps=number not in remade)
            for number, phase in enumerate(program.phases)
        ]
        again = [run.reads_inputs for run in self._runners]
        self._fused = FusedGathers(program, gathers, fused, again)
        self._lasting = lasting_rows(program, training=training, remade=remade)
        self._itemsize = max(4, *(each.element_size() for each in constants.values()))
        self._whole = [blocks_of(first, last, max(1, last - first), labels)[0] for first, last in bounds]
        self._chunks = [
            [
                chunks_of(
                    blocks_of(first, last, self._block_size(phase), labels), self._fused.chunk_rows(number)
                )
                for first, last in bounds
            ]
            for number, phase in enumerate(program.phases)
        ]

    @property
    def activation_bytes(self) -> int:
        """Memory that the gathers' tables take, and what phases leave for later ones and for their backward pass."""
        tables = sum(local.held_bytes for group in self.gathers for local in group)
        tables += self.statistics.held_bytes
        shapes = [self.program.shapes[name] for name in self._lasting]
        shapes += [shape for run in self._runners for shape in run.kept_shapes]
        return tables + len(self._vertices) * self._itemsize * sum(math.prod(shape) for shape in shapes)

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

    def forward(self, phase: int, interval: int, weights: Weights, draw: Draw) -> Done:
        """A tensor phase that is not the last: rows come in, rows go out along the edges."""
        run, weights = self._runners[phase], self.statistics.among(weights, phase, interval)
        for chunk in self._chunks[phase][interval]:
            self._fused.gather(phase, self._rows[interval], chunk, weights, draw)
            for block in chunk.blocks:
                inputs = self.inputs(phase, interval, block)
                made, kept = run.forward(inputs, weights, self.ids(block), draw.key)
                self.put_kept(phase, interval, block, kept)
                self.put_outputs(phase, interval, block, made)
        self._rows[interval].end_passing()
        self.end_forward(phase, interval)
        return Done()

    def put_kept(self, phase: int, interval: int, block: Block, kept: Sequence[Tensor]) -> None:
        """What a phase wants for its backward pass."""
        for k, each in enumerate(kept):
            self._rows[interval].put(_kept(phase, k), block.inside, each)

    def kept(self, phase: int, interval: int, block: Block) -> list[Tensor]:
        """What a phase's forward pass kept of some rows."""
        count = len(self._runners[phase].kept_shapes)
        return [self._rows[interval].get(_kept(phase, k), block.inside) for k in range(count)]

    def reread_outputs(self, phase: int, interval: int, block: Block) -> dict[int, Tensor]:
        """What a phase made of some rows, by its place among the outputs, where its backward pass reads it."""
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

    def gather(self, phase: int, interval: int, weights: Weights, draw: Draw) -> Done:
        """The graph phase before tensor phase `phase`, for one interval's vertices."""
        first, last = self.bounds[interval]
        for gather, local in self._steps(phase - 1):
            found = local.forward(first, last, weights=weights, **draw.of(gather))
            self._rows[interval].lend(gather.out, found)
        return Done()

    def begins(self, phase: int, *, back: bool) -> bool:
        """Whether the gathers before tensor phase `phase`, or their adjoints, can begin with some of their rows."""
        return all(_early(local, back=back) is not None for _, local in self._steps(phase - 1))

    def begin_gather(self, phase: int, interval: int, draw: Draw, until: int, *, back: bool) -> None:
        """Add the rows of the sources before `until` to what `gather`, or `gather_back`, will give for an interval."""
        for gather, local in self._steps(phase - 1):
            early = _early(local, back=back)
            assert early is not None, "asked before: begins"
            early.add(*self.bounds[interval], until, **draw.of(gather))

    def learn(self, interval: int, weights: Weights, draw: Draw) -> Done:
        """The last tensor phase with the loss and its gradient."""
        phase = len(self.program.phases) - 1
        run, total, gradients = self._runners[phase], 0.0, GradientSums()
        weights = self.statistics.among(weights, phase, interval)
        for chunk in self._chunks[phase][interval]:
            self._fused.gather(phase, self._rows[interval], chunk, weights, draw)
            for block in chunk.blocks:
                inputs, ids = self.labelled_inputs(interval, block), self.labelled_ids(block)
                loss, of_rows, of_weights = run.last(inputs, weights, ids, draw.key, block.y)
                total += loss
                gradients.add(of_weights)
                self.put_last_gradients(interval, block, of_rows)
        self._rows[interval].end_passing()
        return Done(self.statistics.settled(phase, interval, gradients.sums), (total,))

    def put_last_gradients(self, interval: int, block: Block, of_rows: Sequence[Tensor]) -> None:
        """The gradients of what the last phase read, for its labelled rows."""
        phase = len(self.program.phases) - 1
        for name, gradient in zip(self.program.phases[phase].differentiated, of_rows, strict=True):
            local = self._gatherer(phase, name)
            if local is not None:
                local.send_back(block.first, block.last, gradient)
            else:
                spread = _spread(gradient, block.labelled, block.last - block.first)
                self._rows[interval].add(gradient_of(name), block.inside, spread)

    def gather_back(self, phase: int, interval: int, weights: Weights, draw: Draw) -> Done:
        """The adjoint of `gather`: the gradients of what tensor phase `phase - 1` sent."""
        first, last = self.bounds[interval]
        gradients = GradientSums()
        for gather, local in self._steps(phase - 1):
            found = local.backward(first, last, weights=weights, **draw.of(gather))
            for name, gradient in zip(gather.sent, found.sent, strict=True):
                if name in gather.differentiated:
                    self._rows[interval].add_whole(gradient_of(name), gradient)
            gradients.add(found.weights)
        return Done(gradients.sums)

    def backward(self, phase: int, interval: int, weights: Weights, draw: Draw) -> Done:
        """The adjoint of `forward`."""
        run, gradients, of_edges = self._runners[phase], GradientSums(), GradientSums()
        weights = self.statistics.among(weights, phase, interval)
        for chunk in self._chunks[phase][interval]:
            self._rows[interval].end_passing()
            of_edges.add(self._fused.gather_back(phase, self._rows[interval], chunk, weights, draw))
            self._fused.gather_again(phase, self._rows[interval], chunk, weights, draw)
            for block in chunk.blocks:
                of_rows, of_weights = run.backward(
                    self._inputs_again(phase, interval, block),
                    self.reread_outputs(phase, interval, block),
                    self.kept(phase, interval, block),
                    weights,
                    self.ids(block),
                    draw.key,
                    self.output_gradients(phase, interval, block),
                )
                gradients.add(of_weights)
                self.put_gradients(phase, interval, block, of_rows)
            self.send_back_unread(phase, interval, chunk)
        self._rows[interval].end_passing()
        self.end_backward(phase, interval)
        return Done(self.statistics.settled(phase, interval, gradients.sums), edge_gradients=of_edges.sums)

    def put_gradients(self, phase: int, interval: int, block: Block, of_rows: Sequence[Tensor]) -> None:
        """The gradients of what a phase read: added to those of others, or sent back along the edges."""
        rows = self._rows[interval]
        made = dict(zip(self.program.phases[phase].differentiated, of_rows, strict=True))
        for name, gradient in self._earlier_adjoints(phase, interval, block):
            made[name] = made[name] + gradient if name in made else gradient
        for name, gradient in made.items():
            local = self._gatherer(phase, name)
            if local is None:
                rows.add(gradient_of(name), block.inside, gradient)
            elif name in self.program.phases[phase].differentiated:
                if rows.has(gradient_of(name)):
                    gradient = gradient + rows.get(gradient_of(name), block.inside)
                local.send_back(block.first, block.last, gradient)

    def end_backward(self, phase: int, interval: int) -> None:
        """All rows have their gradients: forget what is used up."""
        step = self.program.phases[phase]
        used = (*step.outputs, *step.differentiated, *(name for name, _ in self._unread(phase)))
        self._rows[interval].forget(gradient_of(name) for name in used if self._is_used_up(phase, name))

    def send_back_unread(self, phase: int, interval: int, rows: Block | Chunk) -> None:
        """Send back the gradients of what was gathered for `phase` and read by later ones alone."""
        for name, local in self._unread(phase):
            known = self._rows[interval]
            found = known.get(gradient_of(name), rows.inside) if known.has(gradient_of(name)) else None
            for adjoint in self._adjoints(phase, interval, rows, name):
                found = adjoint if found is None else found + adjoint
            assert found is not None, f"nobody reads {name}"
            local.send_back(rows.first, rows.last, found)

    def _unread(self, phase: int) -> list[tuple[str, LocalGather]]:
        """Rows gathered for `phase` that it does not read itself, and whose they are."""
        if phase == 0:
            return []
        read = self.program.phases[phase].differentiated
        return [(gather.out, local) for gather, local in self._steps(phase - 1) if gather.out not in read]

    def tally(self, interval: int, weights: Weights, draw: Draw) -> Done:
        """The last tensor phase of an evaluation: how good its rows are."""
        phase = len(self.program.phases) - 1
        run, weights = self._runners[phase], self.statistics.among(weights, phase, interval)
        tallies: dict[str, Tally] = {}
        for chunk in self._chunks[phase][interval]:
            self._fused.gather(phase, self._rows[interval], chunk, weights, draw)
            for block in chunk.blocks:
                inputs, ids = self.labelled_inputs(interval, block), self.labelled_ids(block)
                (logits,), _ = run.forward(inputs, weights, ids, draw.key)
                for split, tally in self._tallies(block, logits).items():
                    tallies[split] = tallies[split] + tally if split in tallies else tally
        self._rows[interval].end_passing()
        return Done(measures=self._objective.encode(tallies))

    def tallied(self, block: Block, logits: Tensor) -> Done:
        """The same for one block, whose rows were computed elsewhere."""
        return Done(measures=self._objective.encode(self._tallies(block, logits)))

    def _tallies(self, block: Block, logits: Tensor) -> dict[str, Tally]:
        """How good a block's labelled rows are, by split."""
        return {
            split: self._objective.tally(logits[mask], block.y[mask]) for split, mask in block.splits.items()
        }

    def is_constant(self, name: str) -> bool:
        """Whether rows of that name are the same in every epoch."""
        return name in self.constants

    def whole(self, interval: int) -> Block:
        """All rows of an interval."""
        return self._whole[interval]

    def inputs(self, phase: int, interval: int, block: Block) -> list[RowsIn]:
        """What a phase reads of some rows."""
        rows = self._rows[interval]
        return [self._operand(name, rows, block) for name in self.program.phases[phase].inputs]

    def _inputs_again(self, phase: int, interval: int, block: Block) -> dict[int, RowsIn]:
        """Inputs of a phase that its backward task reads, too, by their places."""
        rows, inputs = self._rows[interval], self.program.phases[phase].inputs
        return {k: self._operand(inputs[k], rows, block) for k in self._runners[phase].reads_inputs}

    def dense_inputs(self, phase: int, interval: int, block: Block) -> list[Tensor]:
        """The same with every zero, for whoever multiplies elsewhere."""
        return [self._row(name, self._rows[interval], block) for name in self.program.phases[phase].inputs]

    def output_gradients(self, phase: int, interval: int, block: Block) -> list[Tensor]:
        """The gradients of what a phase made of some rows."""
        return [self._gradient(phase, interval, block, name) for name in self.program.phases[phase].outputs]

    def _gradient(self, phase: int, interval: int, block: Block, name: str) -> Tensor:
        rows = self._rows[interval]
        found = rows.get(gradient_of(name), block.inside) if rows.has(gradient_of(name)) else None
        for adjoint in self._adjoints(phase, interval, block, name):
            found = adjoint if found is None else found + adjoint
        assert found is not None, f"no gradient of {name} has come"
        return found

    def _adjoints(self, phase: int, interval: int, rows: Block | Chunk, name: str) -> Iterator[Tensor]:
        """Gradients of some rows that come from statistics after `phase`."""
        for reduce, statistic in self.statistics.after(phase):
            if reduce.sent == name and reduce.differentiated:
                values = self._row(name, self._rows[interval], rows) if reduce.variance else None
                yield self.statistics.adjoint(reduce, statistic, interval, rows.last - rows.first, values)

    def _earlier_adjoints(self, phase: int, interval: int, block: Block) -> Iterator[tuple[str, Tensor]]:
        """The same for rows that the phase has not made itself."""
        outputs = self.program.phases[phase].outputs
        unread = [name for name, _ in self._unread(phase)]
        for name in dict.fromkeys(reduce.sent for reduce, _ in self.statistics.after(phase)):
            if name not in outputs and name not in unread:
                for adjoint in self._adjoints(phase, interval, block, name):
                    yield name, adjoint

    def ids(self, block: Block) -> Tensor:
        return self._vertices[block.first : block.last]

    def labelled_inputs(self, interval: int, block: Block) -> list[Tensor]:
        """What the last phase reads of those rows that it computes."""
        last = len(self.program.phases) - 1
        return [_pick(each, block.labelled) for each in self.dense_inputs(last, interval, block)]

    def labelled_ids(self, block: Block) -> Tensor:
        return _pick(self.ids(block), block.labelled)

    def _block_size(self, phase: TensorPhase) -> int:
        """Rows that make the widest of a phase's tables about as large as a core's cache."""
        return block_rows((self._width(name) for name in (*phase.inputs, *phase.outputs)), self._itemsize)

    def _width(self, name: str) -> int:
        """Numbers in a row of that name."""
        constant = self.constants.get(name)
        share = 2 * constant.density if isinstance(constant, SparseRows) else 1.0
        return math.ceil(share * math.prod(self.program.shapes[name]))

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
        return self._row(name, rows, block)

    def _row(self, name: str, rows: IntervalRows, block: Block | Chunk) -> Tensor:
        constant = self.constants.get(name)
        if constant is None:
            return rows.get(name, block.inside)
        if isinstance(constant, SparseRows):
            return constant.rows(block.first, block.last).dense()
        first, last = block.first, block.last
        picked = constant.block(first, last) if isinstance(constant, StreamedRows) else constant[first:last]
        # Stored in half the memory, they are widened where they are used: a block at a time, in the cache.
        return picked.float() if picked.dtype == torch.bfloat16 else picked


def _early(local: LocalGather, *, back: bool) -> EarlyGather[Any] | None:
    return local.early_backward if back else local.early_forward


def _kept(phase: int, number: int) -> str:
    return f"kept/{phase}/{number}"


def _pick(rows: Tensor, which: Tensor | None) -> Tensor:
    return rows if which is None else rows.index_select(0, which)


def _spread(rows: Tensor, which: Tensor | None, count: int) -> Tensor:
    """`rows` at the places `which` of `count`, zero elsewhere."""
    if which is None:
        return rows
    return rows.new_zeros((count, *rows.shape[1:])).index_copy_(0, which, rows)
