"""VirtualExecutor: a graph server's tasks in virtual time: on cores, and on Lambdas where there are any."""

from collections.abc import Callable
from functools import partial
from typing import Any

from siafu.pipeline.events import RowsArrived, WeightsAsked
from siafu.pipeline.ids import Address, ServerId, Version
from siafu.pipeline.instructions import BeginTask, CompareRows, KeepRows, RunTask
from siafu.pipeline.setup import Setup
from siafu.pipeline.task import Task, entry_priority
from siafu.runtime.executor import Weights
from siafu.runtime.letter import Letter
from siafu.server.worker import TaskResult
from siafu.virtual.agenda import Agenda
from siafu.virtual.resources import FIRST, Cores
from siafu.virtual.stage_costs import StageCosts, TaskCost
from siafu.virtual.virtual_gathers import VirtualGathers
from siafu.virtual.virtual_lambdas import TensorTask, VirtualLambdas


class VirtualExecutor:
    """Every task takes what it costs; what costs nothing takes no time. See `siafu.runtime.executor`."""

    def __init__(
        self,
        agenda: Agenda,
        setup: Setup,
        server: ServerId,
        costs: StageCosts,
        cores: Cores,
        fleet: VirtualLambdas | None,
        *,
        gives_way: bool = False,
    ) -> None:
        """gives_way: tasks run when no other of their machine is ready"""
        self._agenda, self._setup, self._costs = agenda, setup, costs
        self._cores, self._fleet, self._rank = cores, fleet, int(gives_way)
        self._gathers = VirtualGathers(setup, server, costs, cores) if setup.gather_parts else None

    def run(
        self, what: RunTask, weights: Weights, began: Callable[[], None], done: Callable[[TaskResult], None]
    ) -> None:
        task = what.task
        cost = self._costs.of(task.lane, task.stage.id)
        gradients: dict[Any, Any] = {phase: {} for phase in task.stage.gradients}
        end = partial(done, TaskResult(gradients, (1.0,)))
        if cost is None:
            self._agenda.after(0.0, end)
            return

        def add(seconds: float) -> None:
            self._cores.add(urgency, str(task.stage), seconds, end)

        urgency = (self._rank, *(task.priority if self._setup.exact else task.fresh_priority))
        if self._fleet is not None and task.stage.kind.remote and cost.work.received:
            self._hand_over(self._fleet, what, cost, urgency, end)
        elif self._gathers is not None and task.stage.kind.begins:
            self._gathers.end(task, lambda done: add((1.0 - done) * cost.seconds))
        else:
            add(cost.seconds)

    def begin(self, what: BeginTask) -> None:
        assert self._gathers is not None
        self._gathers.begin(what)

    def _hand_over(
        self,
        fleet: VirtualLambdas,
        what: RunTask,
        cost: TaskCost,
        urgency: tuple[Any, ...],
        end: Callable[[], None],
    ) -> None:
        task, cores = what.task, self._cores

        def take(size: float) -> None:
            cores.add(FIRST, f"{task.stage} taken", self._costs.server_seconds(fleet.kind, size), end)

        tensor = TensorTask(
            cost.work,
            (task.stage.phase, task.interval),
            task.epoch,
            task.stage.direction == "backward",
            what.version,
            urgency,
            take,
        )
        packed = self._costs.server_seconds(fleet.kind, cost.work.received - cost.work.constant)
        cores.add(urgency, f"{task.stage} handed over", packed, partial(fleet.submit, tensor))

    def enter(self, asked: WeightsAsked, then: Callable[[], None]) -> None:
        assert asked.interval is not None
        self._cores.add((0, *entry_priority(asked.epoch, asked.interval)), "enter", 0.0, then)

    def pack_rows(self, to: Address, message: RowsArrived, then: Callable[[Letter, int], None]) -> None:
        cost = self._costs.of(message.lane, message.stage)
        if cost is None:
            then(Letter(message), 0)
            return
        self._cores.add(FIRST, "scatter", cost.packing, partial(then, Letter(message), round(cost.sent)))

    def keep_result(self, task: Task) -> None: ...
    def keep_rows(self, keep: KeepRows, came: Letter) -> None: ...

    def compare_rows(self, what: CompareRows, came: Letter) -> tuple[int, int]:
        return 0, 0

    def halt(self) -> None: ...
    def abandon(self) -> None: ...
    def adopt(self) -> None: ...
    def resume(self) -> None: ...


class VirtualUpdates:
    """A weight server's updates.

    cores: that they run on; None: the weight server has a machine of its own
    """

    def __init__(
        self, agenda: Agenda, setup: Setup, costs: StageCosts, server: ServerId, cores: Cores | None
    ) -> None:
        phases = [phase for phase, home in setup.homes.items() if home == server]
        self._agenda, self._cores, self._seconds = agenda, cores, costs.update_seconds(phases)

    def __call__(self, version: Version, make: Callable[[], None], then: Callable[[], None]) -> None:
        if self._cores is not None:
            self._cores.add(FIRST, "update", self._seconds, then)
        else:
            self._agenda.after(self._seconds, then)
