"""Dispatch: the thread in which a run's controller, its desks and its invoker meet."""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from siafu.errors import SiafuError
from siafu.serverless import events as happens
from siafu.serverless import instructions as does
from siafu.serverless.backoff import hashed_jitter
from siafu.serverless.controller import Controller
from siafu.serverless.controller_options import ControllerOptions
from siafu.serverless.desk import Asked, Assignment, DeskEvent, Finished, GivenBack, Late, TaskDesk
from siafu.serverless.desk_loop import DeskLoop
from siafu.serverless.ids import InvocationId, Priority, SlotId, TaskId
from siafu.serverless.invoker import Failed, Invocation, Invoker, Outcome
from siafu.serverless.payload import Endpoint, Payload
from siafu.serverless.weight_desk import WeightDesk
from siafu.wire.keys import Keys, make_keys
from siafu.wire.tensors import Array, Tensors
from siafu.wire.zeromq import ZmqListener

Done = Callable[[dict[str, Array]], None]


@dataclass(slots=True)
class Usage:
    """What the Lambdas of a run did and are billed for.

    invocations:        begun
    relaunched:         tasks given to another Lambda because one was late
    duplicates_dropped: results that came when the task had one
    billed_gb_seconds:  memory × time, as the platform bills it
    bytes_in, bytes_out: that Lambdas received and sent
    """

    invocations: int = 0
    relaunched: int = 0
    duplicates_dropped: int = 0
    billed_gb_seconds: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    assignment: Assignment
    done: Done


class Dispatch:
    """Takes tensor tasks, has Lambdas compute them, and gives each result once.

    invoker:  what runs Lambdas
    options:  of the controller
    held:     the weights of a version, by name; None: it is not held
    failed:   hears of what ends the run, in the loop's thread
    host:     the address of this machine as Lambdas reach it
    tasks_per_invocation: 0: no limit
    """

    def __init__(
        self,
        invoker: Invoker,
        options: ControllerOptions,
        held: Callable[[int], Tensors | None],
        failed: Callable[[BaseException], None],
        *,
        host: str = "127.0.0.1",
        tasks_per_invocation: int = 0,
        streaming: bool = True,
    ) -> None:
        self.usage = Usage()
        self._invoker, self._failed = invoker, failed
        self._tasks_per_invocation, self._streaming = tasks_per_invocation, streaming
        self._run = uuid.uuid4().hex
        self._keys = make_keys()
        self._listener = ZmqListener(self._keys, f"tcp://{host}:*")
        self._controller = Controller(options, hashed_jitter(self._run))
        self._desk = TaskDesk(self._run, self._listener.send, self._heard)
        self._loop = DeskLoop(self._listener, [self._desk, WeightDesk(self._listener.send, held)], failed)
        self._tasks: dict[TaskId, _Waiting] = {}
        self._arrived: dict[str, Array] = {}
        self._slot_keys: dict[SlotId, Keys] = {}
        self._running: set[InvocationId] = set()
        self._timer: threading.Timer | None = None
        self._empty = threading.Event()
        self._next = 0

    def start(self) -> None:
        self._invoker.start()
        self._loop.start()

    def send_home(self, seconds: float) -> None:
        """Let all Lambdas go and wait for their receipts, for so long at most: what they cost is known then."""
        if self._loop.is_running:
            self._loop.call(lambda: self._handle(happens.CountChanged(_now(), 0)))
            self._loop.call(self._note_empty)
            self._empty.wait(seconds)

    def stop(self) -> None:
        """End everything at once. Tasks that have no result get none."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop.stop()
        self._invoker.stop()
        self._listener.close()

    def submit(
        self, assignment: Callable[[TaskId], Assignment], kind: str, priority: Priority, done: Done
    ) -> None:
        """Have a task computed; `done` hears its outputs, once, in the loop's thread. From any thread."""

        def queue() -> None:
            self._next += 1
            task = TaskId(self._next)
            self._tasks[task] = _Waiting(assignment(task), done)
            self._handle(happens.TaskQueued(_now(), task, kind, priority))

        self._loop.call(queue)

    def _handle(self, event: happens.Event) -> None:
        for instruction in self._controller.handle(event):
            self._obey(instruction)

    def _obey(self, what: does.Instruction) -> None:
        match what:
            case does.Invoke():
                self._invoke(what.invocation, what.slot)
            case does.Cancel():
                self._desk.forget(what.invocation)
                self._invoker.cancel(what.invocation)
            case does.OfferTask():
                if not self._desk.offer(what.peer, self._tasks[what.task].assignment):
                    gone = happens.TaskReturned(_now(), what.invocation, what.task, "its Lambda is gone")
                    self._loop.call(lambda: self._handle(gone))
            case does.Dismiss():
                self._desk.dismiss(what.peer)
            case does.Deliver():
                waiting = self._tasks.pop(what.task)
                self._desk.cancel(what.task)
                waiting.done(self._arrived)
            case does.Drop():
                self.usage.duplicates_dropped += what.reason == "duplicate"
            case does.WakeAt():
                self._wake_at(what.time)
            case does.Fail():
                self._failed(SiafuError(what.message))
        self.usage.relaunched = self._controller.counts.relaunched

    def _invoke(self, invocation: InvocationId, slot: SlotId) -> None:
        # One pair of keys a slot: a warm Lambda's connections stay good from one invocation to the next.
        keys = self._slot_keys.setdefault(slot, make_keys())
        self._listener.admit(keys.public)
        self._running.add(invocation)
        self._desk.expect(invocation, keys.public)
        here = Endpoint(self._listener.address, self._keys.public)
        payload = Payload(
            self._run,
            invocation,
            slot,
            here,
            (here,),
            keys,
            tasks=self._tasks_per_invocation,
            streaming=self._streaming,
        )
        self.usage.invocations += 1
        self._empty.clear()
        self._invoker.invoke(
            Invocation(invocation, payload.form()),
            lambda outcome: self._loop.call(lambda: self._ended(outcome)),
        )

    def _ended(self, outcome: Outcome) -> None:
        self.usage.billed_gb_seconds += outcome.usage.billed_ms / 1000 * outcome.usage.memory_mb / 1024
        if not isinstance(outcome, Failed):
            self.usage.bytes_in += _count(outcome.receipt, "bytes_in")
            self.usage.bytes_out += _count(outcome.receipt, "bytes_out")
        self._desk.forget(outcome.number)
        self._running.discard(outcome.number)
        failure = outcome.failure if isinstance(outcome, Failed) else None
        self._handle(happens.InvocationEnded(_now(), outcome.number, failure))
        self._note_empty()

    def _note_empty(self) -> None:
        if not self._running:
            self._empty.set()

    def _heard(self, event: DeskEvent) -> None:
        match event:
            case Asked():
                self._handle(happens.LambdaAsks(_now(), event.invocation, event.peer))
            case Finished():
                self._arrived = event.outputs
                self._handle(happens.ResultArrived(_now(), event.invocation, event.task, valid=True))
                self._arrived = {}
            case Late():
                self._handle(happens.ResultArrived(_now(), event.invocation, event.task, valid=True))
            case GivenBack():
                self._handle(happens.TaskReturned(_now(), event.invocation, event.task, event.why))

    def _wake_at(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        advance = lambda: self._loop.call(lambda: self._handle(happens.ClockAdvanced(_now())))  # noqa: E731
        self._timer = threading.Timer(max(0.0, moment - _now()), advance)
        self._timer.daemon = True
        self._timer.start()


def _now() -> float:
    return time.monotonic()


def _count(receipt: dict[str, object], name: str) -> int:
    value = receipt.get(name)
    return value if isinstance(value, int) else 0
