"""Controller: the machine that gives one graph server's tensor tasks to Lambdas."""

from collections.abc import Callable
from typing import Any, Literal

from siafu.serverless.control.alarms import Alarms
from siafu.serverless.control.backoff import Backoff, Jitter
from siafu.serverless.control.clock import Clock
from siafu.serverless.control.controller_options import ControllerOptions
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
from siafu.serverless.control.failure import Failure, FailureKind
from siafu.serverless.control.ids import InvocationId, PeerId, Seconds, TaskId
from siafu.serverless.control.instructions import (
    CancelInvocation,
    ControllerInstruction,
    Deliver,
    DismissLambda,
    Drop,
    DropReason,
    Fail,
    Invoke,
    OfferTask,
    WakeAt,
)
from siafu.serverless.control.lambda_table import NOBODY, Lambda, LambdaTable, Standing
from siafu.serverless.control.patience import Patience
from siafu.serverless.control.task_table import TaskState, TaskTable

_Name = Literal["late", "over", "hold"]
_Alarm = tuple[_Name, InvocationId | None]
_HOLD: _Alarm = ("hold", None)
_SOON = 1e-5  # seconds: alarms so close go off together; a time that was rounded on its way has come


class _Hopeless(Exception):
    """Trying again cannot help. The message is for the user; `final`: see `Fail`."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Controller:
    """Gives tensor tasks to Lambdas that ask. Each task gets one result, or the run fails with a reason.

    Why nothing hangs: a task without a result waits, or has a runner. A runner has an alarm: it answers, ends, or is
    late, and then the task waits. While tasks wait, Lambdas are invoked, unless the most that there may be are under way,
    or the wait after a setback is not over. Each of these has an alarm, too. A task is given out at most `attempts`
    times, and at most `setbacks` setbacks follow each other, so it ends.

    Why no result counts twice: the first valid one removes the task from the table, and task numbers are not used again.
    """

    def __init__(self, options: ControllerOptions, jitter: Jitter) -> None:
        self.counts = ControllerCounts()
        self.count = options.count
        self._options = options
        self._clock = Clock()
        self._tasks = TaskTable()
        self._lambdas = LambdaTable()
        self._alarms: Alarms[_Alarm] = Alarms()
        self._patience = Patience(options.ratio, options.floor, options.default)
        self._backoff = Backoff(options.wait, options.longest_wait, jitter)
        self._setbacks = 0
        self._waits = 0
        self._setback_at: Seconds = -1.0
        self._held = False
        self._reached = False
        self._told: Seconds | None = None
        self._failed = False
        self._handlers: dict[type[ControllerEvent], Callable[[Any, list[ControllerInstruction]], None]] = {
            TaskQueued: self._queued,
            TasksAbandoned: lambda _, __: self._tasks.clear(),
            CountChanged: self._count_changed,
            ClockAdvanced: self._clock_advanced,
            LambdaAsks: self._asked,
            ResultArrived: self._arrived,
            TaskReturned: self._returned,
            InvocationEnded: self._ended,
        }

    def handle(self, event: ControllerEvent) -> list[ControllerInstruction]:
        out: list[ControllerInstruction] = []
        if self._failed:
            return out
        self._clock.hear(event.now)
        try:
            self._handlers[type(event)](event, out)
            for name, invocation in self._alarms.due(self._clock.now + _SOON):
                self._ring(name, invocation, out)
            self._offer_tasks(out)
            self._invoke(out)
        except _Hopeless as reason:
            self._failed = True
            out.append(Fail(str(reason), reason.final))
            return out
        self._tell_alarm(out)
        return out

    @property
    def num_waiting(self) -> int:
        """Number of tasks that no Lambda runs."""
        return self._tasks.num_waiting

    @property
    def num_at_work(self) -> int:
        """Number of Lambdas that run a task."""
        return self._lambdas.num_at_work

    @property
    def num_outstanding(self) -> int:
        """Number of tasks without a result."""
        return len(self._tasks)

    def waiting(self) -> list[str]:
        """Tasks and Lambdas that wait, in words."""
        tasks = [
            f"task {each.id} ({each.kind}) "
            + ("waits for a Lambda" if each.runner is None else f"is at Lambda {each.runner}")
            + f", given out {each.attempts} times"
            for each in self._tasks
        ]
        lambdas = [
            f"Lambda {each.id} in slot {each.slot} is {each.standing.value}, asked for at {each.made:.3f}"
            for each in self._lambdas
        ]
        held = [f"no Lambda is asked for after {self._setbacks} setbacks"] if self._held else []
        return tasks + lambdas + held

    # From the runtime

    def _queued(self, event: TaskQueued, out: list[ControllerInstruction]) -> None:
        places = self._options.places if event.places is None else event.places
        self._tasks.add(event.task, event.kind, event.priority, places, event.home)

    def _count_changed(self, event: CountChanged, out: list[ControllerInstruction]) -> None:
        self.count = event.count
        while self._is_surplus and (idle := self._lambdas.first_idle) is not None:
            self._dismiss(idle, out)

    def _clock_advanced(self, event: ClockAdvanced, out: list[ControllerInstruction]) -> None:
        self._told = None  # the runtime has woken us, and owes nothing more

    # From Lambdas

    def _asked(self, event: LambdaAsks, out: list[ControllerInstruction]) -> None:
        found = self._lambdas.get(event.invocation)
        if found is None or found.peer not in (NOBODY, event.peer):
            self.counts.strangers += 1
            out.append(DismissLambda(event.invocation, event.peer))
            return
        self._heard_of(found, event.peer)
        self._trust_again(found)
        at = self._current(found)
        if found.standing is not Standing.TRUSTED:
            self._dismiss(found, out)
        elif at and len(at) + found.asks >= self._options.places:
            out.append(OfferTask(found.id, found.peer, at[0].id))  # the first offer may not have come through
        else:
            found.asks = min(found.asks + 1, self._options.places - len(at))
            if not at:
                self._rest(found, out)

    def _rest(self, member: Lambda, out: list[ControllerInstruction]) -> None:
        """A Lambda asks and has no task: let it wait, or dismiss it if there are too many."""
        if self._is_surplus:
            self._dismiss(member, out)
            return
        member.tasks.clear()
        self._alarms.clear(("late", member.id))
        self._lambdas.rest(member)

    @property
    def _is_surplus(self) -> bool:
        """Whether there are more Lambdas than there should be."""
        return self._lambdas.num_trusted > self.count

    def _heard_of(self, member: Lambda, peer: PeerId) -> None:
        member.peer = peer
        self._reached = True
        if member.made > self._setback_at:
            self._setbacks = 0

    def _dismiss(self, member: Lambda, out: list[ControllerInstruction]) -> None:
        self._part_with(member)
        out.append(DismissLambda(member.id, member.peer))
        self.counts.retried += self._take_back(member, self._left("a Lambda asked for another instead"))

    def _arrived(self, event: ResultArrived, out: list[ControllerInstruction]) -> None:
        task = self._tasks.get(event.task)
        if task is not None and event.invocation not in task.offered:
            self._drop(event, "stranger", out)
        elif not event.valid:
            self._drop(event, "garbage", out)
            self._distrust(event.invocation, out)
        elif task is None:
            self._drop(event, "duplicate", out)
            self._done_with(event, out)
        else:
            known = self._patience.knows(task.kind)
            self._patience.learn(task.kind, self._clock.now - self._began(task, event.invocation))
            self._tasks.finish(task)
            self.counts.delivered += 1
            out.append(Deliver(task.id, event.invocation))
            self._done_with(event, out)
            if not known:
                self._wait_no_longer(task.kind)

    def _returned(self, event: TaskReturned, out: list[ControllerInstruction]) -> None:
        found = self._lambdas.get(event.invocation)
        if found is not None and event.task in found.tasks:
            self.counts.retried += self._take_back(found, self._left(event.why), event.task)
            self._done_with(event, out)

    def _drop(self, event: ResultArrived, reason: DropReason, out: list[ControllerInstruction]) -> None:
        self.counts.dropped[reason] += 1
        out.append(Drop(event.task, event.invocation, reason))

    def _done_with(self, event: ResultArrived | TaskReturned, out: list[ControllerInstruction]) -> None:
        """A Lambda has finished its task: it continues with its next one, asks for more, or ends."""
        sender = self._lambdas.get(event.invocation)
        if sender is None or event.task not in sender.tasks:
            return
        sender.tasks.remove(event.task)
        sender.turn = self._clock.now
        self._trust_again(sender)
        if sender.standing is not Standing.DISMISSED:
            at = self._current(sender)
            self._expect(sender, self._patience.of(at[0].kind, at[0].attempts) if at else self._options.start)
            if not at and sender.asks and sender.standing is Standing.TRUSTED:
                self._rest(sender, out)

    def _trust_again(self, member: Lambda) -> None:
        """Trust a late Lambda again when it speaks, unless others have taken its place."""
        if member.standing is Standing.DOUBTED and self._lambdas.num_trusted < self.count:
            member.standing = Standing.TRUSTED

    def _distrust(self, sender: InvocationId, out: list[ControllerInstruction]) -> None:
        """Give nothing more to a Lambda that sent garbage."""
        found = self._lambdas.get(sender)
        if found is None:
            return
        self._part_with(found)
        out.append(CancelInvocation(found.id))
        trouble = Failure(FailureKind.UNFIT, self._options.where, "its result was not what its program makes")
        self.counts.retried += self._take_back(found, trouble)

    # From the invoker

    def _ended(self, event: InvocationEnded, out: list[ControllerInstruction]) -> None:
        found = self._lambdas.get(event.invocation)
        if found is None:
            return
        failure = event.failure
        if failure is not None:
            self.counts.failures[failure.kind] += 1
            if failure.is_final:
                self._give_up(f"a Lambda cannot be had: {failure}", final=True)
        self._remove(found, failure or self._ended_badly(found, "without a result"))

    def _set_back(self, failed: Lambda, failure: Failure) -> None:
        """A new Lambda did not come: wait before the next, longer each time that none comes."""
        if failed.made > self._setback_at:  # else it was asked for together with one that has been counted
            self._setback_at = self._clock.now
            self._setbacks += 1
            if self._setbacks >= self._bearable(failure) and not self._lambdas.has_worker:
                self._give_up(f"no Lambda came in {self._setbacks} tries: {failure}")
        elif self._held:
            return
        self._held = True
        self._waits += 1
        self._alarms.set(_HOLD, self._clock.now + self._backoff.wait(max(1, self._setbacks), self._waits))

    def _bearable(self, failure: Failure) -> int:
        """Number of setbacks in a row that are too many. A function that fails from the start stays broken; a platform may recover."""
        passing = failure.kind in (FailureKind.THROTTLED, FailureKind.UNAVAILABLE)
        return self._options.setbacks if self._reached or passing else self._options.first_setbacks

    def _give_up(self, message: str, *, final: bool = False) -> None:
        if len(self._tasks):  # else no one waits for a Lambda: there is time to find out when someone does
            raise _Hopeless(message, final=final)

    def _silent(self, detail: str) -> Failure:
        return Failure(FailureKind.SILENT, self._options.where, detail)

    def _left(self, detail: str) -> Failure:
        return Failure(FailureKind.TIMED_OUT, self._options.where, detail)

    def _ended_badly(self, member: Lambda, how: str) -> Failure:
        if member.has_come:
            return self._left(f"a Lambda ended {how}")
        return self._silent("a Lambda ended before it asked for a task")

    # Time

    def _ring(self, name: _Name, invocation: InvocationId | None, out: list[ControllerInstruction]) -> None:
        found = None if invocation is None else self._lambdas.get(invocation)
        if found is None:
            self._held = False
        elif name == "over":
            self._remove(found, self._ended_badly(found, "without a word"))
        elif found.standing is Standing.TRUSTED:
            self._doubt(found)
        else:
            self._part_with(found)
            out.append(CancelInvocation(found.id))

    def _doubt(self, late: Lambda) -> None:
        """Let another Lambda take the place of a late one, which may still come back."""
        late.standing = Standing.DOUBTED
        self._expect(late, late.patience)
        if not late.has_come:
            self._set_back(late, self._silent(f"no word from a Lambda in {late.patience:.0f} s"))
        self.counts.relaunched += self._take_back(late, self._left(f"no answer in {late.patience:.3g} s"))

    def _expect(self, member: Lambda, patience: Seconds) -> None:
        """A Lambda is late when it is silent for so long."""
        member.patience = patience
        self._alarms.set(("late", member.id), self._clock.now + patience)

    def _wait_no_longer(self, kind: str) -> None:
        """The first task of a kind is done: now others of its kind have a mean to be late by, in place of the default."""
        for member in self._lambdas:
            at = self._current(member)
            if at and at[0].kind == kind and member.standing is Standing.TRUSTED:
                member.patience = self._patience.of(kind, at[0].attempts)
                self._alarms.set(("late", member.id), self._began(at[0], member.id) + member.patience)

    def _tell_alarm(self, out: list[ControllerInstruction]) -> None:
        due = self._alarms.next()
        if due is None:
            return
        shown = self._clock.shown_at(due)
        if self._told is None or shown < self._told:
            self._told = shown
            out.append(WakeAt(shown))

    # Lambdas come and go

    def _invoke(self, out: list[ControllerInstruction]) -> None:
        """Invoke a Lambda for each task that waits, as far as the limit allows."""
        if self._held or not self._tasks.num_waiting:
            return
        wanted = self._tasks.num_waiting - self._lambdas.num_starting
        for _ in range(min(wanted, self._room)):
            made = self._lambdas.make(self._clock.now)
            self.counts.invocations += 1
            self._expect(made, self._options.start)
            self._alarms.set(("over", made.id), self._clock.now + self._options.lifetime)
            out.append(Invoke(made.id, made.slot))

    @property
    def _room(self) -> int:
        """Number of Lambdas that may be invoked now."""
        lambdas, count = self._lambdas, self.count
        return min(count - lambdas.num_trusted, count + self._options.spares - len(lambdas))

    def _part_with(self, member: Lambda) -> None:
        """Give a Lambda no more tasks and stop waiting for it; a result that it still sends may count."""
        member.standing = Standing.DISMISSED
        member.asks = 0
        self._lambdas.wake(member)
        self._alarms.clear(("late", member.id))

    def _remove(self, member: Lambda, trouble: Failure) -> None:
        """Forget a Lambda that has ended."""
        self._lambdas.remove(member)
        self._alarms.clear(("late", member.id))
        self._alarms.clear(("over", member.id))
        # One that was doubted before it came has been counted as a setback then.
        if not member.has_come and member.standing is Standing.TRUSTED:
            self._set_back(member, trouble)
        self.counts.retried += self._take_back(member, trouble)

    # Tasks

    def _offer_tasks(self, out: list[ControllerInstruction]) -> None:
        if not self._lambdas.has_room(self._tasks.most_places):
            return
        for task in self._tasks.waiting():
            member = self._taker(task)
            if member is not None:
                self._offer(member, task, out)

    def _taker(self, task: TaskState) -> Lambda | None:
        """The Lambda that should run a task now; None: the task waits for one that is busy or still starting."""
        owner, idle = self._lambdas.owner(task.home), self._lambdas.poorest_idle
        if owner is not None and not self._is_surplus:
            if owner.has_room(task.places):
                return owner
            # Elsewhere, rows would have to travel anew: only to who has less to do in every epoch.
            evens_out = idle is not None and len(idle.homes) + 2 <= len(owner.homes)
            return idle if evens_out else None
        if idle is not None:
            return idle
        coming = self._lambdas.num_starting + (0 if self._held else max(0, self._room))
        wanted = self._tasks.num_waiting > coming and not self._is_surplus
        return self._lambdas.least_busy(task.places) if wanted else None

    def _offer(self, member: Lambda, task: TaskState, out: list[ControllerInstruction]) -> None:
        is_at_one = bool(self._current(member))
        self._lambdas.wake(member)
        self._tasks.give(task, member.id, self._clock.now)
        member.asks -= 1
        if task.id in member.tasks:
            member.tasks.remove(task.id)
        member.tasks.append(task.id)
        if task.home is not None:
            self._lambdas.settle(member, task.home)
        if not is_at_one:
            self._expect(member, self._patience.of(task.kind, task.attempts))
        out.append(OfferTask(member.id, member.peer, task.id))

    def _current(self, member: Lambda) -> list[TaskState]:
        """Tasks that a Lambda is expected to run, in order, without those given to another since."""
        tasks = map(self._tasks.get, member.tasks)
        return [each for each in tasks if each is not None and each.runner == member.id]

    def _began(self, task: TaskState, invocation: InvocationId) -> Seconds:
        """Time at which a Lambda could begin a task: it had the offer, and its previous task was done."""
        member = self._lambdas.get(invocation)
        return max(task.offered[invocation], 0.0 if member is None else member.turn)

    def _take_back(self, member: Lambda, trouble: Failure, only: TaskId | None = None) -> int:
        """Let others run all of a Lambda's tasks, or one; returns how many. The Lambda may still send results."""
        tasks = [each for each in self._current(member) if only in (None, each.id)]
        for task in tasks:
            if task.attempts >= self._options.attempts:
                raise _Hopeless(f"{task.kind} came to nothing {task.attempts} times, last: {trouble}")
            self._tasks.take_back(task)
        return len(tasks)
