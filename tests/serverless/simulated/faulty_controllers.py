"""Controllers with one fault each. The checker must catch every one of them."""

from dataclasses import replace
from typing import Any

from siafu.serverless.control.alarms import Alarms
from siafu.serverless.control.controller import Controller
from siafu.serverless.control.events import TasksAbandoned
from siafu.serverless.control.ids import SlotId
from siafu.serverless.control.instructions import Deliver, Invoke, OfferTask
from siafu.serverless.control.lambda_table import NOBODY, LambdaTable, Standing
from siafu.serverless.control.patience import Patience
from siafu.serverless.control.task_table import TaskTable

FAULTS: dict[str, type[Controller]] = {}


def fault(controller: type[Controller]) -> type[Controller]:
    """Register a controller under its docstring."""
    assert controller.__doc__ is not None
    FAULTS[controller.__doc__] = controller
    return controller


@fault
class DeliversTwice(Controller):
    """a second result of a task counts too"""

    def _arrived(self, event, out):
        task = self._tasks.get(event.task)
        super()._arrived(event, out)
        if task is not None and isinstance(out[-1], Deliver) and event.task % 2:
            self._tasks._tasks[task.id] = task


@fault
class DeliversGarbage(Controller):
    """garbage is delivered"""

    def _arrived(self, event, out):
        super()._arrived(replace(event, valid=True), out)


@fault
class TakesFromStrangers(Controller):
    """a result counts from a Lambda that was not given the task"""

    def _arrived(self, event, out):
        task = self._tasks.get(event.task)
        if task is not None:
            task.offered.setdefault(event.invocation, self._clock.now)
        super()._arrived(event, out)


@fault
class OnlyTheRunnerCounts(Controller):
    """a late result is dropped although the task has no other yet"""

    def _arrived(self, event, out):
        task = self._tasks.get(event.task)
        if task is not None and event.valid and task.runner != event.invocation and task.offered:
            self._drop(event, "duplicate", out)
            return
        super()._arrived(event, out)


@fault
class DeliversTheAbandoned(Controller):
    """a task that was abandoned is delivered"""

    def __init__(self, options, jitter):
        super().__init__(options, jitter)
        self._handlers[TasksAbandoned] = lambda _, __: None


class _Hasty(Patience):
    def of(self, kind, attempt=1):
        return super().of(kind, attempt) / 2


@fault
class RelaunchesEarly(Controller):
    """a task is relaunched before it is late"""

    def __init__(self, options, jitter):
        super().__init__(options, jitter)
        self._patience.__class__ = _Hasty


class _Flat(Patience):
    def of(self, kind, attempt=1):
        return super().of(kind)


@fault
class NeverMorePatient(Controller):
    """a further attempt is not given longer"""

    def __init__(self, options, jitter):
        super().__init__(options, jitter)
        self._patience.__class__ = _Flat


class _Gullible(Patience):
    def learn(self, kind, seconds):
        mean = self._means.get(kind)
        super().learn(kind, seconds)
        if mean is not None:
            mean.value = max(mean.value, seconds) / 3


@fault
class LearnsWrong(Controller):
    """the mean is not the mean"""

    def __init__(self, options, jitter):
        super().__init__(options, jitter)
        self._patience.__class__ = _Gullible


class _AlarmsBut(Alarms[Any]):
    def __init__(self, missing):
        super().__init__()
        self._missing = missing

    def set(self, key, time):
        if key[0] != self._missing:
            super().set(key, time)


@fault
class NoAlarmForTheLateAndTheLost(Controller):
    """a Lambda that hangs and is never reported is waited for"""

    def __init__(self, options, jitter):
        super().__init__(options, jitter)
        self._alarms = _AlarmsBut("late")
        self._options = replace(options, lifetime=1e9)


@fault
class ForgetsThatLambdasEnd(Controller):
    """a Lambda whose end is not reported takes a place for ever"""

    def __init__(self, options, jitter):
        super().__init__(options, jitter)
        self._alarms = _AlarmsBut("over")


@fault
class WaitsForTheFirstAsBefore(Controller):
    """who was at a task before its kind's time was known is waited for as if it were not"""

    def _wait_no_longer(self, kind):
        pass


@fault
class WaitsForEver(Controller):
    """a setback is waited out for ever"""

    def __init__(self, options, jitter):
        super().__init__(options, jitter)
        self._alarms = _AlarmsBut("hold")


@fault
class TellsOneAlarm(Controller):
    """the runtime is not asked to wake it again"""

    def _clock_advanced(self, event, out):
        pass


@fault
class AsManyAsThereAreTasks(Controller):
    """there are more Lambdas than may be"""

    def _invoke(self, out):
        self.count += 1
        super()._invoke(out)
        self.count -= 1


@fault
class IgnoresTheNewCount(Controller):
    """the number of Lambdas does not follow"""

    def _count_changed(self, event, out):
        pass


@fault
class LambdasWithoutTasks(Controller):
    """a Lambda is invoked without a task for it"""

    def _invoke(self, out):
        starting = LambdaTable.num_starting
        LambdaTable.num_starting = property(lambda table: 0)
        try:
            super()._invoke(out)
        finally:
            LambdaTable.num_starting = starting


class _OneSlot(LambdaTable):
    def make(self, now):
        made = super().make(now)
        made.slot = SlotId(0)
        return made


@fault
class TwoInASlot(Controller):
    """two Lambdas are in one slot"""

    def __init__(self, options, jitter):
        super().__init__(options, jitter)
        self._lambdas = _OneSlot()


@fault
class NoBackOff(Controller):
    """after a setback it does not wait"""

    def _set_back(self, failed, failure):
        super()._set_back(failed, failure)
        self._held = False


@fault
class NeverGivesUp(Controller):
    """what cannot be mended is tried again"""

    def _give_up(self, message):
        pass


@fault
class GivesUpAtOnce(Controller):
    """the first setback is a failure"""

    def _bearable(self, failure):
        return 1


@fault
class NoEndToAttempts(Controller):
    """a task that kills every Lambda is given out for ever"""

    def _take_back(self, member, trouble, only=None):
        for task in self._current(member):
            task.attempts = min(task.attempts, 2)
        return super()._take_back(member, trouble, only)


@fault
class SaysItInManyLines(Controller):
    """a failure has no advice"""

    def handle(self, event):
        out = super().handle(event)
        return [replace(each, message="it\nfailed") if hasattr(each, "message") else each for each in out]


@fault
class LosesTheTasksOfTheDead(Controller):
    """the task of a Lambda that died is forgotten"""

    def _remove(self, member, trouble):
        self._lambdas.remove(member)
        self._alarms.clear(("late", member.id))
        self._alarms.clear(("over", member.id))


@fault
class LosesTheTaskOfGarbage(Controller):
    """the task of a Lambda that brought garbage is forgotten"""

    def _distrust(self, sender, out):
        found = self._lambdas.get(sender)
        if found is not None:
            found.tasks.clear()
        super()._distrust(sender, out)


@fault
class LosesWhatIsGivenBack(Controller):
    """a task that a Lambda gave back is forgotten"""

    def _returned(self, event, out):
        self._done_with(event, out)


@fault
class LeavesTheIdleIdle(Controller):
    """a task that comes back waits although a Lambda is idle"""

    def _offer_tasks(self, out):
        task = next(iter(self._tasks.waiting()), None)
        if task is None or not task.attempts or len(out) == 0 or self._lambdas.made % 3:
            super()._offer_tasks(out)


@fault
class TrustsGarbage(Controller):
    """a Lambda that brought garbage is given more"""

    def _part_with(self, member):
        super()._part_with(member)
        member.standing = Standing.TRUSTED


@fault
class ServesTwins(Controller):
    """both of an invocation that was run twice are given tasks"""

    def _asked(self, event, out):
        found = self._lambdas.get(event.invocation)
        if found is not None:
            found.peer = NOBODY
        super()._asked(event, out)


@fault
class ServesTheEnded(Controller):
    """a Lambda that has ended is given a task"""

    def _asked(self, event, out):
        task = next(iter(self._tasks.waiting()), None)
        if self._lambdas.get(event.invocation) is None and task is not None:
            self._tasks.give(task, event.invocation, self._clock.now)
            out.append(OfferTask(event.invocation, event.peer, task.id))
            return
        super()._asked(event, out)


@fault
class LeavesStrangersWaiting(Controller):
    """who did not ask is answered"""

    def _dismiss(self, member, out):
        super()._dismiss(member, out)
        out.append(out[-1])


class _Forgetful(TaskTable):
    def give(self, task, invocation, now):
        super().give(task, invocation, now)
        self._waiting.add(task.id)


@fault
class GivesOneTaskToTwo(Controller):
    """a task is given to two that ask"""

    def __init__(self, options, jitter):
        super().__init__(options, jitter)
        self._tasks = _Forgetful()


@fault
class FillsHandsFirst(Controller):
    """a Lambda at a task is given another while one is idle"""

    def _taker(self, task):
        busiest = max(self._lambdas._asking, key=lambda each: len(each.tasks), default=None)
        return busiest or super()._taker(task)


@fault
class OverfillsHands(Controller):
    """a Lambda is given more tasks than it has places"""

    def _asked(self, event, out):
        places, self._options = self._options, replace(self._options, places=self._options.places + 1)
        super()._asked(event, out)
        self._options = places


@fault
class ForgetsTheNextInHand(Controller):
    """what a Lambda had in hand besides its task is forgotten when it dies"""

    def _take_back(self, member, trouble, only=None):
        at = self._current(member)
        return super()._take_back(member, trouble, at[0].id if at and only is None else only)


@fault
class ForgetsToInvoke(Controller):
    """a Lambda is asked for once only"""

    def _invoke(self, out):
        if not self._lambdas.made:
            super()._invoke(out)


@fault
class NumbersComeAgain(Controller):
    """an invocation's number comes again"""

    def _invoke(self, out):
        super()._invoke(out)
        if any(isinstance(each, Invoke) for each in out) and self._lambdas.made > 2:
            self._lambdas.made = 1


@fault
class CancelsTheLate(Controller):
    """a Lambda is cancelled as soon as it is late"""

    def _ring(self, name, invocation, out):
        super()._ring(name, invocation, out)
        found = None if invocation is None else self._lambdas.get(invocation)
        if found is not None and found.standing is Standing.DOUBTED:
            super()._ring("late", invocation, out)


@fault
class GoesOnAfterItFailed(Controller):
    """it goes on after it failed"""

    def handle(self, event):
        self._failed = False
        return super().handle(event)
