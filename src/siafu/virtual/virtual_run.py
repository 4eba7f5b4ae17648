"""VirtualRun: the machines of a run in virtual time: what they ask for takes as long as it costs."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from siafu.base.errors import SiafuError
from siafu.pipeline.events import (
    EpochFinished,
    Event,
    GradientArrived,
    RowsArrived,
    TaskDone,
    UpdateDone,
    WeightsAsked,
    WeightsGranted,
    WeightsMade,
)
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import RUN, Address, Epoch, Incarnation, ServerId, Version
from siafu.pipeline.instructions import Instruction, RunTask, Send, Update
from siafu.pipeline.records import Score
from siafu.pipeline.run import RunMachine
from siafu.pipeline.run_options import RunOptions
from siafu.pipeline.setup import Setup
from siafu.pipeline.task import entry_priority
from siafu.pipeline.weight_server import WeightServer
from siafu.virtual.agenda import Agenda
from siafu.virtual.costs import LambdaKind, Machine
from siafu.virtual.fleet import Fleet, TensorTask
from siafu.virtual.resources import FIRST, Cores, Link
from siafu.virtual.stage_costs import StageCost, StageCosts

_INCARNATION = Incarnation(0)


class VirtualRun:
    """Drives a run's machines until the last epoch is trained; its evaluation, after which a run ends, costs nothing here.

    ended:     when the run heard that all servers had finished each epoch
    events:    how many the machines handled
    scattered: bytes of rows sent between graph servers; weights: of weights and gradients
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
    ) -> None:
        """near: weight servers and graph servers are one process, and nothing travels between them

        lambdas_on_cores: Lambdas are processes on their server's cores
        """
        self._lambdas_on_cores = lambdas_on_cores
        self.agenda = Agenda()
        self.ended: list[float] = []
        self.events = 0
        self.scattered = self.weights = 0.0
        self._setup, self._costs, self._near = setup, costs, near
        machine = costs.machine
        self._run = RunMachine(setup, RunOptions(epochs, evaluate_every=epochs), lambda _: Score(None, None))
        graph = setup.layout.num_servers
        self.graph_machines = [GraphServer(setup, ServerId(each)) for each in range(graph)]
        self.weight_machines = [WeightServer(setup, ServerId(each)) for each in range(setup.weight_servers)]
        self.cores = [Cores(self.agenda, machine.cores) for _ in range(graph)]
        rate = machine.network_bytes_s
        self.out_links = [Link(rate) for _ in range(graph)]
        self.in_links = [Link(rate) for _ in range(graph)]
        # Fewer weight servers than there are stand for all: together they carry as much.
        scale = costs.sample.weight_servers / setup.weight_servers
        rate = weight_machine.network_bytes_s * scale
        self.weight_out = [Link(rate) for _ in self.weight_machines]
        self.weight_in = [Link(rate) for _ in self.weight_machines]
        self.weight_adding = [Link(weight_machine.core.stream * scale) for _ in self.weight_machines]
        own = lambda_network_bytes_s
        self._to_lambdas = self.out_links if own is None else [Link(own) for _ in range(graph)]
        self._from_lambdas = self.in_links if own is None else [Link(own) for _ in range(graph)]
        self.fleets = [] if lambdas is None else [self._fleet(lambdas, each) for each in range(graph)]
        self._held: list[set[Version]] = [set() for _ in range(graph)]
        self._epochs = epochs
        self._finished: Counter[Epoch] = Counter()
        self._obey: dict[type[Instruction], Callable[[Address, Any], None]] = {
            Send: self._send,
            RunTask: self._run_task,
            Update: self._update,
        }

    def run(self) -> None:
        """To the end of the last epoch."""
        for instruction in self._run.begin():
            self._obey_one(RUN, instruction)
        while len(self.ended) < self._epochs:
            if not self.agenda.step():
                raise SiafuError("the simulated run stands still: nothing is under way")
        for fleet in self.fleets:
            fleet.end(self.agenda.now)

    @property
    def busy(self) -> dict[str, float]:
        """Core seconds of all simulated servers, by the kind of job."""
        kinds = sorted({kind for each in self.cores for kind in each.busy})
        return {kind: sum(each.busy[kind] for each in self.cores) for kind in kinds}

    def _fleet(self, kind: LambdaKind, server: int) -> Fleet:
        sample = self._costs.sample
        return Fleet(
            self.agenda,
            kind,
            sample.simulated_lambdas,
            sample.lambdas / sample.simulated_lambdas,
            self._to_lambdas[server],
            self._from_lambdas[server],
            self.weight_out[server % len(self.weight_out)],
            sample.servers_each,
            self.cores[server] if self._lambdas_on_cores else None,
        )

    def _deliver(self, to: Address, event: Event) -> None:
        self.events += 1
        if isinstance(event, EpochFinished):
            self._count_finished(event)
        for instruction in self._machine(to).handle(event):
            self._obey_one(to, instruction)

    def _machine(self, at: Address) -> GraphServer | WeightServer | RunMachine:
        if at.role == "graph":
            return self.graph_machines[at.index]
        return self.weight_machines[at.index] if at.role == "weight" else self._run

    def _obey_one(self, at: Address, what: Instruction) -> None:
        # The others say where rows and weights are to be kept: here there are none.
        obey = self._obey.get(type(what))
        if obey is not None:
            obey(at, what)

    def _count_finished(self, event: EpochFinished) -> None:
        """An epoch has ended when all servers say so; none ends before the one before it."""
        self._finished[event.epoch] += 1
        if self._finished[event.epoch] == len(self.graph_machines):
            self.ended.append(self.agenda.now)

    # Tasks

    def _run_task(self, at: Address, run: RunTask) -> None:
        task = run.task
        cost = self._costs.of(task.lane, task.stage.id)
        done = partial(self._deliver, at, TaskDone(_INCARNATION, task, (1.0,)))
        if cost is None:
            self.agenda.after(0.0, done)
            return
        urgency = (0, *(task.priority if self._setup.exact else task.fresh_priority))
        if self.fleets and task.stage.kind == "tensor" and cost.work.received:
            self._hand_over(at, run, cost, urgency, done)
        else:
            self.cores[at.index].add(urgency, str(task.stage), cost.seconds, done)

    def _hand_over(
        self,
        at: Address,
        run: RunTask,
        cost: StageCost,
        urgency: tuple[Any, ...],
        done: Callable[[], None],
    ) -> None:
        fleet, cores, task = self.fleets[at.index], self.cores[at.index], run.task
        name = f"{task.stage} handed over"

        def take(size: float) -> None:
            cores.add(FIRST, f"{task.stage} taken", self._costs.server_seconds(fleet.kind, size), done)

        tensor = TensorTask(
            cost.work,
            (task.stage.phase, task.interval),
            task.epoch,
            task.stage.direction == "backward",
            run.version,
            urgency,
            take,
        )
        packed = self._costs.server_seconds(fleet.kind, cost.work.received - cost.work.constant)
        cores.add(urgency, name, packed, partial(fleet.submit, tensor))

    # Messages

    def _send(self, sender: Address, send: Send) -> None:
        to, message = send.to, send.message
        if isinstance(message, RowsArrived):
            self._send_rows(sender, to, message)
            return
        deliver = partial(self._deliver, to, message)
        if isinstance(message, WeightsAsked) and message.interval is not None and message.version is None:
            turn = entry_priority(message.epoch, message.interval)
            self.cores[sender.index].add((0, *turn), "enter", 0.0, partial(self._travel, deliver))
        elif isinstance(message, GradientArrived):
            self._send_gradient(sender, to, message, deliver)
        elif isinstance(message, WeightsGranted) and to.role == "graph" and not self.fleets:
            self._grant(sender, to, message, deliver)
        elif isinstance(message, WeightsMade):
            self._share_weights(sender, to, deliver)
        else:
            self._travel(deliver)

    def _travel(self, deliver: Callable[[], None]) -> None:
        self.agenda.after(0.0 if self._near else self._costs.machine.latency_s, deliver)

    def _send_rows(self, sender: Address, to: Address, message: RowsArrived) -> None:
        cost = self._costs.of(message.lane, message.stage)
        if cost is None:
            self.agenda.after(0.0, self._deliver, to, message)
            return
        depart = partial(self._rows_depart, sender, to, message, cost)
        self.cores[sender.index].add(FIRST, "scatter", cost.packing, depart)

    def _rows_depart(self, sender: Address, to: Address, message: RowsArrived, cost: StageCost) -> None:
        now = self.agenda.now
        self.scattered += cost.sent
        gone = self.out_links[sender.index].carry(now, cost.sent)
        came = self.in_links[to.index].carry(now, cost.sent)
        arrive = partial(
            self.cores[to.index].add, FIRST, "ghosts", cost.packing, partial(self._deliver, to, message)
        )
        self.agenda.after(max(gone, came) - now + self._costs.machine.latency_s, arrive)

    def _send_gradient(
        self, sender: Address, to: Address, message: GradientArrived, deliver: Callable[[], None]
    ) -> None:
        now, size = self.agenda.now, self._costs.gradient_bytes(message.phase)
        self.weights += size
        added = self.weight_adding[to.index].carry(now, size)
        if self._near:
            self.agenda.after(added - now, deliver)
            return
        one = size / self._costs.sample.servers_each
        gone = self.out_links[sender.index].carry(now, one)
        came = self.weight_in[to.index].carry(now, size)
        self.agenda.after(max(gone, came, added) - now + self._costs.machine.latency_s, deliver)

    def _grant(
        self, sender: Address, to: Address, message: WeightsGranted, deliver: Callable[[], None]
    ) -> None:
        """A version travels to a graph server once, with the first grant."""
        held = self._held[to.index]
        if self._near or message.version in held:
            self._travel(deliver)
            return
        held.add(message.version)
        now, size = self.agenda.now, self._costs.weight_bytes
        self.weights += size * self._costs.sample.servers_each
        gone = self.weight_out[sender.index].carry(now, size * self._costs.sample.servers_each)
        came = self.in_links[to.index].carry(now, size)
        self.agenda.after(max(gone, came) - now + self._costs.machine.latency_s, deliver)

    def _share_weights(self, sender: Address, to: Address, deliver: Callable[[], None]) -> None:
        now = self.agenda.now
        size = self._costs.weight_bytes / self._setup.weight_servers
        gone = self.weight_out[sender.index].carry(now, size)
        came = self.weight_in[to.index].carry(now, size)
        self.agenda.after(
            0.0 if self._near else max(gone, came) - now + self._costs.machine.latency_s, deliver
        )

    # Weights

    def _update(self, at: Address, update: Update) -> None:
        phases = [phase for phase, home in self._setup.homes.items() if home == at.index]
        done = partial(self._deliver, at, UpdateDone(_INCARNATION, update.version))
        seconds = self._costs.update_seconds(phases)
        if self._near:
            self.cores[0].add(FIRST, "update", seconds, done)
        else:
            self.agenda.after(seconds, done)
