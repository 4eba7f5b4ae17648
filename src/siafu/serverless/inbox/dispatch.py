"""Dispatch: the thread in which a run's controller, its inboxes and its invoker meet."""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from siafu.base.activity import About
from siafu.base.errors import BadInput, SiafuError
from siafu.cost.meter import Meter
from siafu.cost.prices import LambdaPrices
from siafu.serverless.control import events as happens
from siafu.serverless.control import instructions as does
from siafu.serverless.control.backoff import hashed_jitter
from siafu.serverless.control.controller import Controller
from siafu.serverless.control.controller_options import ControllerOptions
from siafu.serverless.control.ids import InvocationId, Priority, SlotId, TaskId
from siafu.serverless.control.places import Places
from siafu.serverless.control.tuning import Tuning
from siafu.serverless.function.payload import Endpoint, Payload
from siafu.serverless.inbox.inbox_loop import InboxLoop
from siafu.serverless.inbox.task_inbox import (
    InboxEvent,
    LambdaAsked,
    TaskFinished,
    TaskFinishedLate,
    TaskGivenBack,
    TaskInbox,
)
from siafu.serverless.inbox.task_step import TaskStep
from siafu.serverless.inbox.task_times import LambdaActivity, TaskTimes
from siafu.serverless.inbox.weight_inbox import WeightInbox
from siafu.serverless.platforms.invoker import Invocation, InvocationFailed, InvocationOutcome, Invoker
from siafu.wire.keys import Keys, make_keys
from siafu.wire.near import NearDirectory
from siafu.wire.tensors import Array, Tensors
from siafu.wire.zeromq import ZmqListener

TakeOutputs = Callable[[dict[str, Array]], None]
Watch = Callable[[happens.ControllerEvent | does.ControllerInstruction, About | None], None]
"""Called with an event or instruction of the controller, and with the server, epoch and interval of its task."""


def unwatched(what: happens.ControllerEvent | does.ControllerInstruction, about: About | None) -> None:
    """Ignore it."""


@dataclass(frozen=True, slots=True, eq=False)
class _QueuedTask:
    step: TaskStep
    kind: str
    done: TakeOutputs
    about: About | None


class Dispatch:
    """Takes tensor tasks, has Lambdas compute them, and gives each result once.

    invoker:  runs Lambdas
    options:  of the controller
    prices:   of Lambdas
    held:     the weights of a version, by name; None: it is not held
    failed:   called with an error that ends the run, in the loop's thread
    tuning:   chooses how many Lambdas there are; None: as many as `options` say
    listen:   the address to listen at; None: Lambdas are processes of this machine, and connect through a local socket
    host:     the address of this machine as Lambdas reach it
    tasks_per_invocation: 0: no limit
    keep_bytes: bytes that each Lambda may keep for later tasks
    places:   number of tasks that each may have at once; None: `options.places`, which is the most
    watch:    called with every event and instruction of the controller, before it is handled
    """

    def __init__(
        self,
        invoker: Invoker,
        options: ControllerOptions,
        prices: LambdaPrices,
        held: Callable[[int], Tensors | None],
        failed: Callable[[BaseException], None],
        *,
        tuning: Tuning | None = None,
        host: str = "127.0.0.1",
        listen: str | None = None,
        tasks_per_invocation: int = 0,
        streaming: bool = True,
        keep_bytes: int = 0,
        places: Places | None = None,
    ) -> None:
        self.meter = Meter(prices)
        self.times = TaskTimes()
        self.tuning = tuning
        self.watch: Watch = unwatched
        self._invoker, self._failed = invoker, failed
        self._tasks_per_invocation, self._streaming = tasks_per_invocation, streaming
        self._places = places or Places(options.places, options.places)
        self._run = uuid.uuid4().hex
        self._keys = make_keys()
        self._near = NearDirectory() if listen is None else None
        if self._near is not None:
            self._listener = ZmqListener(None, self._near.address("inbox"))
            address = self._listener.address
        else:
            self._listener = ZmqListener(self._keys, f"tcp://{listen}:*")
            address = f"tcp://{host}:{self._listener.address.rsplit(':', 1)[1]}"
        self._here = Endpoint(address, self._keys.public)
        self._controller = Controller(options, hashed_jitter(self._run))
        self._keep_bytes = keep_bytes
        self._inbox = TaskInbox(self._run, self._listener.send, self._heard, keep_bytes=keep_bytes)
        self._weights = WeightInbox(self._listener.send, held)
        self._loop = InboxLoop(self._listener, [self._inbox, self._weights], failed)
        self._tasks: dict[TaskId, _QueuedTask] = {}
        self._events: deque[tuple[happens.ControllerEvent, dict[str, Array]]] = deque()
        self._busy = False
        self._slot_keys: dict[SlotId, Keys] = {}
        self._running: set[InvocationId] = set()
        self._timer: threading.Timer | None = None
        self._empty = threading.Event()
        self._next = 0

    def start(self) -> None:
        self._invoker.start()
        self._loop.start()

    def dismiss_all(self, seconds: float) -> None:
        """Dismiss all Lambdas, and wait at most so long for their receipts, which say what they cost."""
        if self._loop.is_running:
            self._loop.call(lambda: self._handle(happens.CountChanged(_now(), 0)))
            self._loop.call(self._note_empty)
            self._empty.wait(seconds)

    def stop(self) -> None:
        """End everything at once. Tasks without a result stay without."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop.stop()
        self._invoker.stop()
        self._listener.close()
        if self._near is not None:
            self._near.remove()

    def submit(
        self,
        step: Callable[[TaskId], TaskStep],
        kind: str,
        priority: Priority,
        done: TakeOutputs,
        about: About | None = None,
    ) -> None:
        """Have a task computed; `done` gets its outputs, once, in the loop's thread. From any thread.

        about: server, epoch and interval, for the trace
        """

        def queue() -> None:
            self._next += 1
            task = TaskId(self._next)
            made = step(task)
            self._tasks[task] = _QueuedTask(made, kind, done, about)
            home = made.home if made.has_home and self._keep_bytes else None
            places = self._places.of(self._inbox.bytes_moved(made))
            self._handle(happens.TaskQueued(_now(), task, kind, priority, home, places))

        self._loop.call(queue)

    def end_epoch(self) -> None:
        """An epoch has ended: there may be more Lambdas from now on, or fewer. From any thread."""
        if self.tuning is not None:
            count = self.tuning.end_epoch()
            self._loop.call(lambda: self._handle(happens.CountChanged(_now(), count)))

    def activity(self, epoch: int) -> LambdaActivity:
        """Work of Lambdas for an epoch, and counts since the last call. From any thread."""
        counts = self._controller.counts
        counted = {
            "invocations": counts.invocations,
            "relaunched": counts.relaunched,
            "retried": counts.retried,
            "gb_seconds": self.meter.gb_seconds,
        }
        return self.times.take(epoch, counted, self._controller.count)

    def usage(self) -> dict[str, Any]:
        """Work and cost of the Lambdas, for the run's summary. From any thread."""
        counts = self._controller.counts
        return {
            "invocations": counts.invocations,
            "relaunched": counts.relaunched,
            "retried": counts.retried,
            "duplicates_dropped": counts.dropped["duplicate"],
            "shortcuts": self._inbox.shortcuts,
            "messages_refused": self._loop.refusals.total() + self._listener.refusals.total(),
            **self.meter.summary(),
            "weights": {"requests": self._weights.answered, "bytes": self._weights.bytes_sent},
            **({} if self.tuning is None else {"counts": list(self.tuning.counts)}),
        }

    def waiting(self) -> list[str]:
        """Tasks and Lambdas that wait, in words. From any thread; a change meanwhile may be missing."""
        with suppress(RuntimeError):
            return self._controller.waiting()
        return []

    def _handle(self, event: happens.ControllerEvent, outputs: dict[str, Array] | None = None) -> None:
        """Handle events one after the other: an instruction may cause the next event."""
        self._events.append((event, outputs or {}))
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                event, arrived = self._events.popleft()
                self._tell(event)
                for instruction in self._controller.handle(event):
                    self._tell(instruction)
                    self._obey(instruction, arrived)
        finally:
            self._busy = False
        if self.tuning is not None:
            at_work = self._controller.num_at_work
            self.tuning.tensor_queue(self._controller.num_outstanding - at_work, at_work)

    def _tell(self, what: happens.ControllerEvent | does.ControllerInstruction) -> None:
        task = getattr(what, "task", None)
        waiting = None if task is None else self._tasks.get(task)
        self.watch(what, None if waiting is None else waiting.about)

    def _obey(self, what: does.ControllerInstruction, arrived: dict[str, Array]) -> None:
        match what:
            case does.Invoke():
                self._invoke(what.invocation, what.slot)
            case does.CancelInvocation():
                self._inbox.forget(what.invocation)
                self._invoker.cancel(what.invocation)
            case does.OfferTask():
                self.times.offered(what.invocation, what.task)
                if not self._inbox.offer(what.peer, self._tasks[what.task].step):
                    gone = happens.TaskReturned(_now(), what.invocation, what.task, "its Lambda is gone")
                    self._handle(gone)
            case does.DismissLambda():
                self._inbox.dismiss(what.peer)
            case does.Deliver():
                waiting = self._tasks.pop(what.task)
                self._inbox.cancel(what.task)
                waiting.done(arrived)
            case does.WakeAt():
                self._wake_at(what.time)
            case does.Fail():
                self._failed((BadInput if what.final else SiafuError)(what.message))

    def _invoke(self, invocation: InvocationId, slot: SlotId) -> None:
        # One pair of keys a slot: a warm Lambda's connections stay good from one invocation to the next.
        keys = self._slot_keys.setdefault(slot, make_keys())
        self._listener.admit(keys.public, None if self._near is None else keys.secret)
        self._running.add(invocation)
        self.times.invoked(invocation, slot)
        self._inbox.expect(invocation, keys.public)
        payload = Payload(
            self._run,
            invocation,
            slot,
            self._here,
            (self._here,),
            keys,
            tasks=self._tasks_per_invocation,
            streaming=self._streaming,
            places=self._places.most,
        )
        self._empty.clear()
        self._invoker.invoke(
            Invocation(invocation, payload.form()),
            lambda outcome: self._loop.call(lambda: self._ended(outcome)),
        )

    def _ended(self, outcome: InvocationOutcome) -> None:
        self._count(outcome)
        self._inbox.forget(outcome.number)
        self._running.discard(outcome.number)
        self.times.ended(outcome.number)
        failure = outcome.failure if isinstance(outcome, InvocationFailed) else None
        self._handle(happens.InvocationEnded(_now(), outcome.number, failure))
        self._note_empty()

    def _count(self, outcome: InvocationOutcome) -> None:
        if isinstance(outcome, InvocationFailed) and outcome.usage.billed_ms == 0:
            self.meter.count_refusal()
        else:
            self.meter.count_invocation(outcome.usage.billed_ms, outcome.usage.memory_mb)

    def _meter_task(self, event: TaskFinished) -> None:
        waiting = self._tasks.get(event.task)
        if waiting is not None:
            came = _size(event.outputs)
            self.meter.count_task(waiting.kind, event.bytes_sent, came)
            moved = event.bytes_sent + came
            self.times.came_back(event.invocation, event.task, waiting.kind, waiting.about, moved)

    def _note_empty(self) -> None:
        if not self._running:
            self._empty.set()

    def _heard(self, event: InboxEvent) -> None:
        match event:
            case LambdaAsked():
                self._handle(happens.LambdaAsks(_now(), event.invocation, event.peer))
            case TaskFinished():
                self._meter_task(event)
                arrived = happens.ResultArrived(_now(), event.invocation, event.task, valid=True)
                self._handle(arrived, event.outputs)
            case TaskFinishedLate():
                self._handle(happens.ResultArrived(_now(), event.invocation, event.task, valid=True))
            case TaskGivenBack():
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


def _size(tensors: Tensors) -> int:
    return sum(each.nbytes for each in tensors.values())
