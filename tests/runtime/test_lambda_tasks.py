"""Tasks that are out when a run begins anew: nothing of them is taken, and the next ones do not meet what they left."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from siafu.base.activity import About
from siafu.pipeline.ids import Epoch, IntervalId, PhaseId, ServerId, Version
from siafu.pipeline.instructions import RunTask
from siafu.pipeline.schedule import Stage, StageId
from siafu.pipeline.stage_kind import TENSOR
from siafu.pipeline.task import Task
from siafu.runtime.lambda_tasks import LambdaTasks
from siafu.runtime.pool import Job
from siafu.server.remote import TaskInputs, TaskSettings

OUTPUT = {"out": np.ones(2)}


@dataclass
class FakeDispatch:
    """Keeps what it is given until a test says what came of it."""

    held: Callable[[int], Any]
    tasks: list[Any] = field(default_factory=list)
    running: bool = False

    def submit(self, assignment: Any, kind: str, priority: Any, done: Any, about: Any) -> None:
        self.tasks.append((assignment(len(self.tasks)), done))

    def finish(self, task: int) -> None:
        self.tasks[task][1](OUTPUT)

    def version(self, task: int) -> int:
        return int(self.tasks[task][0].version)

    def block(self, task: int) -> int:
        return int(self.tasks[task][0].block)

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def dismiss_all(self, seconds: float) -> None:
        pass

    def usage(self) -> dict[str, int]:
        return {"invocations": 1}


class FakeLambdas:
    """A run's Lambdas, which do nothing by themselves."""

    def __init__(self) -> None:
        self.made: list[FakeDispatch] = []
        self.settings = TaskSettings()

    def dispatch(self, intervals: int, held: Any, failed: Any) -> FakeDispatch:
        self.made.append(FakeDispatch(held))
        return self.made[-1]


class Office:
    """Tasks of a worker with programs of one step, or of several."""

    def __init__(self, steps: int = 1) -> None:
        self.taken: list[Any] = []
        self.lambdas = FakeLambdas()
        program: Any = SimpleNamespace(input_names=("key",))
        inputs = TaskInputs((program,) * steps, 2, {"key": torch.zeros(1)})
        self._worker: Any = SimpleNamespace(
            server=0, task_inputs=lambda task, settings: inputs, finish=lambda task, outputs: outputs
        )
        given: Any = self.lambdas
        self.tasks = LambdaTasks(given, 1, torch.float64, self._soon, self.taken.append)

    def _soon(self, kind: str, job: Job, about: About) -> None:
        if (after := job()) is not None:
            after.then()

    @property
    def dispatch(self) -> FakeDispatch:
        return self.lambdas.made[-1]

    def hand_over(self) -> None:
        stage = Stage(StageId(0), TENSOR, "forward", PhaseId(0))
        task = Task("train", Epoch(3), stage, IntervalId(0))
        what = RunTask(task, Version(5), ServerId(0))
        self.tasks.hand_over(self._worker, what, {"w": torch.ones(1)}, task.priority, self.taken.append)


def test_a_result_is_taken_once_all_steps_are_done() -> None:
    office = Office(steps=2)
    office.hand_over()
    office.dispatch.finish(0)
    assert not office.taken
    office.dispatch.finish(1)
    assert len(office.taken) == 1


def test_weights_are_there_while_a_task_is_out() -> None:
    office = Office()
    office.hand_over()
    office.hand_over()
    number = office.dispatch.version(0)
    office.dispatch.finish(0)
    assert set(office.dispatch.held(number)) == {"w"}
    office.dispatch.finish(1)
    assert office.dispatch.held(number) is None


def test_what_comes_after_the_run_began_anew_is_not_taken_and_goes_no_further() -> None:
    office = Office(steps=2)
    office.hand_over()
    office.tasks.abandon()
    office.dispatch.finish(0)
    assert not office.taken
    assert len(office.dispatch.tasks) == 1
    assert office.dispatch.held(office.dispatch.version(0)) is None


def test_the_same_task_after_that_has_other_weights_and_other_rows() -> None:
    office = Office()
    office.hand_over()
    office.tasks.abandon()
    office.hand_over()
    assert office.dispatch.version(0) != office.dispatch.version(1)
    assert office.dispatch.block(0) != office.dispatch.block(1)
    office.dispatch.finish(1)
    assert len(office.taken) == 1


def test_lambdas_that_were_sent_home_are_called_back_and_their_bill_is_kept() -> None:
    office = Office()
    office.tasks.start()
    office.tasks.dismiss_all()
    office.tasks.abandon()
    old, new = office.lambdas.made
    assert new.running
    assert not old.running
    assert office.tasks.usage() == {"invocations": 2}
