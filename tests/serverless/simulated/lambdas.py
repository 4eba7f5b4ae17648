"""Lambdas as they come: processes that ask, work, answer, and go wrong, in virtual time."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from siafu.serverless.control.failure import Failure, FailureKind
from siafu.serverless.control.ids import InvocationId, PeerId, TaskId
from siafu.virtual.agenda import Agenda
from tests.serverless.simulated.scenario import Scenario

WHERE = "a simulated function"


@dataclass(slots=True)
class Process:
    """One execution of the handler. A twin has the same invocation but another peer."""

    invocation: InvocationId
    peer: PeerId
    alive: bool = True
    hung: bool = False
    busy: bool = False
    inbox: list[TaskId] = field(default_factory=list)
    asked: int = 0
    last_word: float = 0.0


class Platform:
    """Runs what is invoked, as well as the scenario's faults let it.

    asks, results, returns, ends: called with what the runtime hears
    """

    def __init__(
        self,
        scenario: Scenario,
        agenda: Agenda,
        duration: Callable[[TaskId], float],
        asks: Callable[[InvocationId, PeerId], None],
        results: Callable[[InvocationId, TaskId, bool], None],
        returns: Callable[[InvocationId, TaskId], None],
        ends: Callable[[InvocationId, Failure | None], None],
    ) -> None:
        self._scenario = scenario
        self._faults = scenario.faults
        self._agenda = agenda
        self._source = random.Random(scenario.seed + 1)
        self._duration = duration
        self._asks = asks
        self._results = results
        self._returns = returns
        self._ends = ends
        self._invoked = 0
        self._processes: dict[PeerId, Process] = {}

    # What the runtime does

    def invoke(self, invocation: InvocationId) -> None:
        self._invoked += 1
        faults = self._faults
        if faults.refused is not None and self._invoked > faults.refused:
            self._refuse(invocation, FailureKind.DENIED)
        elif faults.outage is not None and self._agenda.now > faults.outage:
            self._refuse(invocation, self._source.choice([FailureKind.UNAVAILABLE, FailureKind.THROTTLED]))
        elif self._strikes(faults.throttled):
            self._refuse(invocation, FailureKind.THROTTLED)
        elif self._strikes(faults.unavailable):
            self._refuse(invocation, FailureKind.UNAVAILABLE)
        else:
            for twin in range(2 if self._strikes(faults.twice) else 1):
                self._start(Process(invocation, PeerId(f"{invocation}/{twin}")))

    def cancel(self, invocation: InvocationId) -> None:
        if not self._scenario.can_kill:
            return
        for process in list(self._processes.values()):
            if process.invocation == invocation and process.alive:
                self._end(process, FailureKind.CRASHED)

    def offer(self, peer: PeerId, task: TaskId) -> None:
        self._agenda.after(self._delay(), self._offered, self._processes[peer], task)

    def dismiss(self, peer: PeerId) -> None:
        self._agenda.after(self._delay(), self._leave, self._processes[peer])

    # Beginning

    def _refuse(self, invocation: InvocationId, kind: FailureKind) -> None:
        self._agenda.after(self._delay(), self._ends, invocation, Failure(kind, WHERE, f"{kind},\nit says"))

    def _start(self, process: Process) -> None:
        self._processes[process.peer] = process
        start = self._scenario.cold * self._source.random()
        self._agenda.after(self._scenario.timeout, self._time_out, process)
        if self._strikes(self._faults.stillborn):
            if self._source.random() < 0.5:
                process.hung = True
            else:
                self._agenda.after(start, self._end, process, FailureKind.CRASHED)
            return
        self._agenda.after(start, self._ask, process)

    def _ask(self, process: Process) -> None:
        if not process.alive or process.hung or process.busy:
            return
        process.asked += 1
        first = self._scenario.options.places if process.asked == 1 else 1
        for _ in range(first + self._strikes(self._faults.repeats)):
            self._say(process, self._asks, process.invocation, process.peer)
        self._agenda.after(self._scenario.idle, self._tire, process, process.asked)

    # Working

    def _offered(self, process: Process, task: TaskId) -> None:
        if process.alive and not process.hung:
            process.inbox.append(task)
            self._work(process)

    def _work(self, process: Process) -> None:
        if process.busy or not process.inbox:
            return
        task = process.inbox.pop(0)
        process.busy = True
        duration = self._duration(task) * (0.5 + self._source.random())
        doom = self._scenario.doomed.get(task)
        if self._strikes(self._faults.late):
            duration *= 10 ** (3 * self._source.random())
        if doom == "crash" or self._strikes(self._faults.dies):
            self._agenda.after(duration * self._source.random(), self._end, process, FailureKind.CRASHED)
        elif doom == "hang" or self._strikes(self._faults.hangs):
            process.hung = True
        elif self._strikes(self._faults.returns):
            self._agenda.after(duration * self._source.random(), self._give_back, process, task)
        else:
            garbage = doom == "garbage" or self._strikes(self._faults.garbage)
            self._agenda.after(duration, self._answer, process, task, not garbage)

    def _answer(self, process: Process, task: TaskId, valid: bool) -> None:
        if not process.alive:
            return
        process.busy = False
        self._say(process, self._results, process.invocation, task, valid)
        if self._strikes(self._faults.again):
            later = self._source.choice([0.0, 1.0, 60.0]) * self._source.random()
            valid = valid and self._source.random() < 0.8
            self._agenda.after(later, self._say, process, self._results, process.invocation, task, valid)
        if self._strikes(self._faults.forged):
            forged = TaskId(max(0, task + self._source.randint(-3, 3)))
            if forged != task:
                self._say(process, self._results, process.invocation, forged, True)
        self._ask(process)
        self._work(process)

    def _give_back(self, process: Process, task: TaskId) -> None:
        if not process.alive:
            return
        process.busy = False
        self._say(process, self._returns, process.invocation, task)
        if process.inbox:
            self._work(process)
        elif self._source.random() < 0.5:
            self._ask(process)
        else:
            self._leave(process)

    # Ending

    def _tire(self, process: Process, asked: int) -> None:
        """No task came for a while."""
        if process.asked == asked and not process.busy and not process.hung:
            self._leave(process)

    def _leave(self, process: Process) -> None:
        if process.alive and not process.busy and not process.hung:
            self._end(process, None)

    def _time_out(self, process: Process) -> None:
        self._end(process, FailureKind.TIMED_OUT)

    def _end(self, process: Process, kind: FailureKind | None) -> None:
        if not process.alive:
            return
        process.alive = False
        if self._strikes(self._faults.unreported):
            return
        failure = None if kind is None else Failure(kind, WHERE, "it ended")
        for _ in range(2 if self._strikes(self._faults.repeats) else 1):
            # What reports an end is another way than that of results: either may be first.
            self._agenda.after(self._delay(), self._ends, process.invocation, failure)

    def _say(self, process: Process, hear: Callable[..., None], *what: object) -> None:
        arrives = self._agenda.now + self._delay()
        if not self._faults.disordered:
            arrives = process.last_word = max(arrives, process.last_word)
        self._agenda.after(arrives - self._agenda.now, hear, *what)

    def _delay(self) -> float:
        return self._scenario.latency * self._source.random()

    def _strikes(self, chance: float) -> bool:
        return chance > 0 and self._source.random() < chance
