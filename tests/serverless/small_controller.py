"""A controller to try, in few words."""

from siafu.serverless.control.controller import Controller
from siafu.serverless.control.controller_options import ControllerOptions
from siafu.serverless.control.events import (
    ClockAdvanced,
    CountChanged,
    InvocationEnded,
    LambdaAsks,
    ResultArrived,
    TaskQueued,
    TaskReturned,
)
from siafu.serverless.control.failure import Failure, FailureKind
from siafu.serverless.control.ids import InvocationId, PeerId, TaskId
from siafu.serverless.control.instructions import ControllerInstruction, Fail, Invoke, OfferTask


class Small:
    """A controller and a clock, in few words. A Lambda's peer is its number, or that with a letter for a twin."""

    def __init__(self, count: int = 1, spares: int = 1, **options: float) -> None:
        given = {"ratio": 2.0, "floor": 1.0, "default": 10.0, "start": 5.0, "lifetime": 100.0, **options}
        self.controller = Controller(
            ControllerOptions(where="function f, region r", count=count, spares=spares, **given),  # type: ignore[arg-type]
            jitter=lambda number: 0.0,
        )
        self.now = 0.0

    def at(self, now: float) -> list[ControllerInstruction]:
        self.now = now
        return self.controller.handle(ClockAdvanced(now))

    def queue(
        self, task: int, kind: str = "T1", priority: tuple[int, ...] = (), **told: int
    ) -> list[ControllerInstruction]:
        return self.controller.handle(TaskQueued(self.now, TaskId(task), kind, priority, **told))

    def ask(self, invocation: int, twin: str = "") -> list[ControllerInstruction]:
        peer = PeerId(f"{invocation}{twin}")
        return self.controller.handle(LambdaAsks(self.now, InvocationId(invocation), peer))

    def result(self, invocation: int, task: int, valid: bool = True) -> list[ControllerInstruction]:
        return self.controller.handle(ResultArrived(self.now, InvocationId(invocation), TaskId(task), valid))

    def give_back(self, invocation: int, task: int, why: str = "no time left") -> list[ControllerInstruction]:
        return self.controller.handle(TaskReturned(self.now, InvocationId(invocation), TaskId(task), why))

    def end(self, invocation: int, kind: FailureKind | None = None) -> list[ControllerInstruction]:
        failure = None if kind is None else Failure(kind, "function f, region r", "so it says")
        return self.controller.handle(InvocationEnded(self.now, InvocationId(invocation), failure))

    def change_count(self, count: int) -> list[ControllerInstruction]:
        return self.controller.handle(CountChanged(self.now, count))


def of(kind: type[ControllerInstruction], out: list[ControllerInstruction]) -> list[ControllerInstruction]:
    return [each for each in out if isinstance(each, kind)]


def offered(out: list[ControllerInstruction]) -> list[tuple[int, int]]:
    """Which Lambda is given which task."""
    return [(each.invocation, each.task) for each in out if isinstance(each, OfferTask)]


def invoked(out: list[ControllerInstruction]) -> list[int]:
    return [each.invocation for each in out if isinstance(each, Invoke)]


def failure(out: list[ControllerInstruction]) -> str:
    [fail] = [each for each in out if isinstance(each, Fail)]
    assert out[-1] is fail
    assert "\n" not in fail.message
    return fail.message
