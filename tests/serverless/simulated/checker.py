"""Checker: what a controller may and must do, held against every event and its instructions.

It keeps its own books and shares no state with the controller. Times here are those of a clock that only jumps ahead.
"""

from collections import Counter
from dataclasses import dataclass, field

from siafu.serverless.control.controller_options import ControllerOptions
from siafu.serverless.control.events import (
    ControllerEvent,
    CountChanged,
    InvocationEnded,
    LambdaAsks,
    ResultArrived,
    TaskQueued,
    TaskReturned,
    TasksAbandoned,
)
from siafu.serverless.control.failure import FailureKind
from siafu.serverless.control.ids import InvocationId, PeerId, SlotId, TaskId
from siafu.serverless.control.instructions import (
    CancelInvocation,
    ControllerInstruction,
    Deliver,
    DismissLambda,
    Drop,
    Fail,
    Invoke,
    OfferTask,
    WakeAt,
)
from tests.checker.truth import Violation, require

_ROUNDING = 2e-5


@dataclass(slots=True)
class _Task:
    kind: str
    offers: list[tuple[InvocationId, float]] = field(default_factory=list)
    due: float = 0.0


@dataclass(slots=True)
class _Lambda:
    slot: SlotId
    made: float
    silent_until: float
    lost_at: float
    peer: PeerId | None = None
    tasks: list[TaskId] = field(default_factory=list)
    turn: float = 0.0
    late: bool = False
    excused: bool = False


class _Mean:
    """What the controller waits for, as its options describe it."""

    def __init__(self) -> None:
        self.value: float | None = None
        self.samples = 0

    def patience(self, options: ControllerOptions, attempt: int) -> float:
        first = options.default if self.value is None else max(options.floor, options.ratio * self.value)
        return first * 2 ** (attempt - 1)

    def add(self, options: ControllerOptions, seconds: float) -> None:
        counted = min(seconds, self.patience(options, 1))
        self.samples = min(self.samples + 1, 32)
        before = 0.0 if self.value is None else self.value
        self.value = before + (counted - before) / self.samples


class Checker:
    """exact: the clock does not jump, so what is late is known to the millisecond."""

    def __init__(self, options: ControllerOptions, exact: bool) -> None:
        self.tasks: dict[TaskId, _Task] = {}
        self.delivered: Counter[TaskId] = Counter()
        self.failed: Fail | None = None
        self._options = options
        self._exact = exact
        self._count = options.count
        self._now = 0.0
        self._means: dict[str, _Mean] = {}
        self._lambdas: dict[InvocationId, _Lambda] = {}
        self._made: set[InvocationId] = set()
        self._asking: Counter[PeerId] = Counter()
        self._refusals = 0
        self._refused_at = -1.0
        self._final = False

    def check(self, now: float, event: ControllerEvent, out: list[ControllerInstruction]) -> None:
        require(self.failed is None or not out, "after a failure there is nothing more to do", event, out)
        self._now = now
        self._expire()
        self._before(event)
        self._check_result(event, out)
        for instruction in out:
            self._instructed(instruction)
        if self._final and self.tasks:
            require(self.failed is not None, "what cannot be mended fails at once", event, out)
        if self._exact and self.failed is None:
            self._check_idle(event)
        fails = [each for each in out if isinstance(each, Fail)]
        require(not fails or out[-1] is fails[0], "a failure is the last instruction", out)

    def _expire(self) -> None:
        for invocation, each in list(self._lambdas.items()):
            self._note_late(each)
            if self._now + _ROUNDING >= each.made + self._options.lifetime:
                self._gone(invocation, each)

    def _note_late(self, found: _Lambda) -> None:
        """What is heard of in the very moment that it is late may be either."""
        if found.late or self._now - _ROUNDING < found.silent_until or self._is_idle(found):
            return
        found.late = True
        if found.peer is None and found.made > self._refused_at:
            self._refusals += 1
            self._refused_at = found.silent_until

    def _welcome(self, found: _Lambda) -> None:
        """Who was late and is heard of counts again, if there is room."""
        if found.late and len([each for each in self._lambdas.values() if self._counts(each)]) < self._count:
            found.late = False

    def _expect(self, found: _Lambda, patience: float) -> float:
        """When it is late, with all that it has: the second time, it is lost."""
        found.silent_until = self._now + patience
        found.lost_at = found.silent_until + (0.0 if found.late else patience)
        for task in self._live(found):
            task.due = found.silent_until
        return found.silent_until

    def _live(self, found: _Lambda) -> list[_Task]:
        """What it is expected to do, in order: what was not taken from it since."""
        tasks = [self.tasks[each] for each in found.tasks if each in self.tasks]
        return [
            each
            for each in tasks
            if self._lambdas.get(each.offers[-1][0]) is found and self._now - _ROUNDING < each.due
        ]

    def _through(self, found: _Lambda, task: TaskId) -> None:
        """It is through with a task, and goes on with the next, if it has one."""
        found.tasks.remove(task)
        found.turn = self._now
        self._welcome(found)
        live = self._live(found)
        next_ = self._means[live[0].kind].patience(self._options, len(live[0].offers)) if live else None
        self._expect(found, self._options.start if next_ is None else next_)
        if found.peer is not None and self._asking[found.peer]:
            self._rest(found)

    def _rest(self, found: _Lambda) -> None:
        """It asks, and is expected to do nothing."""
        if not found.late and not found.excused and not self._live(found):
            found.tasks.clear()

    # What the controller hears

    def _before(self, event: ControllerEvent) -> None:
        match event:
            case TaskQueued():
                self.tasks[event.task] = _Task(event.kind)
                self._means.setdefault(event.kind, _Mean())
            case TasksAbandoned():
                self.tasks.clear()
            case CountChanged():
                self._count = event.count
            case LambdaAsks():
                self._asking[event.peer] += 1
                self._heard(event)
            case TaskReturned():
                self._returned(event)
            case InvocationEnded():
                self._ended(event)

    def _heard(self, event: LambdaAsks) -> None:
        found = self._lambdas.get(event.invocation)
        if found is None or found.peer not in (None, event.peer):
            return
        found.peer = event.peer
        self._welcome(found)
        live = self._live(found)
        if not live:  # who has nothing and asks once more than it has places is not owed more for it
            self._asking[event.peer] = min(self._asking[event.peer], self._options.places)
        self._rest(found)
        if found.made > self._refused_at:
            self._refusals = 0

    def _returned(self, event: TaskReturned) -> None:
        found = self._lambdas.get(event.invocation)
        if found is None or event.task not in found.tasks:
            return
        task = self.tasks.get(event.task)
        if task is not None and task.offers[-1][0] == event.invocation:
            task.due = self._now
        self._through(found, event.task)

    def _ended(self, event: InvocationEnded) -> None:
        found = self._lambdas.get(event.invocation)
        if found is None:
            return
        if event.failure is not None and event.failure.kind is FailureKind.DENIED:
            self._final = bool(self.tasks)
        self._gone(event.invocation, found)

    def _gone(self, invocation: InvocationId, found: _Lambda) -> None:
        del self._lambdas[invocation]
        came = found.peer is not None or self._now + _ROUNDING >= found.silent_until
        if not came and found.made > self._refused_at:
            self._refusals += 1
            self._refused_at = self._now

    # What it says

    def _check_result(self, event: ControllerEvent, out: list[ControllerInstruction]) -> None:
        about = [each for each in out if isinstance(each, Deliver | Drop)]
        if not isinstance(event, ResultArrived) or self.failed is not None:
            require(not about, "only what just arrived is delivered or dropped", event, about)
            return
        require(len(about) == 1, "a result is delivered or dropped, once", event, about)
        [said] = about
        require(
            (said.task, said.invocation) == (event.task, event.invocation), "and not another", event, said
        )
        task = self.tasks.get(event.task)
        given = task is not None and any(invocation == event.invocation for invocation, _ in task.offers)
        expected: str
        if task is not None and not given:
            expected = "stranger"
        elif not event.valid:
            expected = "garbage"
        else:
            expected = "delivered" if task is not None else "duplicate"
        was = said.reason if isinstance(said, Drop) else "delivered"
        require(
            was == expected, "the first valid result of a Lambda that was given the task counts", event, was
        )
        sender = self._lambdas.get(event.invocation)
        if expected == "garbage" and sender is not None:
            sender.excused = True
        if task is not None and expected == "delivered":
            offered = max(when for invocation, when in task.offers if invocation == event.invocation)
            began = max(offered, 0.0 if sender is None else sender.turn)
            self._means[task.kind].add(self._options, self._now - began)
        if sender is not None and event.task in sender.tasks and event.valid:
            self._through(sender, event.task)

    def _instructed(self, instruction: ControllerInstruction) -> None:
        match instruction:
            case Deliver():
                self._deliver(instruction)
            case Invoke():
                self._invoke(instruction)
            case OfferTask():
                self._offer(instruction)
            case DismissLambda():
                self._answered(instruction.peer)
                if (found := self._lambdas.get(instruction.invocation)) and found.peer == instruction.peer:
                    found.excused = True
            case CancelInvocation():
                self._cancel(instruction)
            case Fail():
                self._fail(instruction)
            case Drop() | WakeAt():
                pass
            case _:
                raise Violation(f"an instruction that is not known: {instruction}")

    def _deliver(self, deliver: Deliver) -> None:
        self.delivered[deliver.task] += 1
        require(self.delivered[deliver.task] == 1, "a task has one result", deliver)
        task = self.tasks.pop(deliver.task)
        if self._means[task.kind].samples == 1:
            self._wait_no_longer(task.kind)

    def _wait_no_longer(self, kind: str) -> None:
        """Once it is known how long tasks of a kind take, that is what those at one are given."""
        for runner in self._lambdas.values():
            live = [] if runner.excused else self._live(runner)
            if not live or live[0].kind != kind or not self._has_runner(live[0]):
                continue
            given = max(live[0].offers[-1][1], runner.turn)
            patience = self._means[kind].patience(self._options, len(live[0].offers))
            runner.silent_until = max(self._now, given + patience)
            runner.lost_at = runner.silent_until + patience
            for task in live:
                task.due = runner.silent_until

    def _invoke(self, invoke: Invoke) -> None:
        require(invoke.invocation not in self._made, "an invocation's number is new", invoke)
        slots = {each.slot for each in self._lambdas.values()}
        require(invoke.slot not in slots, "one Lambda a slot", invoke, slots)
        if self._exact and self._refused_at >= 0:
            pause = self._now - self._refused_at + _ROUNDING
            require(pause >= self._options.wait / 2, "after a setback there is a wait", invoke, pause)
        self._made.add(invoke.invocation)
        made = self._lambdas[invoke.invocation] = _Lambda(invoke.slot, self._now, 0.0, 0.0)
        self._expect(made, self._options.start)
        limit = self._count + self._options.spares
        require(len(self._lambdas) <= limit, "no more under way than may be", invoke, len(self._lambdas))
        if not self._exact:
            return
        expected = [each for each in self._lambdas.values() if self._counts(each)]
        require(len(expected) <= self._count, "no more at work than were asked for", invoke, len(expected))
        coming = [each for each in expected if each.peer is None]
        idle = [task for task in self.tasks.values() if not self._has_runner(task)]
        require(len(coming) <= len(idle), "no Lambda without a task for it", invoke, len(coming), len(idle))

    def _counts(self, found: _Lambda) -> bool:
        late = self._now + _ROUNDING >= found.silent_until and not self._is_idle(found)
        return not (found.excused or found.late or late)

    def _is_idle(self, found: _Lambda) -> bool:
        return not found.tasks and found.peer is not None and self._asking[found.peer] > 0

    def _check_idle(self, event: ControllerEvent) -> None:
        idle = [each for each in self._lambdas.values() if self._counts(each) and self._is_idle(each)]
        waiting = [task for task in self.tasks.values() if not self._has_runner(task, -_ROUNDING)]
        require(not (idle and waiting), "no Lambda idles while a task waits", event, idle, waiting)

    def _has_runner(self, task: _Task, rounding: float = _ROUNDING) -> bool:
        if not task.offers:
            return False
        runner = self._lambdas.get(task.offers[-1][0])
        return runner is not None and not runner.excused and self._now + rounding < task.due

    def _offer(self, offer: OfferTask) -> None:
        self._answered(offer.peer)
        require(offer.task in self.tasks, "only a task that has no result is given out", offer)
        task = self.tasks[offer.task]
        found = self._lambdas.get(offer.invocation)
        if found is None or found.excused or found.peer != offer.peer:
            raise Violation(f"a task goes to a Lambda that is trusted, and to one of twins: {offer}, {found}")
        live = self._live(found)
        if task in live and self._now < task.due:
            return  # told once more what it was told before
        if self._exact:
            fewer = [each for each in live if self._now + _ROUNDING < each.due]
            require(len(fewer) < self._options.places, "no more tasks than there are places", offer, found)
            idle = [each for each in self._lambdas.values() if self._counts(each) and self._is_idle(each)]
            require(not fewer or not idle, "no second task while another idles", offer, found, idle)
            require(
                not self._has_runner(task), "a task is given out again only when late or lost", offer, task
            )
        require(len(task.offers) < self._options.attempts, "there is an end to attempts", offer)
        task.offers.append((offer.invocation, self._now))
        if offer.task in found.tasks:
            found.tasks.remove(offer.task)
        found.tasks.append(offer.task)
        task.due = found.silent_until
        if not live:
            task.due = self._expect(found, self._means[task.kind].patience(self._options, len(task.offers)))

    def _answered(self, peer: PeerId) -> None:
        require(self._asking[peer] > 0, "who did not ask is not answered", peer)
        self._asking[peer] -= 1

    def _cancel(self, cancel: CancelInvocation) -> None:
        found = self._lambdas.get(cancel.invocation)
        if found is None:
            # After a jump of the clock it may be lost and over in one moment.
            require(
                cancel.invocation in self._made and not self._exact, "what ended is not cancelled", cancel
            )
            return
        lost = self._now + _ROUNDING >= found.lost_at
        require(found.excused or lost or not self._exact, "only the lost are cancelled", cancel, found)
        found.excused = True

    def _fail(self, fail: Fail) -> None:
        self.failed = fail
        require("\n" not in fail.message and ";" in fail.message, "one line that says what to do", fail)
        worn = any(len(task.offers) >= self._options.attempts for task in self.tasks.values())
        silent = sum(
            each.peer is None and not each.late and self._now + _ROUNDING >= each.silent_until
            for each in self._lambdas.values()
        )
        refused = self._refusals + silent >= self._options.first_setbacks
        require(bool(self.tasks), "who fails has something to do", fail)
        require(self._final or worn or refused, "there is a reason to fail", fail, self._refusals)
