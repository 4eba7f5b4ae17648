"""A graph server and a weight server for tests: tasks are given out in order, results are kept."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch

from siafu.nn.dropout import dropout
from siafu.program.execute.numpy_interpreter import NumpyInterpreter
from siafu.program.tensor_program import TensorProgram
from siafu.program.trace.phase import RowSpec, trace_phase
from siafu.serverless.control.ids import InvocationId, PeerId, SlotId, TaskId
from siafu.serverless.function.payload import Endpoint, Payload
from siafu.serverless.function.warm import Warm
from siafu.serverless.inbox.inbox_loop import InboxLoop
from siafu.serverless.inbox.task_inbox import InboxEvent, LambdaAsked, TaskFinished, TaskInbox
from siafu.serverless.inbox.task_step import TaskStep
from siafu.serverless.inbox.weight_inbox import WeightInbox
from siafu.wire.inprocess import InProcessListener
from siafu.wire.keys import Keys, make_keys
from siafu.wire.link import Link
from siafu.wire.zeromq import ZmqListener

RUN = "a run"
ROWS = 3000
LAMBDA_KEYS = make_keys()
SERVER_KEYS = make_keys()


@cache
def last_program() -> TensorProgram:
    """A last phase: the loss, and the gradients of rows and weights."""

    def phase(
        rows: list[torch.Tensor], weights: dict[str, torch.Tensor], *_: torch.Tensor
    ) -> list[torch.Tensor]:
        return [torch.relu(rows[0]) @ weights["w"] + weights["b"]]

    def loss(outputs: list[torch.Tensor], y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs[0], y, reduction="sum")

    weights = {"w": torch.zeros(16, 5, dtype=torch.float64), "b": torch.zeros(5, dtype=torch.float64)}
    programs = trace_phase(phase, [RowSpec((16,))], weights, learnt=["w", "b"], differentiated=[0], loss=loss)
    assert programs.last is not None
    return programs.last


@cache
def dropping_program() -> TensorProgram:
    """Rows in, rows out, dropped by their vertices and the key."""

    def phase(
        rows: list[torch.Tensor], weights: dict[str, torch.Tensor], vertices: torch.Tensor, key: torch.Tensor
    ) -> list[torch.Tensor]:
        return [dropout(rows[0], vertices, key, 0.5, 0) @ weights["w"]]

    weights = {"w": torch.zeros(16, 5, dtype=torch.float64)}
    return trace_phase(phase, [RowSpec((16,))], weights).forward


WEIGHTS = {
    "w": np.random.default_rng(1).normal(size=(16, 5)),
    "b": np.random.default_rng(2).normal(size=5),
}


def task_step(
    task: int = 0, rows: int = ROWS, program: TensorProgram | None = None, version: int = 1
) -> TaskStep:
    program = program or last_program()
    dice = np.random.default_rng(task)
    every = {
        "rows/0": dice.normal(size=(rows, 16)),
        "y": dice.integers(0, 5, rows),
        "vertices": dice.permutation(rows),
        "key": np.array([7, 3]),
    }
    inputs = {name: every[name] for name in program.input_names if name in every}
    return TaskStep(TaskId(task), program, rows, "float64", 0, version, inputs)


def expected(task: TaskStep) -> dict[str, np.ndarray]:
    """What the program gives for all rows at once."""
    inputs = dict(task.inputs) | {f"weight/{name}": each for name, each in WEIGHTS.items()}
    return dict(
        zip(task.program.output_names, NumpyInterpreter(task.program)(inputs, task.rows), strict=True)
    )


@dataclass
class Office:
    """Gives tasks in order to whoever asks; dismisses when `dismissing` and there are none, nor any in hand."""

    listener: Any
    part_bytes: int = 1 << 16
    keep_bytes: int = 0
    dismissing: bool = True
    versions: dict[int, Any] = field(default_factory=lambda: {1: WEIGHTS})
    on_event: Callable[[InboxEvent], None] | None = None

    def __post_init__(self) -> None:
        self.events: list[InboxEvent] = []
        self.tasks: deque[TaskStep] = deque()
        self.failures: list[BaseException] = []
        self.asking: deque[PeerId] = deque()
        self.inbox = TaskInbox(
            RUN, self.listener.send, self._tell, part_bytes=self.part_bytes, keep_bytes=self.keep_bytes
        )
        self.weights = WeightInbox(self.listener.send, self.versions.get)
        self.loop = InboxLoop(self.listener, [self.inbox, self.weights], self.failures.append)

    def __enter__(self) -> "Office":
        self.loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.stop()
        self.listener.close()
        assert self.failures == []

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.events if isinstance(each, kind)]

    def results(self) -> dict[int, dict[str, np.ndarray]]:
        finished: list[TaskFinished] = self.of(TaskFinished)
        assert len({each.task for each in finished}) == len(finished)
        return {each.task: each.outputs for each in finished}

    def _tell(self, event: InboxEvent) -> None:
        self.events.append(event)
        if self.on_event is not None:
            self.on_event(event)
        if isinstance(event, LambdaAsked):
            if self.tasks:
                self.inbox.offer(event.peer, self.tasks.popleft())
            elif self.dismissing and not self._in_hand(event.peer):
                self.inbox.dismiss(event.peer)

    def _in_hand(self, peer: PeerId) -> bool:
        session = self.inbox._sessions[peer]
        return bool(session.leases or session.cancelled)


def in_process(**options: Any) -> tuple[Office, Warm]:
    """An office, and a Lambda's process that reaches it without a socket."""
    listener = InProcessListener()
    office = Office(listener, **options)

    def connect(endpoint: Endpoint, keys: Keys) -> Link:
        return listener.connect(keys.public)

    return office, Warm(connect)


def over_zeromq(**options: Any) -> Office:
    listener = ZmqListener(SERVER_KEYS, "tcp://127.0.0.1:*")
    listener.admit(LAMBDA_KEYS.public)
    return Office(listener, **options)


def payload(office: Office, invocation: int = 0, **changes: Any) -> dict[str, Any]:
    """What an invocation of this office is told."""
    address = getattr(office.listener, "address", "inproc://office")
    endpoint = Endpoint(address, SERVER_KEYS.public)
    told = Payload(
        RUN,
        InvocationId(invocation),
        SlotId(0),
        endpoint,
        (endpoint,),
        LAMBDA_KEYS,
        idle_ms=10_000,
        stall_ms=10_000,
    )
    office.loop.call(lambda: office.inbox.expect(InvocationId(invocation), LAMBDA_KEYS.public))
    return told.form() | changes


class Clock:
    """A context whose time does not run out, unless told so."""

    def __init__(self, milliseconds: int = 60_000) -> None:
        self.milliseconds = milliseconds

    def get_remaining_time_in_millis(self) -> int:
        return self.milliseconds
