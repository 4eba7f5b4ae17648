"""Controller: the machine that gives one graph server's tensor tasks to Lambdas."""

from collections.abc import Callable
from typing import Any, Literal

from siafu.serverless.control.alarms import Alarms
from siafu.serverless.control.backoff import Backoff, Jitter
from siafu.serverless.control.clock import Clock
from siafu.serverless.control.controller_options import ControllerOptions
from siafu.serverless.control.counts import Counts
from siafu.serverless.control.events import (
    ClockAdvanced,
    CountChanged,
    Event,
    InvocationEnded,
    LambdaAsks,
    ResultArrived,
    TaskQueued,
    TaskReturned,
    TasksAbandoned,
)
from siafu.serverless.control.failure import Failure, FailureKind
from siafu.serverless.control.fleet import NOBODY, Fleet, Lambda, Standing
from siafu.serverless.control.ids import InvocationId, PeerId, Seconds, TaskId
from siafu.serverless.control.instructions import (
    Cancel,
    Deliver,
    Dismiss,
    Drop,
    Fail,
    Instruction,
    Invoke,
    OfferTask,
    Reason,
    WakeAt,
)
from siafu.serverless.control.patience import Patience
from siafu.serverless.control.task_table import TaskState, TaskTable

_Name = Literal["late", "over", "hold"]
_Alarm = tuple[_Name, InvocationId | None]
_HOLD: _Alarm = ("hold", None)
_SOON = 1e-5  # seconds: alarms so close go off together; a time that was rounded on its way has come


class _Hopeless(Exception):
    """Trying again cannot mend it; the message is the user's. `final`: as an instruction has it."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Controller:
    """Gives tensor tasks to Lambdas that ask, and sees to it that each gets one result, or fails with a reason.

    Why nothing hangs: a task that has no result waits, or has a runner. A runner has an alarm: it answers, ends, or is
    late, and then the task waits. While tasks wait, Lambdas are invoked, unless as many are under way as may be, or a
    setback is waited out. Each of those has an alarm too: to be late, to be over, to have waited. A task can be given
    out `attempts` times, and setbacks can follow each other `setbacks` times, so it ends.

    Why no result counts twice: the first valid one takes the task out of the table, and task numbers do not come again.
    """

    def __init__(self, options: ControllerOptions, jitter: Jitter) -> None:
        self.counts = Counts()
        self.count = options.count
        self._options = options
        self._clock = Clock()
        self._tasks = TaskTable()
        self._fleet = Fleet()
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
        self._handlers: dict[type[Event], Callable[[Any, list[Instruction]], None]] = {
            TaskQueued: self._queued,
            TasksAbandoned: lambda _, __: self._tasks.clear(),
            CountChanged: self._count_changed,
            ClockAdvanced: self._clock_advanced,
            LambdaAsks: self._asked,
            ResultArrived: self._arrived,
            TaskReturned: self._returned,
            InvocationEnded: self._ended,
        }

    def handle(self, event: Event) -> list[Instruction]:
        out: list[Instruction] = []
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
        """Tasks that no Lambda is at."""
        return self._tasks.num_waiting

    @property
    def num_at_work(self) -> int:
        """Lambdas that are at a task."""
        return self._fleet.num_at_work

    @property
    def num_outstanding(self) -> int:
        """Tasks that have no result yet."""
        return len(self._tasks)

    def waiting(self) -> list[str]:
        """What waits for what, in words."""
        tasks = [
            f"task {each.id} ({each.kind}) "
            + ("waits for a Lambda" if each.runner is None else f"is at Lambda {each.runner}")
            + f", given out {each.attempts} times"
            for each in self._tasks
        ]
        lambdas = [
            f"Lambda {each.id} in slot {each.slot} is {each.standing.value}, asked for at {each.made:.3f}"
            for each in self._fleet
        ]
        held = [f"no Lambda is asked for after {self._setbacks} setbacks"] if self._held else []
        return tasks + lambdas + held

    # From the runtime

    def _queued(self, event: TaskQueued, out: list[Instruction]) -> None:
        self._tasks.add(event.task, event.kind, event.priority, event.home)

    def _count_changed(self, event: CountChanged, out: list[Instruction]) -> None:
        self.count = event.count
        while self._is_surplus and (idle := self._fleet.first_idle) is not None:
            self._dismiss(idle, out)

    def _clock_advanced(self, event: ClockAdvanced, out: list[Instruction]) -> None:
        self._told = None  # the runtime has woken us, and owes nothing more

    # From Lambdas

    def _asked(self, event: LambdaAsks, out: list[Instruction]) -> None:
        found = self._fleet.get(event.invocation)
        if found is None or found.peer not in (NOBODY, event.peer):
            self.counts.strangers += 1
            out.append(Dismiss(event.invocation, event.peer))
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

    def _rest(self, member: Lambda, out: list[Instruction]) -> None:
        """It asks, and has nothing to do: it waits for a task, or is one too many."""
        if self._is_surplus:
            self._dismiss(member, out)
            return
        member.tasks.clear()
        self._alarms.clear(("late", member.id))
        self._fleet.rest(member)

    @property
    def _is_surplus(self) -> bool:
        """There are more Lambdas than there shall be."""
        return self._fleet.num_trusted > self.count

    def _heard_of(self, member: Lambda, peer: PeerId) -> None:
        member.peer = peer
        self._reached = True
        if member.made > self._setback_at:
            self._setbacks = 0

    def _dismiss(self, member: Lambda, out: list[Instruction]) -> None:
        self._part_with(member)
        out.append(Dismiss(member.id, member.peer))
        self.counts.retried += self._take_back(member, self._left("a Lambda asked for another instead"))

    def _arrived(self, event: ResultArrived, out: list[Instruction]) -> None:
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

    def _returned(self, event: TaskReturned, out: list[Instruction]) -> None:
        found = self._fleet.get(event.invocation)
        if found is not None and event.task in found.tasks:
            self.counts.retried += self._take_back(found, self._left(event.why), event.task)
            self._done_with(event, out)

    def _drop(self, event: ResultArrived, reason: Reason, out: list[Instruction]) -> None:
        self.counts.dropped[reason] += 1
        out.append(Drop(event.task, event.invocation, reason))

    def _done_with(self, event: ResultArrived | TaskReturned, out: list[Instruction]) -> None:
        """Who is through with what it was at goes on with the next that it has, asks for more, or ends."""
        sender = self._fleet.get(event.invocation)
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
        """One that was late and is heard of, unless others have taken its place."""
        if member.standing is Standing.DOUBTED and self._fleet.num_trusted < self.count:
            member.standing = Standing.TRUSTED

    def _distrust(self, sender: InvocationId, out: list[Instruction]) -> None:
        """A Lambda that brings garbage is given nothing more."""
        found = self._fleet.get(sender)
        if found is None:
            return
        self._part_with(found)
        out.append(Cancel(found.id))
        trouble = Failure(FailureKind.UNFIT, self._options.where, "its result was not what its program makes")
        self.counts.retried += self._take_back(found, trouble)

    # From the invoker

    def _ended(self, event: InvocationEnded, out: list[Instruction]) -> None:
        found = self._fleet.get(event.invocation)
        if found is None:
            return
        failure = event.failure
        if failure is not None:
            self.counts.failures[failure.kind] += 1
            if failure.is_final:
                self._give_up(f"a Lambda cannot be had: {failure}", final=True)
        self._remove(found, failure or self._ended_badly(found, "without a result"))

    def _set_back(self, failed: Lambda, failure: Failure) -> None:
        """A new Lambda did not come. Wait before the next, longer each time that none of the new ones comes."""
        if failed.made > self._setback_at:  # else it was asked for together with one that has been counted
            self._setback_at = self._clock.now
            self._setbacks += 1
            if self._setbacks >= self._bearable(failure) and not self._fleet.has_worker:
                self._give_up(f"no Lambda came in {self._setbacks} tries: {failure}")
        elif self._held:
            return
        self._held = True
        self._waits += 1
        self._alarms.set(_HOLD, self._clock.now + self._backoff.wait(max(1, self._setbacks), self._waits))

    def _bearable(self, failure: Failure) -> int:
        """How many setbacks in a row are too many. What fails from the start will not mend itself; a platform may."""
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

    def _ring(self, name: _Name, invocation: InvocationId | None, out: list[Instruction]) -> None:
        found = None if invocation is None else self._fleet.get(invocation)
        if found is None:
            self._held = False
        elif name == "over":
            self._remove(found, self._ended_badly(found, "without a word"))
        elif found.standing is Standing.TRUSTED:
            self._doubt(found)
        else:
            self._part_with(found)
            out.append(Cancel(found.id))

    def _doubt(self, late: Lambda) -> None:
        """Another may take its place; it may still come back."""
        late.standing = Standing.DOUBTED
        self._expect(late, late.patience)
        if not late.has_come:
            self._set_back(late, self._silent(f"no word from a Lambda in {late.patience:.0f} s"))
        self.counts.relaunched += self._take_back(late, self._left(f"no answer in {late.patience:.3g} s"))

    def _expect(self, member: Lambda, patience: Seconds) -> None:
        """It is late when it is not heard of for so long."""
        member.patience = patience
        self._alarms.set(("late", member.id), self._clock.now + patience)

    def _wait_no_longer(self, kind: str) -> None:
        """The first task of a kind is done: those at another of it were waited for as if none ever were."""
        for member in self._fleet:
            at = self._current(member)
            if at and at[0].kind == kind and member.standing is Standing.TRUSTED:
                member.patience = self._patience.of(kind, at[0].attempts)
                self._alarms.set(("late", member.id), self._began(at[0], member.id) + member.patience)

    def _tell_alarm(self, out: list[Instruction]) -> None:
        due = self._alarms.next()
        if due is None:
            return
        shown = self._clock.shown_at(due)
        if self._told is None or shown < self._told:
            self._told = shown
            out.append(WakeAt(shown))

    # Lambdas come and go

    def _invoke(self, out: list[Instruction]) -> None:
        """As many as there are tasks that wait, and as may be."""
        if self._held or not self._tasks.num_waiting:
            return
        wanted = self._tasks.num_waiting - self._fleet.num_starting
        for _ in range(min(wanted, self._room)):
            made = self._fleet.make(self._clock.now)
            self.counts.invocations += 1
            self._expect(made, self._options.start)
            self._alarms.set(("over", made.id), self._clock.now + self._options.lifetime)
            out.append(Invoke(made.id, made.slot))

    @property
    def _room(self) -> int:
        """How many more Lambdas may be asked for."""
        fleet, count = self._fleet, self.count
        return min(count - fleet.num_trusted, count + self._options.spares - len(fleet))

    def _part_with(self, member: Lambda) -> None:
        """It gets no task any more, and is waited for no longer; a result of it that is still to come may count."""
        member.standing = Standing.DISMISSED
        member.asks = 0
        self._fleet.wake(member)
        self._alarms.clear(("late", member.id))

    def _remove(self, member: Lambda, trouble: Failure) -> None:
        """It has ended."""
        self._fleet.remove(member)
        self._alarms.clear(("late", member.id))
        self._alarms.clear(("over", member.id))
        # One that was doubted before it came has been counted as a setback then.
        if not member.has_come and member.standing is Standing.TRUSTED:
            self._set_back(member, trouble)
        self.counts.retried += self._take_back(member, trouble)

    # Tasks

    def _offer_tasks(self, out: list[Instruction]) -> None:
        if not self._fleet.has_asking:
            return
        for task in self._tasks.waiting():
            member = self._taker(task)
            if member is not None:
                self._offer(member, task, out)

    def _taker(self, task: TaskState) -> Lambda | None:
        """Who should do it now. None: it waits for one that is busy, or that is still to come."""
        owner, idle = self._fleet.owner(task.home), self._fleet.poorest_idle
        if owner is not None and not self._is_surplus:
            if owner.asks:
                return owner
            # Elsewhere, rows would have to travel anew: only to who has less to do in every epoch.
            evens_out = idle is not None and len(idle.homes) + 2 <= len(owner.homes)
            return idle if evens_out else None
        if idle is not None:
            return idle
        coming = self._fleet.num_starting + (0 if self._held else max(0, self._room))
        wanted = self._tasks.num_waiting > coming and not self._is_surplus
        return self._fleet.least_busy if wanted else None

    def _offer(self, member: Lambda, task: TaskState, out: list[Instruction]) -> None:
        is_at_one = bool(self._current(member))
        self._fleet.wake(member)
        self._tasks.give(task, member.id, self._clock.now)
        member.asks -= 1
        if task.id in member.tasks:
            member.tasks.remove(task.id)
        member.tasks.append(task.id)
        if task.home is not None:
            self._fleet.settle(member, task.home)
        if not is_at_one:
            self._expect(member, self._patience.of(task.kind, task.attempts))
        out.append(OfferTask(member.id, member.peer, task.id))

    def _current(self, member: Lambda) -> list[TaskState]:
        """The tasks that a Lambda is expected to do, in order: not those that have become another's."""
        tasks = map(self._tasks.get, member.tasks)
        return [each for each in tasks if each is not None and each.runner == member.id]

    def _began(self, task: TaskState, invocation: InvocationId) -> Seconds:
        """When a Lambda could begin with a task: it was there, and the one before it done."""
        member = self._fleet.get(invocation)
        return max(task.offered[invocation], 0.0 if member is None else member.turn)

    def _take_back(self, member: Lambda, trouble: Failure, only: TaskId | None = None) -> int:
        """How many tasks are to be done by others: all it has, or one. Who had them may still bring results."""
        tasks = [each for each in self._current(member) if only in (None, each.id)]
        for task in tasks:
            if task.attempts >= self._options.attempts:
                raise _Hopeless(f"{task.kind} came to nothing {task.attempts} times, last: {trouble}")
            self._tasks.take_back(task)
        return len(tasks)
