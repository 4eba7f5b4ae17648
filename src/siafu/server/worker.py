"""GraphWorker: one graph server's rows, and the tasks that run on them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from siafu.pipeline.events import Measures
from siafu.pipeline.ids import IntervalId, LaneName, PhaseId, ServerId, StageId
from siafu.pipeline.schedule import Schedule, Stage
from siafu.pipeline.task import Task
from siafu.server.lane import Done, Lane, Weights
from siafu.server.memory.disk_share import DiskShare
from siafu.server.remote import TaskInputs, TaskSettings
from siafu.server.rows.sent_rows import SentTable, keep_packed, packed_rows
from siafu.server.schedules import Groups, running_names
from siafu.server.stages.draws import Draws
from siafu.server.stages.registry import stages_of
from siafu.weights.vertex_rows import with_vertices

_NOWHERE = np.iinfo(np.int64).max  # where rows begin of which none came


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows on their way from one table to the ghosts of another.

    first: the place of the first among those that the receiver gets from the sender
    rows:  [n, bytes of a row]
    """

    first: int
    rows: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task gives besides rows.

    gradients: of the parameters that are complete now, by the group that is updated together
    measures:  the loss of a training's last phase; of an evaluation's, what the objective makes of its tallies
    """

    gradients: dict[PhaseId, dict[str, Tensor]]
    measures: Measures


class GraphWorker:
    """Runs tasks on its own rows, in the calling thread; packs rows for other servers' ghosts, and keeps theirs.

    server:         its number
    first_interval: the number of its first interval among those of all servers
    bounds:         its intervals, as ranges of its own rows
    lanes:          the training and the evaluation, each with tables of its own
    schedules:      the stages of each
    groups:         which parameters' gradients go together
    seed:           what dropout is drawn from
    disk:           its tables on disk; None: all are in memory
    """

    def __init__(
        self,
        server: ServerId,
        first_interval: int,
        bounds: Sequence[tuple[int, int]],
        lanes: Mapping[LaneName, Lane],
        schedules: Mapping[LaneName, Schedule],
        groups: Groups,
        seed: int,
        disk: DiskShare | None = None,
    ) -> None:
        self.server, self.lanes, self.disk = server, lanes, disk
        self._first_interval, self._bounds, self._groups = first_interval, bounds, groups
        self._running = running_names(lanes["train"].program) if "train" in lanes else frozenset()
        self._of_vertices = lanes["train"].program.of_vertices if "train" in lanes else frozenset()
        draws = Draws(seed)
        self._stages = {
            name: [stages_of(stage.kind).local(lane, stage, draws) for stage in schedules[name].stages]
            for name, lane in lanes.items()
        }
        self._first_ghosts: dict[tuple[LaneName, StageId, IntervalId], int] = {}
        self.begin_anew()

    @property
    def activation_bytes(self) -> int:
        """Memory for rows and gradients, besides features, constants and edges."""
        return sum(lane.activation_bytes for lane in self.lanes.values())

    @property
    def constant_bytes(self) -> int:
        """Memory for rows that never change; lanes share what is equal."""
        found = {id(each): each for lane in self.lanes.values() for each in lane.constants.values()}
        return sum(each.nbytes for each in found.values())

    def begin_anew(self) -> None:
        """Forget what tasks have left for others: the run goes back to its beginning, or to a checkpoint. None may run."""
        # Gradients of parameters that a later stage gives the rest of.
        self._partial: list[dict[str, Tensor]] = [{} for _ in self._bounds]
        for name, lane in self.lanes.items():
            lane.begin_anew()
            for stage in self._stages[name]:
                stage.begin_anew()

    def close(self) -> None:
        """Let go of tables on disk; no task may run any more."""
        if self.disk is not None:
            self.disk.close()

    def run(self, task: Task, weights: Weights) -> TaskResult:
        """Run a task; what it gives besides rows."""
        interval = task.interval - self._first_interval
        stage = self._stages[task.lane][task.stage.id]
        return self._result(task, stage.run(interval, weights, task.epoch))

    def can_begin(self, task: Task) -> bool:
        """Whether a gather can begin with some of its rows."""
        return self._stages[task.lane][task.stage.id].begins

    def begin(self, task: Task, missing: Sequence[IntervalId]) -> None:
        """Begin a gather, or go on with it; missing: its sources whose rows are not there, own ones first."""
        sent = task.lane, task.stage.reads[0]
        until = min(self._first_row(sent, each) for each in missing)
        stage = self._stages[task.lane][task.stage.id]
        stage.begin(task.interval - self._first_interval, task.epoch, until)

    def _first_row(self, sent: tuple[LaneName, StageId], interval: IntervalId) -> int:
        """Where an interval's rows of a stage begin in the tables that edges read; of ghosts it is known once some came."""
        own, bounds = interval - self._first_interval, self.lanes[sent[0]].bounds
        if 0 <= own < len(bounds):
            return bounds[own][0]
        return self._first_ghosts.get((*sent, interval), bounds[-1][1])

    def task_inputs(self, task: Task, settings: TaskSettings) -> TaskInputs:
        """What to compute elsewhere for a task of a remote kind."""
        stage = self._stages[task.lane][task.stage.id]
        return stage.task_inputs(task.interval - self._first_interval, task.epoch, settings)

    def finish(self, task: Task, outputs: Mapping[str, Tensor]) -> TaskResult:
        """Take what was computed elsewhere; what the task gives besides rows."""
        stage = self._stages[task.lane][task.stage.id]
        return self._result(task, stage.finish(task.interval - self._first_interval, outputs))

    def _result(self, task: Task, done: Done) -> TaskResult:
        partial = self._partial[task.interval - self._first_interval]
        for part in (done.edge_gradients, done.gradients):
            for name, gradient in part.items():
                partial[name] = partial[name] + gradient if name in partial else gradient
        gradients = {
            group: {name: partial.pop(name) for name in self._groups[group] if self._is_given(name, partial)}
            for group in task.stage.gradients
        }
        if self._of_vertices:
            vertices = self.lanes["train"].vertices_of(task.interval - self._first_interval)
            gradients = {
                group: with_vertices(found, self._of_vertices, vertices) for group, found in gradients.items()
            }
        return TaskResult(gradients, done.measures)

    def _is_given(self, name: str, partial: Mapping[str, Tensor]) -> bool:
        """Whether a task gives what a weight is updated with. Statistics that buffers follow come from one interval alone."""
        return name in partial or name not in self._running

    def pack_rows(self, to: ServerId, lane: LaneName, stage: Stage, interval: IntervalId) -> list[Piece]:
        """A copy of the rows that `stage` made of an interval and another server needs, to travel there."""
        found = self._sent(to, lane, stage, interval)
        return [Piece(span.start, packed_rows(source, rows[span])) for source, rows, span in found]

    def keep_rows(
        self, sender: ServerId, lane: LaneName, stage: Stage, interval: IntervalId, pieces: Sequence[Piece]
    ) -> None:
        """Put rows of another server's interval, as it packed them, among the ghosts."""
        first_ghosts = []
        for piece, (target, slots) in zip(pieces, self._received(sender, lane, stage), strict=True):
            if not 0 <= piece.first <= len(slots) - len(piece.rows):
                raise ValueError(f"{len(piece.rows)} rows at {piece.first} for {len(slots)} ghosts")
            filled = slots[piece.first : piece.first + len(piece.rows)]
            keep_packed(piece.rows, target, sender, piece.first, filled)
            first_ghosts += filled[:1].tolist()
        self._first_ghosts[lane, stage.id, interval] = min(first_ghosts, default=_NOWHERE)

    def compare_rows(
        self, sender: ServerId, lane: LaneName, stage: Stage, pieces: Sequence[Piece]
    ) -> tuple[int, int]:
        """Compare rows that another server packed with those among the ghosts: how many came, and how many differ."""
        came = differ = 0
        for piece, (target, slots) in zip(pieces, self._received(sender, lane, stage), strict=True):
            held = packed_rows(target, slots[piece.first : piece.first + len(piece.rows)])
            came += len(held)
            differ += int((held != piece.rows).any(axis=1).sum())
        return came, differ

    def _sent(
        self, to: ServerId, lane: LaneName, stage: Stage, interval: IntervalId
    ) -> Iterator[tuple[SentTable, NDArray[np.int64], slice]]:
        """For each table of a stage: which rows of it another server needs, and which of those are an interval's."""
        own = interval - self._first_interval
        for each in self._stages[lane][stage.id].scattered:
            made = (self.lanes[lane].bounds if each.bounds is None else each.bounds)[own]
            yield from each.taken(to, (interval, interval + 1) if each.exchange.by_interval else made)

    def _received(
        self, sender: ServerId, lane: LaneName, stage: Stage
    ) -> Iterator[tuple[SentTable, NDArray[np.int64]]]:
        """For each table of a stage: where the rows of another server go."""
        for each in self._stages[lane][stage.id].scattered:
            yield from each.put(sender)
