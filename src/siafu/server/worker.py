"""GraphWorker: one graph server's rows, and the tasks that run on them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.graph.content import SPLITS
from siafu.kernels import Table
from siafu.nn.dropout import site_key
from siafu.nn.tally import Tally
from siafu.pipeline.events import Measures
from siafu.pipeline.ids import IntervalId, PhaseId, ServerId
from siafu.pipeline.ids import Lane as LaneName
from siafu.pipeline.schedule import Stage
from siafu.pipeline.task import Task
from siafu.server.copying import copy_rows, place_rows, taken_rows
from siafu.server.edges import Exchange
from siafu.server.lane import Done, Lane, Weights
from siafu.server.remote import Habits, RemotePhases, TensorJob
from siafu.server.schedules import Groups


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows on their way from one table to the ghosts of another.

    first: the place of the first among those that the receiver gets from the sender
    rows:  [n, bytes of a row]
    """

    first: int
    rows: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Result:
    """What a task gives besides rows.

    gradients: of the parameters that are complete now, by the group that is updated together
    measures:  the loss of a training's last phase; of an evaluation's, what `measures_of` makes of its tallies
    """

    gradients: dict[PhaseId, dict[str, Tensor]]
    measures: Measures


def measures_of(tallies: Mapping[str, Tally]) -> Measures:
    """Tallies of all splits as numbers that can be added up; first the losses of all."""
    found = [tallies.get(split, Tally()) for split in SPLITS]
    parts = [(each.rows, each.loss_sum, each.loss_terms, each.hits, each.tries) for each in found]
    return (sum(each.loss_sum for each in found), *(float(number) for part in parts for number in part))


def tallies_of(measures: Measures) -> dict[str, Tally]:
    """The tallies that `measures_of` or a sum of such came from; splits without rows are left out."""
    tallies = {}
    for place, split in enumerate(SPLITS):
        rows, loss, terms, hits, tries = measures[1 + 5 * place : 6 + 5 * place]
        if rows:
            tallies[split] = Tally(int(rows), loss, int(terms), int(hits), int(tries))
    return tallies


class GraphWorker:
    """Runs tasks on its own rows, in the calling thread, and copies rows into another server's ghosts.

    server:         its number
    first_interval: the number of its first interval among those of all servers
    bounds:         its intervals, as ranges of its own rows
    lanes:          the training and the evaluation, each with tables of its own
    groups:         which parameters' gradients go together
    seed:           what dropout is drawn from
    """

    def __init__(
        self,
        server: ServerId,
        first_interval: int,
        bounds: Sequence[tuple[int, int]],
        lanes: Mapping[LaneName, Lane],
        groups: Groups,
        seed: int,
    ) -> None:
        self.server, self.lanes = server, lanes
        self._first_interval, self._bounds, self._groups, self._seed = first_interval, bounds, groups, seed
        self._remote = {name: RemotePhases(lane) for name, lane in lanes.items()}
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
        for lane in self.lanes.values():
            lane.begin_anew()

    def run(self, task: Task, weights: Weights) -> Result:
        """Run a task; what it gives besides rows."""
        return self._result(task, self._run(task, weights))

    def job(self, task: Task, habits: Habits) -> TensorJob:
        """What to compute elsewhere for a tensor task."""
        interval = task.interval - self._first_interval
        remote = self._remote[task.lane]
        return remote.job(task.stage, interval, self._key(task), habits, training=task.lane == "train")

    def finish(self, task: Task, outputs: Mapping[str, Tensor]) -> Result:
        """Take what was computed elsewhere; what the task gives besides rows."""
        interval = task.interval - self._first_interval
        remote = self._remote[task.lane]
        done = remote.finish(task.stage, interval, outputs, training=task.lane == "train")
        return self._result(task, done)

    def _result(self, task: Task, done: Done) -> Result:
        partial = self._partial[task.interval - self._first_interval]
        for name, gradient in done.gradients.items():
            partial[name] = partial[name] + gradient if name in partial else gradient
        gradients = {
            group: {name: partial.pop(name) for name in self._groups[group]} for group in task.stage.gradients
        }
        if done.tallies is not None:
            return Result(gradients, measures_of(done.tallies))
        return Result(gradients, () if done.loss is None else (done.loss,))

    def _run(self, task: Task, weights: Weights) -> Done:
        lane, stage = self.lanes[task.lane], task.stage
        interval = task.interval - self._first_interval
        if stage.kind == "gather":

            def seeds(site: int) -> int:
                return int(site_key(self._seed, task.epoch, site))

            walk = lane.gather if stage.direction == "forward" else lane.gather_back
            return walk(stage.phase, interval, weights, seeds)
        key = self._key(task)
        if stage.phase == len(lane.program.phases) - 1:
            end = lane.learn if task.lane == "train" else lane.tally
            return end(interval, weights, key)
        compute = lane.forward if stage.direction == "forward" else lane.backward
        return compute(stage.phase, interval, weights, key)

    def _key(self, task: Task) -> Tensor:
        return torch.tensor([self._seed, task.epoch], dtype=torch.int64)

    def send_rows(self, to: "GraphWorker", lane: LaneName, stage: Stage, interval: IntervalId) -> int:
        """Copy the rows that `stage` made of an interval to the ghosts of another server; how many bytes went."""
        copied = 0
        theirs = to._received(self.server, lane, stage)
        for (source, rows, span), (target, slots) in zip(
            self._sent(to.server, lane, stage, interval), theirs, strict=True
        ):
            copied += copy_rows(source, rows[span], target, slots[span])
        return copied

    def pack_rows(self, to: ServerId, lane: LaneName, stage: Stage, interval: IntervalId) -> list[Piece]:
        """A copy of the rows that `stage` made of an interval and another server needs, to travel there."""
        found = self._sent(to, lane, stage, interval)
        return [Piece(span.start, _bytes(taken_rows(source, rows[span]))) for source, rows, span in found]

    def keep_rows(self, sender: ServerId, lane: LaneName, stage: Stage, pieces: Sequence[Piece]) -> None:
        """Put rows of another server, as it packed them, among the ghosts."""
        for piece, (target, slots) in zip(pieces, self._received(sender, lane, stage), strict=True):
            rows = _rows_of(piece.rows, target)
            if not 0 <= piece.first <= len(slots) - len(rows):
                raise ValueError(f"{len(rows)} rows at {piece.first} for {len(slots)} ghosts")
            place_rows(rows, target, slots[piece.first : piece.first + len(rows)])

    def _sent(
        self, to: ServerId, lane: LaneName, stage: Stage, interval: IntervalId
    ) -> Iterator[tuple[Table, NDArray[np.int64], slice]]:
        """For each table of a stage: which rows of it another server needs, and which of those are an interval's."""
        first, last = self._bounds[interval - self._first_interval]
        for exchange, tables in self._exchanges(lane, stage):
            rows = exchange.send[to]
            lo, hi = np.searchsorted(rows, (first, last))
            for table in tables:
                yield table, rows, slice(int(lo), int(hi))

    def _received(
        self, sender: ServerId, lane: LaneName, stage: Stage
    ) -> Iterator[tuple[Table, NDArray[np.int64]]]:
        """For each table of a stage: where the rows of another server go."""
        for exchange, tables in self._exchanges(lane, stage):
            for table in tables:
                yield table, exchange.receive[sender]

    def _exchanges(self, lane: LaneName, stage: Stage) -> Iterator[tuple[Exchange, list[Table]]]:
        forward = stage.direction == "forward"
        phase = stage.phase if forward else stage.phase - 1
        for each in self.lanes[lane].gathers[phase]:
            if forward:
                yield each.forward_exchange, each.forward_tables
            else:
                yield each.backward_exchange, each.backward_tables


def _bytes(rows: Table) -> NDArray[np.uint8]:
    """[n, bytes of a row], whatever the rows are of."""
    return rows.view(np.uint8).reshape(len(rows), rows.shape[1] * rows.itemsize)


def _rows_of(packed: NDArray[np.uint8], like: Table) -> Table:
    if packed.dtype != np.uint8 or packed.shape[1:] != (like.shape[1] * like.itemsize,):
        raise ValueError(f"rows of {packed.shape[1:]} bytes, not {like.shape[1] * like.itemsize}")
    return np.ascontiguousarray(packed).view(like.dtype)
