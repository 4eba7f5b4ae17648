"""GraphWorker: one graph server's rows, and the tasks that run on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from siafu.nn.dropout import site_key
from siafu.nn.tally import Tally
from siafu.pipeline.events import Measures
from siafu.pipeline.ids import IntervalId, PhaseId, ServerId
from siafu.pipeline.ids import Lane as LaneName
from siafu.pipeline.schedule import Stage
from siafu.pipeline.task import Task
from siafu.server.copying import copy_rows
from siafu.server.lane import Done, Lane, Weights
from siafu.server.remote import RemotePhases, TensorJob
from siafu.server.schedules import Groups

SPLITS = ("train", "val", "test")


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
        # Gradients of parameters that a later stage gives the rest of.
        self._partial: list[dict[str, Tensor]] = [{} for _ in bounds]

    @property
    def activation_bytes(self) -> int:
        """Memory for rows and gradients, besides features, constants and edges."""
        return sum(lane.activation_bytes for lane in self.lanes.values())

    def run(self, task: Task, weights: Weights) -> Result:
        """Run a task; what it gives besides rows."""
        return self._result(task, self._run(task, weights))

    def job(self, task: Task) -> TensorJob:
        """What to compute elsewhere for a tensor task."""
        interval = task.interval - self._first_interval
        remote = self._remote[task.lane]
        return remote.job(task.stage, interval, self._key(task), training=task.lane == "train")

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
        first, last = self._bounds[interval - self._first_interval]
        forward = stage.direction == "forward"
        phase = stage.phase if forward else stage.phase - 1
        copied = 0
        for mine, theirs in zip(self.lanes[lane].gathers[phase], to.lanes[lane].gathers[phase], strict=True):
            here, there = (
                (each.forward_exchange, each.forward_tables)
                if forward
                else (each.backward_exchange, each.backward_tables)
                for each in (mine, theirs)
            )
            rows, slots = here[0].send[to.server], there[0].receive[self.server]
            lo, hi = np.searchsorted(rows, (first, last))
            for source, target in zip(here[1], there[1], strict=True):
                copied += copy_rows(source, rows[lo:hi], target, slots[lo:hi])
        return copied
