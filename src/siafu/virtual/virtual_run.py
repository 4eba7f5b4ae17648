"""VirtualRun: a run's own hosts in virtual time: what their machines ask for takes as long as it costs."""

from collections import Counter
from dataclasses import replace
from typing import Any, cast

from siafu.base.errors import SiafuError
from siafu.objective.score import Score
from siafu.pipeline.events import CopyMade, EpochFinished
from siafu.pipeline.graph_copy import GraphCopy
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import FIRST_LIFE, RUN, Address, Epoch, ServerId, Version
from siafu.pipeline.run_machine.run import RunMachine
from siafu.pipeline.run_machine.run_options import RunOptions
from siafu.pipeline.setup import Setup
from siafu.pipeline.weight_server import WeightServer
from siafu.runtime.counters.server_activity import ServerActivity
from siafu.runtime.happenings import Snapshot
from siafu.runtime.hosts.copy_host import CopyHost
from siafu.runtime.hosts.graph_host import GraphHost
from siafu.runtime.hosts.host import Host
from siafu.runtime.hosts.run_host import RunHost
from siafu.runtime.hosts.weight_host import WeightHost
from siafu.runtime.letter import Letter
from siafu.virtual.agenda import Agenda
from siafu.virtual.costs import LambdaKind, Machine
from siafu.virtual.resources import Cores, VirtualLink
from siafu.virtual.stage_costs import StageCosts
from siafu.virtual.virtual_executor import VirtualExecutor, VirtualUpdates
from siafu.virtual.virtual_lambdas import VirtualLambdas
from siafu.virtual.virtual_post import Links, VirtualPost, beside, in_turn
from siafu.weights.store import WeightStore


class VirtualRun:
    """Drives a run until the last epoch is trained; its evaluation, after which a run ends, costs nothing here.

    ended: when the run heard that all servers had finished each epoch
    """

    def __init__(
        self,
        setup: Setup,
        costs: StageCosts,
        epochs: int,
        lambdas: LambdaKind | None,
        *,
        weight_machine: Machine,
        lambda_network_bytes_s: float | None = None,
        near: bool,
        lambdas_on_cores: bool = False,
        machines: int | None = None,
        eager: bool = False,
    ) -> None:
        """near: weight servers and graph servers are one process, and nothing travels between them

        lambdas_on_cores: Lambdas are processes on their server's cores
        machines: that graph servers share, in turn; None: each has its own
        eager:    an eager copy of each graph server is on the next one's machine
        """
        self.agenda = Agenda()
        self.ended: list[float] = []
        self._epochs, self._setup, self._costs = epochs, setup, costs
        self._finished: Counter[Epoch] = Counter()
        graph = setup.layout.num_servers
        there = [Cores(self.agenda, costs.machine.cores) for _ in range(machines or graph)]
        self.cores = in_turn(there, graph)
        self.links = Links.of(setup, costs, weight_machine, machines or graph)
        own = lambda_network_bytes_s
        self._to_lambdas = self.links.out if own is None else [VirtualLink(own) for _ in range(graph)]
        self._from_lambdas = self.links.come_in if own is None else [VirtualLink(own) for _ in range(graph)]
        self.fleets = (
            [] if lambdas is None else [self._fleet(lambdas, each, lambdas_on_cores) for each in range(graph)]
        )
        self.post = VirtualPost(
            self.agenda,
            setup,
            costs,
            self.links,
            self._hear,
            self.cores,
            near=near,
            lambdas=bool(self.fleets),
        )
        self.graph_machines = [GraphServer(setup, ServerId(each)) for each in range(graph)]
        self.weight_machines = [WeightServer(setup, ServerId(each)) for each in range(setup.weight_servers)]
        self._hosts: dict[Address, Host] = {}
        for machine in self.graph_machines:
            self._hosts[machine.address] = self._graph_host(machine)
        for home in self.weight_machines:
            updates = VirtualUpdates(self.agenda, setup, costs, home.server, self.cores[0] if near else None)
            store = cast(WeightStore, NoWeights())
            self._hosts[home.address] = WeightHost(home, self.post.of(home.address), store, updates)
        copied = range(graph) if eager and setup.ahead is not None else ()
        copies = [GraphCopy(setup, ServerId(each)) for each in copied]
        servers = list(self._hosts)
        for copy in copies:
            self._hosts[copy.address] = self._copy_host(copy)
        self._copies = [each.address for each in copies]
        run = RunMachine(setup, RunOptions(epochs, evaluate_every=epochs), lambda _: Score(None, None))
        start = Snapshot(Epoch(0), Version(0), {}, {}, {})
        self._run = RunHost(run, self.post.of(RUN), servers, start, lambda happening: None, threads=1)
        self._hosts[RUN] = self._run

    def run(self) -> None:
        """To the end of the last epoch."""
        self._run.begin()
        for copy in self._copies:
            self._run.deliver(CopyMade(copy, FIRST_LIFE))
        while len(self.ended) < self._epochs:
            if not self.agenda.step():
                raise SiafuError("the simulated run stands still: nothing is under way")
        for fleet in self.fleets:
            fleet.end(self.agenda.now)

    @property
    def busy(self) -> dict[str, float]:
        """Core seconds of all simulated servers, by the kind of job."""
        there = set(self.cores)
        kinds = sorted({kind for each in there for kind in each.busy})
        return {kind: sum(each.busy[kind] for each in there) for kind in kinds}

    @property
    def events(self) -> int:
        """How many the machines handled."""
        return sum(host.events for host in self._hosts.values())

    def _graph_host(self, machine: GraphServer) -> GraphHost:
        server = machine.server
        executor = VirtualExecutor(
            self.agenda,
            self._setup,
            server,
            self._costs,
            self.cores[server],
            self.fleets[server] if self.fleets else None,
        )
        return GraphHost(machine, self.post.of(machine.address), executor, ServerActivity(None, None))

    def _copy_host(self, machine: GraphCopy) -> CopyHost:
        """An eager copy, which uses the cores of another server's machine when these would be idle."""
        simple, there = replace(self._setup, gather_parts=0), beside(machine.address, len(self.cores))
        executor = VirtualExecutor(
            self.agenda, simple, machine.server, self._costs, self.cores[there], None, gives_way=True
        )
        return CopyHost(machine, self.post.of(machine.address), executor)

    def _fleet(self, kind: LambdaKind, server: int, on_cores: bool) -> VirtualLambdas:
        sample, weight_out = self._costs.sample, self.links.weight_out
        return VirtualLambdas(
            self.agenda,
            kind,
            sample.simulated_lambdas,
            sample.lambdas / sample.simulated_lambdas,
            self._to_lambdas[server],
            self._from_lambdas[server],
            weight_out[server % len(weight_out)],
            sample.servers_each,
            self.cores[server] if on_cores else None,
        )

    def _hear(self, sender: Address, to: Address, letter: Letter) -> None:
        if isinstance(letter.event, EpochFinished):
            self._count_finished(letter.event)
        self._hosts[to].hear(sender, letter)

    def _count_finished(self, event: EpochFinished) -> None:
        """An epoch has ended when all servers say so; none ends before the one before it."""
        self._finished[event.epoch] += 1
        if self._finished[event.epoch] == len(self.graph_machines):
            self.ended.append(self.agenda.now)


class NoWeights:
    """Stands for a weight server's tensors: versions are there when they are asked for, and weigh nothing here."""

    gradients_applied = 0

    def __init__(self) -> None:
        self.versions = _Everything()

    def weights(self, version: Version) -> dict[str, Any]:
        return {"version": version}

    part = weights

    def restore(self, version: Version, weights: Any, state: Any, held: Any) -> None: ...
    def keep(self, version: Version, part: Any) -> None: ...
    def free(self, version: Version) -> None: ...
    def accumulate(self, version: Version, gradients: Any) -> None: ...
    def update(self, version: Version) -> None: ...
    def state(self) -> dict[str, Any]:
        return {}


class _Everything:
    def __contains__(self, version: Version) -> bool:
        return True
