"""GraphServer: the machine that takes one server's intervals through the epochs."""

from collections.abc import Callable
from typing import Any

from siafu.pipeline.again import gradients_again, rows_again
from siafu.pipeline.ahead import Ahead
from siafu.pipeline.events import (
    Begin,
    CopyStands,
    EpochFinished,
    EvaluationStarted,
    Event,
    GradientArrived,
    GradientTaken,
    Noted,
    Proceed,
    Ready,
    Resume,
    RowsArrived,
    ServerAdvanced,
    TakenOver,
    TaskDone,
    TaskStarted,
    WeightsAsked,
    WeightsGranted,
    WeightsReleased,
)
from siafu.pipeline.graph_basis import GraphBasis, VersionPin
from siafu.pipeline.ids import (
    FIRST_LIFE,
    RUN,
    Address,
    Epoch,
    IntervalId,
    LaneName,
    Life,
    ServerId,
    StageId,
)
from siafu.pipeline.instructions import (
    Abandon,
    Adopt,
    CompareRows,
    ForgetGradients,
    Instruction,
    KeepResult,
    KeepRows,
    Send,
)
from siafu.pipeline.setup import Setup
from siafu.pipeline.task import Task


class GraphServer(GraphBasis):
    """One graph server's part in a run.

    Why no row is overwritten before all have read it, in sync and pipe: an interval makes rows of epoch e + 1 only
    with version e + 1. That version holds the gradient of the last stage of every interval in epoch e, and an interval
    comes to its last stage when all its gathers of epoch e are done. So once rows of epoch e + 1 exist, no one
    reads those of epoch e; ghosts are copies made from them later still. Rows of an older epoch that arrive late, or
    twice, are not kept. Evaluations have tables of their own, and the run starts one only when all servers have
    finished the one before. A gather that begins early changes none of this: it is at its stage. Asynchronous gathers may
    find newer rows, or older ones, down to `_oldest_read`.
    """

    def __init__(
        self, setup: Setup, server: ServerId, life: Life = FIRST_LIFE, ahead: Ahead | None = None
    ) -> None:
        """ahead: what it did as an eager copy of the server whose place it takes"""
        super().__init__(setup, server, life)
        self._ahead = ahead
        self._handlers: dict[type[Event], Callable[[Any, list[Instruction]], None]] = {
            Proceed: self._proceed,
            EvaluationStarted: self._evaluation_started,
            TaskStarted: self._task_started,
            TaskDone: self._task_done,
            RowsArrived: self._rows_arrived,
            ServerAdvanced: self._server_advanced,
            WeightsGranted: self._weights_granted,
            GradientTaken: self._gradient_taken,
            TakenOver: self._taken_over,
            CopyStands: self._copy_stands,
        }

    def handle(self, event: Event) -> list[Instruction]:
        out: list[Instruction] = []
        if isinstance(event, Begin):
            self._begin(event, out)
        else:
            self._handlers[type(event)](event, out)
        return out

    # What comes from the run

    def _begin(self, event: Begin, out: list[Instruction]) -> None:
        self.fences.begin(event.incarnation, event.lives)
        self._reset(event.start, event.exact)
        ahead, self._ahead = self._ahead, None
        if ahead is not None and isinstance(event, Resume) and ahead.at == event.start:
            self._adopt(ahead, out)
        else:
            out.append(Abandon())
        out.append(Send(RUN, Ready(self.address)))

    def _copy_stands(self, event: CopyStands, out: list[Instruction]) -> None:
        if self._copies.take(event):
            self.fences.raise_to(event.copy, event.life)
        else:
            self.counts.duplicates += 1

    def _adopt(self, ahead: Ahead, out: list[Instruction]) -> None:
        """Begin with what this server did as an eager copy."""
        self._train.adopt(ahead)
        self._done_ahead = dict(ahead.done)
        out.append(Adopt())

    def _proceed(self, event: Proceed, out: list[Instruction]) -> None:
        if event.until <= self._until:
            self.counts.duplicates += 1
            return
        self._until = event.until
        self._exact = event.exact
        if event.closed:
            out.append(ForgetGradients(event.closed))
        self._try_entries(out)

    def _evaluation_started(self, event: EvaluationStarted, out: list[Instruction]) -> None:
        if event.epoch <= self._evaluation:
            self.counts.duplicates += 1
            return
        self._evaluation = event.epoch
        for interval in self.intervals:
            self._evaluate.enter(interval, event.epoch, event.version, event.weights, out)

    # A server is replaced

    def _taken_over(self, event: TakenOver, out: list[Instruction]) -> None:
        if self.fences.raise_to(event.server, event.life):
            if event.server.role == "graph":
                self._send_rows_again(event, out)
            else:
                self._send_gradients_again(event, out)
        out.append(Send(RUN, Noted(self.address, event.server, event.life)))

    def _send_rows_again(self, event: TakenOver, out: list[Instruction]) -> None:
        server = event.server.index
        found = [*rows_again(self.setup, self._train, event.start.epoch, server)]
        if event.evaluation is not None:
            found += rows_again(self.setup, self._evaluate, event.evaluation, server)
        out.extend(Send(event.server, rows) for rows in found)
        if self.setup.mode == "sync":
            out.append(Send(event.server, self._position))

    def _send_gradients_again(self, event: TakenOver, out: list[Instruction]) -> None:
        found = gradients_again(self.setup, self._train, event.start.epoch, event.server.index)
        out.extend(Send(event.server, gradient) for gradient in found)
        out.extend(asked for asked in self._asked.values() if asked.to == event.server)

    # Entering an epoch

    def _try_entries(self, out: list[Instruction]) -> None:
        outside = [
            each
            for each in self._train.passes.values()
            if not each.inside and each.epoch < self._until and each.interval not in self._asked
        ]
        if not outside:
            return
        reach = self._reach()
        for each in outside:
            if self._is_exact(each.epoch) or each.epoch <= reach:
                self._ask_weights(each.interval, each.epoch, out)

    def _ask_weights(self, interval: IntervalId, epoch: Epoch, out: list[Instruction]) -> None:
        choices = len(self._load)
        least = min(range(choices), key=lambda each: (self._load[each], (each - self.server) % choices))
        self._load[least] += 1
        exact = self._exact is not None and epoch >= self._exact.epoch
        version = self._exact.version_of(epoch) if self._exact is not None and exact else None
        oldest = self._oldest_weights(epoch) if version is None else None
        message = WeightsAsked(self.address, interval, epoch, version, oldest)
        self._asked[interval] = Send(Address("weight", ServerId(least)), message)
        out.append(self._asked[interval])

    def _weights_granted(self, event: WeightsGranted, out: list[Instruction]) -> None:
        interval = event.interval
        asked = None if interval is None else self._asked.get(interval)
        if interval is None or asked is None or asked.to.index != event.server:
            self.counts.duplicates += 1
            return
        if event.epoch != self._train.passes[interval].epoch:
            self.counts.duplicates += 1
            return
        del self._asked[interval]
        if not self.setup.exact:
            self._load[event.server] = event.load
        self._pins[interval, event.epoch] = VersionPin(event.server, set(self.setup.training.parameters))
        lead = 0 if self._exact is not None else event.epoch - self._slowest()
        self.counts.staleness[lead] += 1
        done = self._done_ahead.pop(interval, 0)
        for stage in self.setup.training.stages[:done]:
            self._count_done_ahead(Task("train", event.epoch, stage, interval), out)
        self._train.enter(interval, event.epoch, event.version, event.server, out, done)
        if done and self.setup.mode == "sync":
            self._tell_position(out)

    def _count_done_ahead(self, task: Task, out: list[Instruction]) -> None:
        """A task was done by this server as an eager copy. Its rows may have been lost with the server before: send them."""
        self.counts.adopted += 1
        if task.stage.reads:
            self._train.note_ages(task)
        if task.stage.sends:
            self._send_rows("train", task.epoch, task.stage.id, task.interval, out)

    # Inside an epoch

    def _task_started(self, event: TaskStarted, out: list[Instruction]) -> None:
        if self.setup.exact:
            return  # counted when it is done: no row that it reads has changed until then
        if event.task.lane == "train" and self._train.is_running(event.task):
            self._train.note_ages(event.task)

    def _task_done(self, event: TaskDone, out: list[Instruction]) -> None:
        task = event.task
        track = self._train if task.lane == "train" else self._evaluate
        if not track.is_running(task):
            self.counts.duplicates += 1
            return
        if task.stage.reads and self.setup.exact and task.lane == "train":
            self._train.note_ages(task)
        out.append(KeepResult(task))
        if event.measures:
            self._measures.setdefault((task.lane, task.epoch), {})[task.interval] = event.measures
        if task.stage.sends:
            self._send_rows(task.lane, task.epoch, task.stage.id, task.interval, out)
        for phase in task.stage.gradients:
            gradient = GradientArrived(task.epoch, phase, task.interval)
            out.append(Send(Address("weight", self.setup.homes[phase]), gradient))
        last = track.finish(task, out)
        if task.lane == "train" and (last or self.setup.mode == "sync"):
            self._tell_position(out)
            if last:
                self._try_finish(task.interval, task.epoch, out)
            self._try_entries(out)
        elif last:
            self._count_finished("evaluate", task.epoch, out)

    def _send_rows(
        self, lane: LaneName, epoch: Epoch, stage: StageId, interval: IntervalId, out: list[Instruction]
    ) -> None:
        schedule = self.setup.training if lane == "train" else self.setup.evaluation
        message = RowsArrived(lane, epoch, stage, interval)
        to_copies = lane == "train" and schedule[stage].direction == "forward"
        for server in self.setup.layout.readers(schedule[stage], interval):
            copy = self._copies.of(server) if to_copies else None
            out.append(Send(Address("graph", server), message, also=copy))

    def _rows_arrived(self, event: RowsArrived, out: list[Instruction]) -> None:
        track = self._train if event.lane == "train" else self._evaluate
        found: list[Instruction] = []
        if not track.take_rows(event.stage, event.interval, event.epoch, found):
            self.counts.duplicates += 1
            # Evaluations that use the training's tables have overwritten what there was.
            stays = self.setup.resumes and not self.setup.alternate
            if stays and track.has_rows(event.stage, event.interval, event.epoch):
                out.append(CompareRows(event.lane, event.epoch, event.stage, event.interval))
            return
        out.append(KeepRows(event.lane, event.epoch, event.stage, event.interval))
        out.extend(found)

    def _tell_position(self, out: list[Instruction]) -> None:
        """Let the others know how far this server is, as far as they wait for that."""
        slowest = self._train.slowest
        if self.setup.mode != "sync":
            slowest = (slowest[0], 0)
        if slowest == self._told:
            return
        self._told = slowest
        if self.setup.mode == "sync" or self._exact is None:
            out.extend(Send(Address("graph", other), self._position) for other in self._others)
        self._slowest_moved(out)

    @property
    def _position(self) -> ServerAdvanced:
        """How far this server is, as the others are told."""
        epoch, stage = self._told
        return ServerAdvanced(self.server, Epoch(epoch), StageId(stage))

    def _server_advanced(self, event: ServerAdvanced, out: list[Instruction]) -> None:
        position = (event.epoch, event.stage)
        if position <= self._positions[event.server]:
            self.counts.duplicates += 1
            return
        self._positions[event.server] = position
        self._slowest_moved(out)

    def _slowest_moved(self, out: list[Instruction]) -> None:
        if self.setup.mode == "sync":
            self._train.raise_barrier(min([self._told, *self._positions.values()]), out)
        self._try_entries(out)

    # Leaving an epoch

    def _gradient_taken(self, event: GradientTaken, out: list[Instruction]) -> None:
        key = (event.interval, event.epoch)
        pin = self._pins.get(key)
        if pin is None or event.phase not in pin.owed:
            self.counts.duplicates += 1
            return
        pin.owed.remove(event.phase)
        self._try_finish(event.interval, event.epoch, out)

    def _try_finish(self, interval: IntervalId, epoch: Epoch, out: list[Instruction]) -> None:
        """An interval has finished an epoch when its tasks are done and its gradients are where they belong."""
        pin = self._pins.get((interval, epoch))
        if pin is None or pin.owed or self._train.passes[interval].epoch <= epoch:
            return
        del self._pins[interval, epoch]
        self._load[pin.weights] = max(0, self._load[pin.weights] - 1)
        if not self.setup.exact:
            out.append(Send(Address("weight", pin.weights), WeightsReleased(interval, epoch)))
        self._count_finished("train", epoch, out)

    def _count_finished(self, lane: LaneName, epoch: Epoch, out: list[Instruction]) -> None:
        self._finished[lane, epoch] += 1
        if self._finished[lane, epoch] < len(self.intervals):
            return
        del self._finished[lane, epoch]
        found = self._measures.pop((lane, epoch), {})
        # In the order of intervals, so that the sum has the same bits whatever the order of events.
        total = tuple(map(sum, zip(*(found[interval] for interval in sorted(found)), strict=True)))
        out.append(Send(RUN, EpochFinished(lane, self.server, epoch, total)))
