"""Lane: one program on one graph server: its tasks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from siafu.objective.objective import Objective
from siafu.objective.tally import Tally
from siafu.program.execute.sparse_rows import SparseRows
from siafu.program.program import Program, TensorPhase
from siafu.server.fused_gathers import Draw, FusedGathers
from siafu.server.gathers.early_gather import EarlyGather
from siafu.server.gathers.local_gather import LocalGather
from siafu.server.lane_statistics import LaneStatistics
from siafu.server.phase_runner import PhaseRunner
from siafu.server.rows.blocks import Block, Labels, block_rows, blocks_of, chunks_of
from siafu.server.rows.interval_rows import gradient_of
from siafu.server.rows.sparse_constants import ConstantTable
from siafu.server.rows.vertex_gradients import VertexGradients
from siafu.server.statistics import LocalStatistics
from siafu.server.task_rows import TaskRows
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


class Lane(TaskRows):
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
        super().__init__(
            program,
            bounds,
            vertices,
            constants,
            gathers,
            LaneStatistics(program, statistics, len(bounds), leads=leads),
            training=training,
            remade=remade,
            in_place=in_place,
            beside=beside,
            disk=disk,
        )
        self._objective = objective
        again = [run.reads_inputs for run in self._runners]
        self._fused = FusedGathers(program, gathers, fused, again)
        self._itemsize = max([4, *(each.element_size() for each in constants.values())])
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

    def vertices_of(self, interval: int) -> Tensor:
        """The user's numbers of an interval's vertices."""
        return self.ids(self._whole[interval])

    def whole(self, interval: int) -> Block:
        """All rows of an interval."""
        return self._whole[interval]

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
        of_vertices = self._vertex_gradients(run, interval)
        weights = self.statistics.among(weights, phase, interval)
        for chunk in self._chunks[phase][interval]:
            self._fused.gather(phase, self._rows[interval], chunk, weights, draw)
            for block in chunk.blocks:
                inputs, ids = self.labelled_inputs(interval, block), self.labelled_ids(block)
                loss, of_rows, of_weights = run.last(inputs, weights, ids, draw.key, block.y)
                total += loss
                gradients.add(of_vertices.taken_out(block, of_weights, labelled=True))
                self.put_last_gradients(interval, block, of_rows)
        self._rows[interval].end_passing()
        return Done(self.statistics.settled(phase, interval, gradients.sums) | of_vertices.found, (total,))

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
        of_vertices = self._vertex_gradients(run, interval)
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
                gradients.add(of_vertices.taken_out(block, of_weights))
                self.put_gradients(phase, interval, block, of_rows)
            self.send_back_unread(phase, interval, chunk)
        self._rows[interval].end_passing()
        self.end_backward(phase, interval)
        return Done(
            self.statistics.settled(phase, interval, gradients.sums) | of_vertices.found,
            edge_gradients=of_edges.sums,
        )

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

    def _vertex_gradients(self, run: PhaseRunner, interval: int) -> VertexGradients:
        first, last = self.bounds[interval]
        return VertexGradients(run.of_vertices, last - first)

    def _block_size(self, phase: TensorPhase) -> int:
        """Rows that make the widest of a phase's tables about as large as a core's cache."""
        return block_rows((self._width(name) for name in (*phase.inputs, *phase.outputs)), self._itemsize)

    def _width(self, name: str) -> int:
        """Numbers in a row of that name."""
        constant = self.constants.get(name)
        share = 2 * constant.density if isinstance(constant, SparseRows) else 1.0
        return math.ceil(share * math.prod(self.program.shapes[name]))


def _early(local: LocalGather, *, back: bool) -> EarlyGather[Any] | None:
    return local.early_backward if back else local.early_forward
