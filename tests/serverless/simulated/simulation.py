"""A controller in virtual time, with Lambdas that go wrong, under the checker."""

import random
from collections import Counter
from dataclasses import dataclass

from siafu.serverless.control.backoff import hashed_jitter
from siafu.serverless.control.controller import Controller
from siafu.serverless.control.counts import ControllerCounts
from siafu.serverless.control.events import (
    ClockAdvanced,
    ControllerEvent,
    CountChanged,
    InvocationEnded,
    LambdaAsks,
    ResultArrived,
    TaskQueued,
    TaskReturned,
    TasksAbandoned,
)
from siafu.serverless.control.failure import Failure
from siafu.serverless.control.ids import InvocationId, PeerId, TaskId
from siafu.serverless.control.instructions import (
    CancelInvocation,
    ControllerInstruction,
    Deliver,
    DismissLambda,
    Invoke,
    OfferTask,
    WakeAt,
)
from siafu.virtual.agenda import Agenda
from tests.checker.truth import Violation, require
from tests.serverless.simulated.checker import Checker
from tests.serverless.simulated.lambdas import Platform
from tests.serverless.simulated.scenario import Scenario

_MANY = 30_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """failure: None: every task has its result."""

    failure: str | None
    counts: ControllerCounts
    makespan: float


def simulate(scenario: Scenario, controller: type[Controller] = Controller) -> Outcome:
    """Run a scenario to its end. A `Violation` names its seed, which replays it exactly."""
    try:
        return _Simulation(scenario, controller).run()
    except Violation as error:
        raise Violation(f"seed {scenario.seed}: {error}") from error


class _Simulation:
    def __init__(self, scenario: Scenario, controller: type[Controller]) -> None:
        self._scenario = scenario
        self._agenda = Agenda()
        self._source = random.Random(scenario.seed + 2)
        self._controller = controller(scenario.options, hashed_jitter(str(scenario.seed)))
        self._checker = Checker(scenario.options, exact=not scenario.jumps)
        self._platform = Platform(
            scenario, self._agenda, self._duration, self._asks, self._result, self._returned, self._ended
        )
        self._kind: dict[TaskId, str] = {}
        self._chain: dict[TaskId, int] = {}
        self._left = [scenario.length] * scenario.chains
        self._queued = 0
        self._wake = 0
        self._shift = 0.0  # of the runtime's clock
        self._ahead = 0.0  # how much of it is time that seems to have passed
        self._done: Counter[int] = Counter()

    def run(self) -> Outcome:
        scenario = self._scenario
        for chain in range(scenario.chains):
            self._queue(chain)
        for when, count in scenario.counts:
            self._agenda.after(when, self._change_count, count)
        for when in scenario.abandoned:
            self._agenda.after(when, self._abandon)
        for when, jump in scenario.jumps:
            self._agenda.after(when, self._jump, jump)
        for _ in range(_MANY):
            if not self._agenda.step():
                return self._end()
        raise Violation(f"no end after {_MANY} steps\n" + "\n".join(self._controller.waiting()))

    def _end(self) -> Outcome:
        failure = self._checker.failed
        if failure is None:
            require(
                not any(self._left),
                "nothing is under way and there are tasks without a result",
                *self._controller.waiting(),
            )
            require(not self._controller.num_outstanding, "what is done is forgotten")
        return Outcome(
            None if failure is None else failure.message, self._controller.counts, self._agenda.now
        )

    # What happens

    def _handle(self, event: ControllerEvent) -> None:
        try:
            out = self._controller.handle(event)
        except Exception as error:
            raise Violation(f"the controller failed on {event}: {error!r}") from error
        self._checker.check(self._agenda.now + self._ahead, event, out)
        for instruction in out:
            self._obey(instruction)

    @property
    def _shown(self) -> float:
        return self._agenda.now + self._shift

    def _queue(self, chain: int) -> None:
        task = TaskId(self._queued)
        self._queued += 1
        self._kind[task] = self._source.choice(list(self._scenario.kinds))
        self._chain[task] = chain
        self._handle(TaskQueued(self._shown, task, self._kind[task], (self._done[chain], chain)))

    def _change_count(self, count: int) -> None:
        self._handle(CountChanged(self._shown, count))

    def _abandon(self) -> None:
        if self._checker.failed is not None:
            return
        self._handle(TasksAbandoned(self._shown))
        self._chain.clear()
        for chain, left in enumerate(self._left):
            if left:
                self._queue(chain)

    def _jump(self, by: float) -> None:
        self._shift += by
        self._ahead += max(0.0, by)
        # Whoever sleeps until a time sees at once that it has passed.
        self._handle(ClockAdvanced(self._shown))

    def _asks(self, invocation: InvocationId, peer: PeerId) -> None:
        self._handle(LambdaAsks(self._shown, invocation, peer))

    def _result(self, invocation: InvocationId, task: TaskId, valid: bool) -> None:
        self._handle(ResultArrived(self._shown, invocation, task, valid))

    def _returned(self, invocation: InvocationId, task: TaskId) -> None:
        self._handle(TaskReturned(self._shown, invocation, task, "too little time is left"))

    def _ended(self, invocation: InvocationId, failure: Failure | None) -> None:
        self._handle(InvocationEnded(self._shown, invocation, failure))

    def _tick(self, wake: int) -> None:
        if wake == self._wake:
            self._handle(ClockAdvanced(self._shown))

    # What is to be done

    def _obey(self, instruction: ControllerInstruction) -> None:
        match instruction:
            case Invoke():
                self._platform.invoke(instruction.invocation)
            case CancelInvocation():
                self._platform.cancel(instruction.invocation)
            case OfferTask():
                self._platform.offer(instruction.peer, instruction.task)
            case DismissLambda():
                self._platform.dismiss(instruction.peer)
            case WakeAt():
                self._wake += 1
                self._agenda.after(max(0.0, instruction.time - self._shown), self._tick, self._wake)
            case Deliver():
                self._deliver(instruction.task)

    def _deliver(self, task: TaskId) -> None:
        chain = self._chain.get(task)
        require(chain is not None, "what was abandoned is not delivered", task)
        if chain is None:
            return
        self._left[chain] -= 1
        self._done[chain] += 1
        if self._left[chain]:
            self._agenda.after(self._source.random() * 0.2, self._queue_live, chain, self._left[chain])

    def _queue_live(self, chain: int, left: int) -> None:
        """Unless it was queued meanwhile, after all was abandoned."""
        waiting = any(each == chain for task, each in self._chain.items() if task in self._checker.tasks)
        if self._left[chain] == left and not waiting:
            self._queue(chain)

    def _duration(self, task: TaskId) -> float:
        return self._scenario.kinds[self._kind[task]]
