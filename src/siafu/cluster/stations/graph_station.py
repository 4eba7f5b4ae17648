"""GraphStation: a graph server as a process of its own: its part of the graph, a pool of threads, its Lambdas."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from siafu.base.activity import About
from siafu.base.hardware.memory import budget_bytes, own_bytes, refuse_more_than_budget
from siafu.cluster.post.member import Member
from siafu.cluster.post.post import WirePost
from siafu.cluster.post.requests import ServerFailed
from siafu.cluster.stations.aside import give_way
from siafu.cluster.stations.station import Station
from siafu.graph import Graph
from siafu.graph.partition.reads import Reads, all_read, intervals_of_vertices, server_reads
from siafu.pipeline.ahead import Ahead
from siafu.pipeline.events import Begin, RunAhead
from siafu.pipeline.graph_copy import GraphCopy
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import Address, Epoch, IntervalId, Life, ServerId
from siafu.pipeline.setup import Setup
from siafu.pipeline.task import Task
from siafu.runtime.counters.server_activity import ServerActivity
from siafu.runtime.executor import SOON, ThreadExecutor
from siafu.runtime.hosts.copy_host import CopyHost
from siafu.runtime.hosts.graph_host import GraphHost
from siafu.runtime.lambda_tasks import LambdaTasks
from siafu.runtime.lambdas import Lambdas
from siafu.runtime.letter import Letter
from siafu.runtime.one_thread import use_one_thread
from siafu.runtime.pool import Job, Pool
from siafu.server.assembly import constants_streamed
from siafu.server.edges import ServerEdges
from siafu.server.memory.listing import server_memory_list
from siafu.server.memory.server_part import ServerPart
from siafu.server.plan import ServerPlan
from siafu.server.share import constants_of_share, surroundings
from siafu.server.worker import GraphWorker

Bounds = list[tuple[int, int]]

_TURN_SECONDS = 1e-3


@dataclass(frozen=True, slots=True)
class Share:
    """Sizes of a graph server's part of a run.

    bounds:           its intervals, as ranges of its vertices
    ghosts:           remote vertices whose rows it reads, forward and backward
    share_bytes:      its part of the graph: edges, features or what they were made to, as they lie in memory
    activation_bytes: memory for rows and gradients besides
    program_bytes:    memory of the process before it opened the graph: Python, PyTorch, Ray, kernels
    peak_bytes:       the most memory that its epochs take at once, as listed before they begin
    threads:          number of threads that run its tasks
    taken_bytes:      memory that its process holds now
    free_bytes:       memory that is free on its machine now, less a reserve; None: any amount
    choices:          how it walks its edges where there was a choice, and why
    """

    bounds: Bounds
    vertices: int
    edges: int
    ghosts: int
    share_bytes: int
    activation_bytes: int
    program_bytes: int
    threads: int = 1
    peak_bytes: int = 0
    taken_bytes: int = 0
    free_bytes: int | None = None
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.vertices:,} vertices, {self.edges:,} edges, {self.ghosts:,} ghosts; "
            f"{self.share_bytes / 1e6:,.1f} MB of graph, {self.activation_bytes / 1e6:,.1f} MB of rows, "
            f"{self.program_bytes / 1e6:,.0f} MB of program; {self.peak_bytes / 1e6:,.0f} MB at the peak"
        )


@dataclass(frozen=True, slots=True)
class EagerCopy:
    """An eager copy's machine, and its own threads: a priority that was lowered cannot be raised again."""

    machine: GraphCopy
    pool: Pool


class GraphStation(Station):
    """A graph server, or a warm copy of one; a copy may be eager."""

    host_kind = GraphHost
    executor_kind = ThreadExecutor
    _copy: EagerCopy | None = None
    _ahead: Ahead | None = None

    def __init__(
        self,
        address: Address,
        life: int | None,
        machine: str,
        plan: ServerPlan,
        threads: int,
        lambdas: Lambdas | None = None,
        memory: str | None = None,
        **options: float,
    ) -> None:
        """Ready to say what its part is.

        memory: a size that its process may take; None: what is free on its machine
        """
        super().__init__(address, life, machine, **options)
        self._plan, self._threads, self._memory = plan, threads, memory
        self._on_lambdas = lambdas is not None
        use_one_thread()
        _load_compiler()
        self._program_bytes = own_bytes()
        self._edges: ServerEdges = plan.blueprint().edges(address.index)
        if plan.advisor is not None and not self._has_room():
            self._plan = plan = replace(plan, advisor=None)
            self._edges.advisor = None
        blueprint = plan.blueprint(on_lambdas=self._on_lambdas)
        self._bounds = blueprint.bounds(self._edges)
        vertices = self._edges.local.vertices
        constants = constants_of_share(plan.graph, vertices, plan.rows, plan.weights)
        streamed = constants_streamed(plan.graph, plan.features, plan.weights)
        self._worker: GraphWorker = blueprint.worker(
            self._edges, self._bounds, constants, streamed, whole=blueprint.whole_edges()
        )
        self._lambdas: LambdaTasks | None = None
        if lambdas is not None:
            own = lambdas.share(address.index, plan.partition.parts, machine, threads)
            self._lambdas = LambdaTasks(
                own, len(self._bounds), plan.dtype, self._soon, self.fail, self._story.note_lambdas
            )
        self._pool = Pool(threads, self.fail, None if self._lambdas is None else self._lambdas.watch_queue)
        self._aside: deque[tuple[Address, Letter]] | None = None
        self._turn = threading.Lock()

    def warm_up(self) -> None:
        """Run every stage once, on the first interval: kernels are compiled and loaded, and no row is kept."""
        if self._lambdas is not None:
            return  # gathers would wait for what Lambdas make
        with torch.no_grad():
            self._run_first_interval()
        self._worker.begin_anew()

    def _run_first_interval(self) -> None:
        first = IntervalId(sum(self._plan.interval_counts[: self.address.index]))
        others = [ServerId(each) for each in range(self._plan.partition.parts) if each != self.address.index]
        for lane, schedule in self._plan.schedules.items():
            for stage in schedule.stages:
                self._worker.run(Task(lane, Epoch(0), stage, first), self._plan.weights)
                for other in others if stage.sends else ():
                    self._worker.pack_rows(other, lane, stage, first)

    def share(self) -> Share:
        """Sizes of its part; one that its machine cannot hold is refused. Tables take no memory until rows come."""
        local = self._edges.local
        peak = self._peak_bytes()
        refuse_more_than_budget(
            peak,
            f"{self.address} on {self.machine}",
            "ask for more servers, or for machines with more memory",
            memory=self._memory,
            taken=min(peak, own_bytes()),
        )
        tables = [local.forward] if local.backward is local.forward else [local.forward, local.backward]
        return Share(
            self._bounds,
            len(local.vertices),
            len(local.forward.edges.indices),
            sum(len(table.ghosts) for table in tables),
            self._edges.held_bytes + self._worker.constant_bytes,
            self._worker.activation_bytes,
            self._program_bytes,
            self._threads,
            peak,
            own_bytes(),
            budget_bytes(None),
            () if self._plan.advisor is None else tuple(self._plan.advisor.reasons()),
        )

    def _has_room(self) -> bool:
        """Whether its machine holds it with the blocks of edges that its advisor asks for."""
        peak = self._peak_bytes()
        budget = budget_bytes(self._memory, min(peak, own_bytes()))
        return budget is None or peak <= budget

    def _peak_bytes(self) -> int:
        local, graph = self._edges.local, self._plan.graph
        part = ServerPart(
            len(local.vertices),
            len(local.vertices) / graph.num_vertices,
            len(local.forward.edges.indices),
            len(local.backward.edges.indices),
            len(local.forward.ghosts),
            len(local.backward.ghosts),
            alone=self._plan.partition.parts == 1,
            aligned=self._edges.aligned,
        )
        listed = server_memory_list(self._plan, part, self._program_bytes, on_lambdas=self._on_lambdas)
        return listed.peak

    def reads(self, bounds: Sequence[Bounds]) -> Reads:
        """Intervals whose rows its own intervals read.

        bounds: the intervals of all graph servers
        """
        if self._plan.blueprint().reads_all:
            return all_read(len(self._bounds), sum(map(len, bounds)))
        partition = self._plan.partition
        vertices = [partition.vertices_of(server) for server in range(partition.parts)]
        return server_reads(self._edges.local, bounds, intervals_of_vertices(vertices, bounds))

    def run_ahead(self, life: int, setup: Setup, members: list[Member]) -> Member:
        """Be an eager copy from now on: run the forward tasks of every epoch, in threads that give way to others."""
        copy = Address("copy", self.address.index)
        self.post = WirePost(copy, life, self.machine, self._hear, self.fail, self._stuck)
        pool = Pool(self._threads, self.fail, prepare=give_way)
        # Nobody is kept waiting by a gather that begins late.
        simple = replace(setup, gather_parts=0)
        executor = self.executor_kind(simple, self.address.index, self._worker, pool)
        machine = GraphCopy(setup, self.address.index, Life(life))
        self._copy = EagerCopy(machine, pool)
        self._host = CopyHost(machine, self.post, executor, self._story.note)
        self.post.meet(members)
        pool.start()
        self.post.start()
        return self.post.member

    def take_in(self, life: int) -> None:
        if self._copy is not None:
            self._ahead = self._end_copy(self._copy)
        super().take_in(life)

    def _end_copy(self, copy: EagerCopy) -> Ahead | None:
        """Run no more tasks as an eager copy; what it has, unless one of them failed."""
        self.post.stop()
        while self._aside is not None:
            time.sleep(_TURN_SECONDS)
        copy.pool.halt(self.address)
        copy.pool.close()
        ahead = None if self._failing else copy.machine.ahead
        self._copy = self._host = None
        self._failing = False
        return ahead

    def fail(self, error: BaseException) -> None:
        if self._copy is None:
            super().fail(error)
        elif not self._failing:
            self._failing = True
            self._tell(ServerFailed(self._copy.machine.address, f"{type(error).__name__}: {error}", False))

    def join(self, setup: Setup, members: list[Member]) -> None:
        ahead, self._ahead = self._ahead, None
        machine = GraphServer(setup, self.address.index, Life(self.post.member.life), ahead)
        executor = self.executor_kind(setup, self.address.index, self._worker, self._pool, self._lambdas)
        disk = self._worker.disk
        traffic = None if disk is None else disk.scratch.traffic
        activity = ServerActivity(self._pool.activity, self._lambdas, traffic)
        self._pool.start()
        if self._lambdas is not None:
            self._lambdas.start()
        host = self.host_kind(machine, self.post, executor, activity, self._lambdas, self._story.note)
        self.start(host, members)

    @property
    def is_busy(self) -> bool:
        host = self._host
        if super().is_busy or self._aside is not None or (isinstance(host, GraphHost) and host.reporting):
            return True
        # Twice, since a task goes from the pool to the Lambdas and back.
        on_lambdas = self._lambdas is not None and self._lambdas.are_out
        busy = on_lambdas or not self._pool.is_idle
        return busy or (self._lambdas is not None and self._lambdas.are_out)

    def close(self) -> None:
        self._pool.close()
        if self._lambdas is not None:
            self._lambdas.stop()
        self._worker.close()
        if self._plan.advisor is not None:
            self._plan.advisor.keep()
        super().close()

    def _soon(self, kind: str, job: Job, about: About) -> None:
        self._pool.add(SOON, kind, job, about, self.address)

    def _pass_on(self, sender: Address, letter: Letter) -> None:
        # A beginning waits for the tasks that run, however long they take. The post must not: who does not answer is
        # taken for dead. So a thread of its own begins, and what comes meanwhile waits its turn.
        with self._turn:
            if self._aside is not None:
                self._aside.append((sender, letter))
                return
            if isinstance(letter.event, Begin | RunAhead):
                self._aside = deque([(sender, letter)])
                threading.Thread(target=self._hear_aside, name="siafu-begin", daemon=True).start()
                return
        super()._pass_on(sender, letter)

    def _hear_aside(self) -> None:
        try:
            while True:
                with self._turn:
                    if not self._aside:
                        self._aside = None
                        return
                    sender, letter = self._aside.popleft()
                super()._pass_on(sender, letter)
        except BaseException as error:  # handed to who waits for the run
            self.fail(error)


def _load_compiler() -> None:
    """Run a small kernel, so that the memory of the compiler counts as the program's, not the graph's."""
    one = Graph(np.array([0, 1], np.int64), np.zeros(1, np.int32))
    surroundings(one, np.zeros(1, np.int64), 1)
