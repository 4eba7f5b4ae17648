"""Dispatch: the thread in which a run's controller, its desks and its invoker meet."""

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
from siafu.serverless.control.tuning import Tuning
from siafu.serverless.desk.assignment import Assignment
from siafu.serverless.desk.desk import Asked, DeskEvent, Finished, GivenBack, Late, TaskDesk
from siafu.serverless.desk.desk_loop import DeskLoop
from siafu.serverless.desk.task_times import LambdaDoings, TaskTimes
from siafu.serverless.desk.weight_desk import WeightDesk
from siafu.serverless.function.payload import Endpoint, Payload
from siafu.serverless.platforms.invoker import Failed, Invocation, Invoker, Outcome
from siafu.wire.keys import Keys, make_keys
from siafu.wire.near import NearDirectory
from siafu.wire.tensors import Array, Tensors
from siafu.wire.zeromq import ZmqListener

Done = Callable[[dict[str, Array]], None]
Watch = Callable[[happens.Event | does.Instruction, About | None], None]
"""Is told of an event or an instruction of the controller, and of what its task is part of."""


def unwatched(what: happens.Event | does.Instruction, about: About | None) -> None:
    """Nobody looks on."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    assignment: Assignment
    kind: str
    done: Done
    about: About | None


class Dispatch:
    """Takes tensor tasks, has Lambdas compute them, and gives each result once.

    invoker:  what runs Lambdas
    options:  of the controller
    prices:   what Lambdas cost
    held:     the weights of a version, by name; None: it is not held
    failed:   hears of what ends the run, in the loop's thread
    tuning:   chooses how many Lambdas there are; None: as many as `options` say
    listen:   the address to listen at; None: Lambdas are processes of this machine, and come through a socket of its own
    host:     the address of this machine as Lambdas reach it
    tasks_per_invocation: 0: no limit
    keep_bytes: how much each Lambda may keep for later tasks
    watch:    is told of every event and every instruction of the controller, before it is handled or done
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
    ) -> None:
        self.meter = Meter(prices)
        self.times = TaskTimes()
        self.tuning = tuning
        self.watch: Watch = unwatched
        self._invoker, self._failed = invoker, failed
        self._tasks_per_invocation, self._streaming = tasks_per_invocation, streaming
        self._places = options.places
        self._run = uuid.uuid4().hex
        self._keys = make_keys()
        self._near = NearDirectory() if listen is None else None
        if self._near is not None:
            self._listener = ZmqListener(None, self._near.address("desk"))
            address = self._listener.address
        else:
            self._listener = ZmqListener(self._keys, f"tcp://{listen}:*")
            address = f"tcp://{host}:{self._listener.address.rsplit(':', 1)[1]}"
        self._here = Endpoint(address, self._keys.public)
        self._controller = Controller(options, hashed_jitter(self._run))
        self._keep_bytes = keep_bytes
        self._desk = TaskDesk(self._run, self._listener.send, self._heard, keep_bytes=keep_bytes)
        self._weights = WeightDesk(self._listener.send, held)
        self._loop = DeskLoop(self._listener, [self._desk, self._weights], failed)
        self._tasks: dict[TaskId, _Waiting] = {}
        self._events: deque[tuple[happens.Event, dict[str, Array]]] = deque()
        self._busy = False
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
        if self._near is not None:
            self._near.remove()

    def submit(
        self,
        assignment: Callable[[TaskId], Assignment],
        kind: str,
        priority: Priority,
        done: Done,
        about: About | None = None,
    ) -> None:
        """Have a task computed; `done` hears its outputs, once, in the loop's thread. From any thread.

        about: what it is part of, for the trace
        """

        def queue() -> None:
            self._next += 1
            task = TaskId(self._next)
            made = assignment(task)
            self._tasks[task] = _Waiting(made, kind, done, about)
            home = made.home if made.has_home and self._keep_bytes else None
            self._handle(happens.TaskQueued(_now(), task, kind, priority, home))

        self._loop.call(queue)

    def end_epoch(self) -> None:
        """An epoch has ended: there may be more Lambdas from now on, or fewer. From any thread."""
        if self.tuning is not None:
            count = self.tuning.end_epoch()
            self._loop.call(lambda: self._handle(happens.CountChanged(_now(), count)))

    def doings(self, epoch: int) -> LambdaDoings:
        """What was done for an epoch, and counted since this was last called. From any thread."""
        counts = self._controller.counts
        counted = {
            "invocations": counts.invocations,
            "relaunched": counts.relaunched,
            "retried": counts.retried,
            "gb_seconds": self.meter.gb_seconds,
        }
        return self.times.take(epoch, counted, self._controller.count)

    def usage(self) -> dict[str, Any]:
        """What the Lambdas did and what it costs, for the run's summary. From any thread."""
        counts = self._controller.counts
        return {
            "invocations": counts.invocations,
            "relaunched": counts.relaunched,
            "retried": counts.retried,
            "duplicates_dropped": counts.dropped["duplicate"],
            "shortcuts": self._desk.shortcuts,
            "messages_refused": self._loop.refusals.total() + self._listener.refusals.total(),
            **self.meter.summary(),
            "weights": {"requests": self._weights.answered, "bytes": self._weights.bytes_sent},
            **({} if self.tuning is None else {"counts": list(self.tuning.counts)}),
        }

    def waiting(self) -> list[str]:
        """What waits for what, in words. From any thread: what changes meanwhile may be missing."""
        with suppress(RuntimeError):
            return self._controller.waiting()
        return []

    def _handle(self, event: happens.Event, outputs: dict[str, Array] | None = None) -> None:
        """Events one after the other: what one leads to may be the cause of another."""
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

    def _tell(self, what: happens.Event | does.Instruction) -> None:
        task = getattr(what, "task", None)
        waiting = None if task is None else self._tasks.get(task)
        self.watch(what, None if waiting is None else waiting.about)

    def _obey(self, what: does.Instruction, arrived: dict[str, Array]) -> None:
        match what:
            case does.Invoke():
                self._invoke(what.invocation, what.slot)
            case does.Cancel():
                self._desk.forget(what.invocation)
                self._invoker.cancel(what.invocation)
            case does.OfferTask():
                self.times.offered(what.invocation, what.task)
                if not self._desk.offer(what.peer, self._tasks[what.task].assignment):
                    gone = happens.TaskReturned(_now(), what.invocation, what.task, "its Lambda is gone")
                    self._handle(gone)
            case does.Dismiss():
                self._desk.dismiss(what.peer)
            case does.Deliver():
                waiting = self._tasks.pop(what.task)
                self._desk.cancel(what.task)
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
        self._desk.expect(invocation, keys.public)
        payload = Payload(
            self._run,
            invocation,
            slot,
            self._here,
            (self._here,),
            keys,
            tasks=self._tasks_per_invocation,
            streaming=self._streaming,
            places=self._places,
        )
        self._empty.clear()
        self._invoker.invoke(
            Invocation(invocation, payload.form()),
            lambda outcome: self._loop.call(lambda: self._ended(outcome)),
        )

    def _ended(self, outcome: Outcome) -> None:
        self._count(outcome)
        self._desk.forget(outcome.number)
        self._running.discard(outcome.number)
        self.times.ended(outcome.number)
        failure = outcome.failure if isinstance(outcome, Failed) else None
        self._handle(happens.InvocationEnded(_now(), outcome.number, failure))
        self._note_empty()

    def _count(self, outcome: Outcome) -> None:
        if isinstance(outcome, Failed) and outcome.usage.billed_ms == 0:
            self.meter.count_refusal()
        else:
            self.meter.count_invocation(outcome.usage.billed_ms, outcome.usage.memory_mb)

    def _meter_task(self, event: Finished) -> None:
        waiting = self._tasks.get(event.task)
        if waiting is not None:
            came = _size(event.outputs)
            self.meter.count_task(waiting.kind, event.bytes_sent, came)
            moved = event.bytes_sent + came
            self.times.came_back(event.invocation, event.task, waiting.kind, waiting.about, moved)

    def _note_empty(self) -> None:
        if not self._running:
            self._empty.set()

    def _heard(self, event: DeskEvent) -> None:
        match event:
            case Asked():
                self._handle(happens.LambdaAsks(_now(), event.invocation, event.peer))
            case Finished():
                self._meter_task(event)
                arrived = happens.ResultArrived(_now(), event.invocation, event.task, valid=True)
                self._handle(arrived, event.outputs)
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


def _size(tensors: Tensors) -> int:
    return sum(each.nbytes for each in tensors.values())
