"""LocalRuntime: the machines of all servers, driven by threads of this process."""

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from torch import Tensor

from siafu.base.activity import About
from siafu.pipeline.events import (
    CheckpointAsked,
    CheckpointSaved,
    Event,
    RowsArrived,
    StopAsked,
    TaskDone,
    TaskStarted,
    UpdateDone,
    WeightsAsked,
    WeightsMade,
)
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import RUN, Address, Epoch, Incarnation, IntervalId, Lane, PhaseId, ServerId, Version
from siafu.pipeline.instructions import (
    Abandon,
    Accumulate,
    FreeWeights,
    Instruction,
    KeepBest,
    KeepResult,
    KeepRows,
    KeepWeights,
    RecordEpoch,
    Restore,
    RunTask,
    SaveCheckpoint,
    Send,
    Stop,
    Update,
)
from siafu.pipeline.run import RunMachine
from siafu.pipeline.schedule import Schedule
from siafu.pipeline.setup import Setup
from siafu.pipeline.task import Priority, Task, entry_priority
from siafu.pipeline.weight_server import WeightServer
from siafu.runtime.happenings import Doings, EpochRecord, Outcome, Snapshot
from siafu.runtime.lambda_tasks import LambdaTasks
from siafu.runtime.lambdas import Lambdas
from siafu.runtime.one_thread import one_thread
from siafu.runtime.pool import After, Job, Pool
from siafu.server.worker import GraphWorker, Result
from siafu.weights.store import WeightStore

_FIRST = (-1,)  # what others wait for and takes next to no time: before every task


class Machine(Protocol):
    def handle(self, event: Event) -> list[Instruction]: ...


class LocalRuntime:
    """Drives the machines of a run; `events` gives what happens, as it happens.

    workers:   the graph servers' rows
    stores:    the weight servers' tensors
    start:     the weights and the optimizer's state to start from
    lambdas:   where tensor tasks run; None: on threads, as graph tasks do
    checkpoint_due: asked after every epoch: whether a checkpoint is wanted next
    traced:    whether records tell of every task
    """

    def __init__(
        self,
        setup: Setup,
        run: RunMachine,
        workers: tuple[GraphWorker, ...],
        stores: tuple[WeightStore, ...],
        start: Snapshot,
        *,
        threads: int,
        lambdas: Lambdas | None = None,
        checkpoint_due: Callable[[], bool] = lambda: False,
        traced: bool = False,
    ) -> None:
        self.bytes_scattered = 0
        self._run, self._start = run, start
        self._schedules: Mapping[Lane, Schedule] = {"train": setup.training, "evaluate": setup.evaluation}
        self.graph_machines = [GraphServer(setup, ServerId(each)) for each in range(setup.layout.num_servers)]
        self.weight_machines = [WeightServer(setup, ServerId(each)) for each in range(setup.weight_servers)]
        self._machines: dict[Address, Machine] = {RUN: run}
        self._machines |= {each.address: each for each in self.graph_machines}
        self._machines |= {each.address: each for each in self.weight_machines}
        self._workers, self._stores = workers, stores
        self._checkpoint_due = checkpoint_due
        self._happened: queue.SimpleQueue[EpochRecord | Snapshot | Outcome | BaseException | None] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Address, Event]] = deque()
        self._gradients: dict[tuple[Epoch, PhaseId, IntervalId], dict[str, Tensor]] = {}
        self._travelling: dict[tuple[Address, ServerId, Version], dict[str, Tensor]] = {}
        self._best: Mapping[str, Tensor] | None = None
        self._stop_wanted = False
        self._fresh = setup.mode == "async"
        self._threads = threads
        self._lambdas = None
        if lambdas is not None:
            dtype = next(each.dtype for each in start.weights.values() if each.is_floating_point())
            intervals = setup.layout.num_intervals
            self._lambdas = LambdaTasks(lambdas, intervals, dtype, self._soon, self._happened.put)
        watch = None if self._lambdas is None else self._lambdas.watch_queue
        self._pool = Pool(threads, self._happened.put, watch)
        if traced:
            self._pool.activity.keep_spans()
            if self._lambdas is not None:
                self._lambdas.keep_spans()
        self._ended = False
        self._evaluated = 0.0
        self._recorded = start.epochs
        self._told_staleness: Counter[int] = Counter()
        self._told_bytes = 0

    def events(self) -> Iterator[EpochRecord | Snapshot | Outcome]:
        """Run; every epoch's record, every checkpoint asked for, and last the outcome.

        Close the iterator to stop the run at once.
        """
        with one_thread():
            yield from self._events()

    def _events(self) -> Iterator[EpochRecord | Snapshot | Outcome]:
        self._began = self._marked = time.perf_counter()
        try:
            self._pool.start()
            if self._lambdas is not None:
                self._lambdas.start()
            with self._lock:
                for instruction in self._run.begin():
                    self._obey(RUN, instruction)
            self._deliver()
            while True:
                happened = self._happened.get()
                if isinstance(happened, BaseException):
                    raise happened
                if happened is None:
                    # Woken up to stop; an epoch that ended since may have seen to it already.
                    if self._stop_wanted:
                        self._stop_wanted = False
                        self._deliver((RUN, StopAsked(self._incarnation)))
                    continue
                if isinstance(happened, Outcome) and self._lambdas is not None:
                    self._lambdas.send_home()
                yield happened
                if isinstance(happened, Outcome):
                    return
        finally:
            self._ended = True
            self._pool.close()
            if self._lambdas is not None:
                self._lambdas.stop()

    def stop_soon(self) -> None:
        """End the run at an epoch's end, at most two later, after a checkpoint. May be called from a signal's handler."""
        # Who reads what happened may be behind by many epochs: the flag stops the run all the same.
        self._stop_wanted = True
        self._happened.put(None)

    def counters(self) -> dict[str, Any]:
        """What was counted so far; histograms have text for keys, as JSON does."""
        staleness = self._staleness()
        ages: Counter[int] = sum((each.counts.row_ages for each in self.graph_machines), Counter())
        return {
            "max_staleness_seen": max(staleness, default=0),
            "staleness_histogram": {str(lead): count for lead, count in sorted(staleness.items())},
            "row_age_histogram": {str(age): count for age, count in sorted(ages.items())},
            "weight_versions_peak": max(each.counts.versions_peak for each in self.weight_machines),
            "gradients_applied": sum(each.gradients_applied for each in self._stores),
            "bytes_scattered": self.bytes_scattered,
            **({} if self._lambdas is None else {"lambda": self._lambdas.usage()}),
        }

    @property
    def _incarnation(self) -> Incarnation:
        return Incarnation(0)

    def _deliver(self, *events: tuple[Address, Event]) -> None:
        """Give events to the machines, and do what they say, until nothing follows from it."""
        with self._lock:
            self._waiting.extend(events)
            while self._waiting and not self._ended:
                address, event = self._waiting.popleft()
                for instruction in self._machines[address].handle(event):
                    self._obey(address, instruction)

    def _obey(self, who: Address, what: Instruction) -> None:
        match what:
            case Send():
                self._send(who, what)
            case RunTask():
                kind = f"{what.task.lane} {what.task.stage}"
                elsewhere = self._lambdas is not None and what.task.stage.kind == "tensor"
                run = self._hand_over if elsewhere else self._run_task
                about = About(str(who), what.task.epoch, what.task.interval)
                # A task that Lambdas compute is handed over before cores gather on: they work while cores do.
                rank = -1 if elsewhere else 0
                self._pool.add((rank, *self._priority(what.task)), kind, lambda: run(who, what), about)
            case Accumulate():
                gradients = self._gradients.pop((what.epoch, what.phase, what.interval))
                self._stores[who.index].accumulate(what.version, gradients)
            case Update():
                about = About(str(who), self._recorded)
                self._pool.add(_FIRST, "update", lambda: self._update(who, what), about)
            case KeepWeights():
                part = self._travelling.pop((who, what.home, what.version))
                self._stores[who.index].keep(what.version, part)
            case FreeWeights():
                self._stores[who.index].free(what.version)
            case Restore():
                start = self._start
                self._stores[who.index].restore(what.version, start.weights, start.optimizer)
            case KeepBest():
                self._best = self._stores[who.index].weights(what.version)
            case RecordEpoch():
                self._record(what)
            case SaveCheckpoint():
                self._happened.put(self._snapshot(what.epochs, what.version))
                self._waiting.append((RUN, CheckpointSaved(self._incarnation, what.epochs)))
            case Stop():
                last = None if what.version is None else self._snapshot(what.epochs, what.version)
                self._happened.put(Outcome(what, last))
                self._ended = True
            case KeepResult() | KeepRows() | Abandon():
                pass  # in one process nothing is lost or comes twice: tasks and copies write where they belong
            case _:
                raise NotImplementedError(f"the local runtime cannot {what}")

    def _soon(self, kind: str, job: Job, about: About) -> None:
        self._pool.add(_FIRST, kind, job, about)

    def _priority(self, task: Task) -> Priority:
        return task.fresh_priority if self._fresh else task.priority

    def _send(self, who: Address, what: Send) -> None:
        to, message = what.to, what.message
        if isinstance(message, RowsArrived):
            about = About(str(who), message.epoch, message.interval)
            self._pool.add(_FIRST, "scatter", lambda: self._send_rows(who, to, message), about)
            return
        if isinstance(message, WeightsAsked) and message.interval is not None and message.version is None:
            turn = entry_priority(message.epoch, message.interval)
            about = About(str(who), message.epoch, message.interval)
            self._pool.add((0, *turn), "enter", lambda: self._deliver((to, message)), about)
            return
        if isinstance(message, WeightsMade):
            part = self._stores[who.index].part(message.version)
            self._travelling[to, message.home, message.version] = part
        self._waiting.append((to, message))

    def _run_task(self, who: Address, what: RunTask) -> After:
        task = what.task
        if task.stage.reads:
            self._deliver((who, TaskStarted(self._incarnation, task)))
        weights = self._stores[what.weights].weights(what.version)
        done = self._workers[who.index].run(task, weights)
        return After(lambda: self._task_done(who, task, done))

    def _hand_over(self, who: Address, what: RunTask) -> None:
        """Give a tensor task to the Lambdas; its result is taken on a thread of the pool."""
        assert self._lambdas is not None
        weights = self._stores[what.weights].weights(what.version)
        self._lambdas.hand_over(
            self._workers[who.index],
            what,
            weights,
            self._priority(what.task),
            lambda done: self._task_done(who, what.task, done),
        )

    def _task_done(self, who: Address, task: Task, done: Result) -> None:
        for phase, gradients in done.gradients.items():
            self._gradients[task.epoch, PhaseId(phase), task.interval] = gradients
        self._deliver((who, TaskDone(self._incarnation, task, done.measures)))

    def _send_rows(self, who: Address, to: Address, message: RowsArrived) -> After:
        stage = self._schedules[message.lane][message.stage]
        copied = self._workers[who.index].send_rows(
            self._workers[to.index], message.lane, stage, message.interval
        )
        with self._lock:
            self.bytes_scattered += copied
        return After(lambda: self._deliver((to, message)), copied)

    def _update(self, who: Address, what: Update) -> After:
        self._stores[who.index].update(what.version)
        return After(lambda: self._deliver((who, UpdateDone(self._incarnation, what.version))))

    def _record(self, what: RecordEpoch) -> None:
        now, busy = time.perf_counter(), dict(self._pool.busy_seconds)
        spent = sum(seconds for kind, seconds in busy.items() if kind.startswith("evaluate"))
        evaluating = (spent - self._evaluated) / self._threads
        self._evaluated = spent
        seconds = now - self._marked - evaluating
        doings = self._doings(what.epoch)
        self._happened.put(
            EpochRecord(what.epoch, what.training, what.evaluation, seconds, evaluating, busy, doings)
        )
        self._marked, self._recorded = now, Epoch(what.epoch + 1)
        if self._lambdas is not None:
            self._lambdas.end_epoch()
        if self._stop_wanted:
            self._stop_wanted = False
            self._waiting.append((RUN, StopAsked(self._incarnation)))
        elif self._checkpoint_due():
            self._waiting.append((RUN, CheckpointAsked(self._incarnation)))

    def _doings(self, epoch: Epoch) -> Doings:
        staleness, scattered = self._staleness(), self.bytes_scattered
        entered = staleness - self._told_staleness
        done = None if self._lambdas is None else self._lambdas.doings(epoch)
        doings = Doings(
            (self._pool.activity.take(epoch),),
            () if done is None else (done.taken,),
            {str(lead): count for lead, count in sorted(entered.items())},
            scattered - self._told_bytes,
            None if done is None else done.counts,
            () if done is None else done.latencies,
        )
        self._told_staleness, self._told_bytes = staleness, scattered
        return doings

    def _staleness(self) -> Counter[int]:
        return sum((each.counts.staleness for each in self.graph_machines), Counter())

    def _snapshot(self, epochs: Epoch, version: Version) -> Snapshot:
        state = {key: each for server in self._stores for key, each in server.state().items()}
        weights = self._stores[0].weights(version)
        return Snapshot(epochs, version, weights, state, self.counters(), self._best)
