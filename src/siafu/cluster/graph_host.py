"""GraphHost: a graph server as a process of its own."""

import os
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from siafu.base.activity import About
from siafu.cluster.doings import ServerDoings
from siafu.cluster.host import Host, arrays, tensors_of
from siafu.cluster.letters import Letter
from siafu.cluster.member import Member
from siafu.cluster.requests import Did, ReportWanted, TraceWanted, WeightsSent, WeightsWanted
from siafu.graph import Graph
from siafu.graph.partition.reads import Reads, intervals_of_vertices, server_reads
from siafu.pipeline.events import (
    Begin,
    EpochFinished,
    Event,
    GradientArrived,
    RowsArrived,
    TaskDone,
    TaskStarted,
    WeightsAsked,
    WeightsGranted,
)
from siafu.pipeline.graph_server import Counts, GraphServer
from siafu.pipeline.ids import RUN, Address, Epoch, Incarnation, IntervalId, PhaseId, ServerId, Version
from siafu.pipeline.instructions import Abandon, Instruction, KeepResult, KeepRows, RunTask, Send
from siafu.pipeline.setup import Setup
from siafu.pipeline.task import Priority, Task, entry_priority
from siafu.runtime.lambda_tasks import LambdaTasks
from siafu.runtime.lambdas import Lambdas
from siafu.runtime.one_thread import use_one_thread
from siafu.runtime.pool import After, Job, Pool, Urgency
from siafu.server.edges import ServerEdges
from siafu.server.plan import Plan
from siafu.server.share import constants_of_share, surroundings
from siafu.server.worker import GraphWorker, Piece, Result
from siafu.wire.tensors import Array

Bounds = list[tuple[int, int]]
_FIRST = (-1,)


@dataclass(frozen=True, slots=True)
class Share:
    """What a graph server has, in numbers.

    bounds:           its intervals, as ranges of its vertices
    ghosts:           remote vertices whose rows it reads, forward and backward
    share_bytes:      its part of the graph: edges, features or what they were made to, as they lie in memory
    activation_bytes: rows and gradients besides
    program_bytes:    what the process took before it opened the graph: Python, PyTorch, Ray, kernels
    """

    bounds: Bounds
    vertices: int
    edges: int
    ghosts: int
    share_bytes: int
    activation_bytes: int
    program_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.vertices:,} vertices, {self.edges:,} edges, {self.ghosts:,} ghosts; "
            f"{self.share_bytes / 1e6:,.1f} MB of graph, {self.activation_bytes / 1e6:,.1f} MB of rows, "
            f"{self.program_bytes / 1e6:,.0f} MB of program"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    urgency: Urgency
    kind: str
    task: RunTask


class GraphHost(Host):
    """A graph server: its part of the graph, a pool of threads, and the versions of the weights that its tasks use."""

    def __init__(
        self,
        address: Address,
        life: int,
        machine: str,
        plan: Plan,
        threads: int,
        lambdas: Lambdas | None = None,
        **options: float,
    ) -> None:
        super().__init__(address, life, machine, **options)
        self._plan = plan
        use_one_thread()
        _load_compiler()
        self._program_bytes = own_bytes()
        blueprint = plan.blueprint()
        self._edges: ServerEdges = blueprint.edges(address.index)
        self._bounds = blueprint.bounds(self._edges)
        vertices = self._edges.local.vertices
        constants = constants_of_share(plan.graph, vertices, plan.rows, plan.weights)
        self._worker: GraphWorker = blueprint.worker(self._edges, self._bounds, constants)
        self._lambdas: LambdaTasks | None = None
        if lambdas is not None:
            own = lambdas.share(address.index, plan.partition.parts, machine, threads)
            self._lambdas = LambdaTasks(own, len(self._bounds), plan.dtype, self._soon, self.fail)
        self._pool = Pool(threads, self.fail, None if self._lambdas is None else self._lambdas.watch_queue)
        self._weights: dict[Version, dict[str, Tensor]] = {}
        self._users: Counter[Version] = Counter()
        self._held_up: defaultdict[Version, list[_Ready]] = defaultdict(list)
        self._gradients: dict[tuple[Epoch, PhaseId, IntervalId], dict[str, Tensor]] = {}
        self._fresh = plan.options.mode == "async"
        self._bytes_scattered = 0
        self._doings = ServerDoings(self._pool.activity, self._lambdas)
        self._aside: deque[tuple[Address, Letter]] | None = None
        self._turn = threading.Lock()

    def share(self) -> Share:
        """What it has, in numbers."""
        local = self._edges.local
        tables = [local.forward] if local.backward is local.forward else [local.forward, local.backward]
        return Share(
            self._bounds,
            len(local.vertices),
            len(local.forward.edges.indices),
            sum(len(table.ghosts) for table in tables),
            self._edges.held_bytes + self._worker.constant_bytes,
            self._worker.activation_bytes,
            self._program_bytes,
        )

    def reads(self, bounds: Sequence[Bounds]) -> Reads:
        """Whose rows its intervals read.

        bounds: the intervals of all graph servers
        """
        partition = self._plan.partition
        vertices = [partition.vertices_of(server) for server in range(partition.parts)]
        return server_reads(self._edges.local, bounds, intervals_of_vertices(vertices, bounds))

    def join(self, setup: Setup, members: list[Member]) -> None:
        self._setup = setup
        self._server = GraphServer(setup, self.address.index)
        self._pool.start()
        if self._lambdas is not None:
            self._lambdas.start()
        self.start(self._server, members)

    def close(self) -> None:
        self._pool.close()
        if self._lambdas is not None:
            self._lambdas.stop()
        super().close()

    def _hear(self, sender: Address, letter: Letter) -> None:
        # A beginning waits for the tasks that run, however long they take. The post must not: who does not answer is
        # taken for dead. So a thread of its own begins, and what comes meanwhile waits its turn.
        with self._turn:
            if self._aside is not None:
                self._aside.append((sender, letter))
                return
            if isinstance(letter.event, Begin):
                self._aside = deque([(sender, letter)])
                threading.Thread(target=self._hear_aside, name="siafu-begin", daemon=True).start()
                return
        super()._hear(sender, letter)

    def _hear_aside(self) -> None:
        try:
            while True:
                with self._turn:
                    if not self._aside:
                        self._aside = None
                        return
                    sender, letter = self._aside.popleft()
                super()._hear(sender, letter)
        except BaseException as error:  # handed to who waits for the run
            self.fail(error)

    def _begin(self, begin: Begin, letter: Letter) -> None:
        # Nothing may be written to the tables on behalf of an earlier incarnation once this one has begun.
        self._pool.abandon()
        if self._lambdas is not None:
            self._lambdas.abandon()
            self._pool.abandon()  # of what came back until then
        self._worker.begin_anew()
        with self._lock:
            self._server.counts = Counts()
            self._bytes_scattered = 0
            self._gradients.clear()
            self._weights.clear()
            self._users.clear()
            self._held_up.clear()
            self._doings.forget()
        super()._begin(begin, letter)
        self._pool.resume()

    def _heard(self, sender: Address, event: Event, letter: Letter) -> None:
        if isinstance(event, TraceWanted):
            self._doings.keep_spans()
            return
        if event.incarnation != self.incarnation:
            return
        match event:
            case WeightsSent():
                self._take_weights(event.version, letter)
            case WeightsGranted():
                self._take_weights(event.version, letter)
                self.deliver(event, letter)
            case _:
                self.deliver(event, letter)

    def _take_weights(self, version: Version, letter: Letter) -> None:
        if not letter.tensors:
            return
        with self._lock:
            for old in [each for each in self._weights if each < version - 1 and not self._users[each]]:
                del self._weights[old]
            self._weights[version] = tensors_of(letter.tensors)
            for ready in self._held_up.pop(version, []):
                self._add(ready)

    # What the machine says

    def _obey(self, what: Instruction, came: Letter) -> None:
        match what:
            case Send():
                self._send(what)
            case RunTask():
                self._schedule(what)
            case KeepRows():
                self._keep_rows(what, came)
            case KeepResult() | Abandon():
                pass  # tasks write where they belong, and `_begin` saw to it that none is left
            case _:
                raise NotImplementedError(f"a graph server cannot {what}")

    def _send(self, send: Send) -> None:
        to, message = send.to, send.message
        match message:
            case RowsArrived():
                about = self._about(message.epoch, message.interval)
                self._pool.add(_FIRST, "scatter", lambda: self._send_rows(to, message), about)
            case GradientArrived():
                gradients = self._gradients.pop((message.epoch, message.phase, message.interval))
                self.send(to, message, arrays(gradients))
            case WeightsAsked() if message.interval is not None and message.version is None:
                turn = entry_priority(message.epoch, message.interval)
                about = self._about(message.epoch, message.interval)
                self._pool.add((0, *turn), "enter", lambda: self.send(to, message), about)
            case EpochFinished():
                if self._lambdas is not None and message.lane == "train":
                    self._lambdas.end_epoch()
                self._tell_doings(message.epoch)
                self.send(to, message)
            case _:
                self.send(to, message)

    def _tell_doings(self, epoch: Epoch) -> None:
        told, tensors = self._doings.told(epoch, self._server.counts.staleness, self._bytes_scattered)
        self.send(RUN, Did(self.incarnation, self.address, told), tensors)

    def _send_rows(self, to: Address, message: RowsArrived) -> After:
        stage = self._stages(message.lane)[message.stage]
        pieces = self._worker.pack_rows(to.index, message.lane, stage, message.interval)
        tensors = {str(place): piece.rows for place, piece in enumerate(pieces)}
        sent = sum(piece.rows.nbytes for piece in pieces)
        with self._lock:
            self._bytes_scattered += sent
        return After(lambda: self.send(to, message, tensors, *(piece.first for piece in pieces)), sent)

    def _keep_rows(self, keep: KeepRows, came: Letter) -> None:
        stage = self._stages(keep.lane)[keep.stage]
        rows: list[NDArray[np.uint8]] = [came.tensors[str(place)] for place in range(len(came.tensors))]
        pieces = [Piece(first, each) for first, each in zip(came.places, rows, strict=True)]
        sender = ServerId(self._setup.layout.owner[keep.interval])
        self._worker.keep_rows(sender, keep.lane, stage, pieces)

    def _stages(self, lane: str) -> Any:
        return self._setup.training if lane == "train" else self._setup.evaluation

    def _soon(self, kind: str, job: Job, about: About) -> None:
        self._pool.add(_FIRST, kind, job, about)

    def _priority(self, task: Task) -> Priority:
        return task.fresh_priority if self._fresh else task.priority

    def _schedule(self, what: RunTask) -> None:
        task, version = what.task, what.version
        # A task that Lambdas compute is handed over before cores gather on: they work while cores do.
        rank = -1 if self._lambdas is not None and task.stage.kind == "tensor" else 0
        ready = _Ready((rank, *self._priority(task)), f"{task.lane} {task.stage}", what)
        self._users[version] += 1
        if version in self._weights:
            self._add(ready)
            return
        if version not in self._held_up:
            wanted = WeightsWanted(self.incarnation, self.address, version)
            self.send(Address("weight", what.weights), wanted)
        self._held_up[version].append(ready)

    def _add(self, ready: _Ready) -> None:
        task = ready.task.task
        about = self._about(task.epoch, task.interval)
        self._pool.add(ready.urgency, ready.kind, lambda: self._run(ready.task), about)

    def _about(self, epoch: Epoch, interval: IntervalId | None) -> About:
        return About(str(self.address), epoch, interval)

    def _run(self, what: RunTask) -> After | None:
        task, incarnation, weights = what.task, self.incarnation, self._weights[what.version]
        if self._lambdas is not None and task.stage.kind == "tensor":
            priority = self._priority(task)
            self._lambdas.hand_over(
                self._worker, what, weights, priority, lambda done: self._done(incarnation, what, done)
            )
            return None
        if task.stage.reads:
            self.deliver(TaskStarted(incarnation, task))
        done = self._worker.run(task, weights)
        return After(lambda: self._done(incarnation, what, done))

    def _done(self, incarnation: Incarnation, what: RunTask, done: Result) -> None:
        task = what.task
        with self._lock:
            self._users[what.version] -= 1
            self._users += Counter()  # those that nothing uses any more leave
            for phase, gradients in done.gradients.items():
                self._gradients[task.epoch, PhaseId(phase), task.interval] = gradients
        self.deliver(TaskDone(incarnation, task, done.measures))

    def _answer(self, wanted: ReportWanted) -> None:
        if self._lambdas is None or not wanted.last:
            super()._answer(wanted)
            return
        # Their receipts are waited for in a thread of its own, and the post goes on.
        threading.Thread(target=self._answer_at_last, args=(wanted,), name="siafu-last", daemon=True).start()

    def _answer_at_last(self, wanted: ReportWanted) -> None:
        assert self._lambdas is not None
        try:
            self._lambdas.send_home()
            super()._answer(wanted)
        except BaseException as error:  # handed to who waits for the run
            self.fail(error)

    def _report(self, wanted: ReportWanted) -> tuple[dict[str, Any], dict[str, Array]]:
        counts = self._server.counts
        return {
            "max_staleness_seen": max(counts.staleness, default=0),
            "staleness_histogram": {str(lead): count for lead, count in sorted(counts.staleness.items())},
            "row_age_histogram": {str(age): count for age, count in sorted(counts.row_ages.items())},
            "bytes_scattered": self._bytes_scattered,
            "busy_seconds": dict(self._pool.busy_seconds),
            **({} if self._lambdas is None else {"lambda": self._lambdas.usage()}),
        }, {}


def _load_compiler() -> None:
    """Run a kernel on next to nothing: what comes into memory with the first one is of the program, not of the graph."""
    one = Graph(np.array([0, 1], np.int64), np.zeros(1, np.int32))
    surroundings(one, np.zeros(1, np.int64), 1)


def own_bytes() -> int:
    """Memory of this process that it shares with no other; 0 where the system does not tell."""
    try:
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
