"""Executor: runs a graph server's tasks and moves its rows. Here, on threads, and on Lambdas where there are any."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from siafu.base.activity import About
from siafu.pipeline.events import RowsArrived, WeightsAsked
from siafu.pipeline.ids import Address, Epoch, IntervalId, LaneName, ServerId
from siafu.pipeline.instructions import BeginTask, CompareRows, KeepRows, RunTask
from siafu.pipeline.schedule import Schedule
from siafu.pipeline.setup import Setup
from siafu.pipeline.task import Priority, Task, entry_priority
from siafu.runtime.early_gathers import EarlyGathers
from siafu.runtime.letter import Letter
from siafu.runtime.pool import After, Job, Pool
from siafu.server.worker import GraphWorker, Piece, TaskResult

if TYPE_CHECKING:
    from siafu.runtime.lambda_tasks import LambdaTasks

Weights = Mapping[str, Tensor]
SOON = (-1,)
"""Urgency of short jobs that others wait for: before every task."""


class Executor(Protocol):
    """Runs tasks, most urgent first, and calls back from whatever thread they ran on."""

    def run(
        self, what: RunTask, weights: Weights, began: Callable[[], None], done: Callable[[TaskResult], None]
    ) -> None:
        """Run a task. `began` is called when a gather of an asynchronous run begins to read, `done` with the result."""

    def begin(self, what: BeginTask) -> None:
        """Begin a gather where nothing else is to do; it is told of again when more rows are there, and `run` ends it."""

    def enter(self, asked: WeightsAsked, then: Callable[[], None]) -> None:
        """Call `then` when it is the turn of an interval that enters an epoch."""

    def pack_rows(self, to: Address, message: RowsArrived, then: Callable[[Letter, int], None]) -> None:
        """Copy the rows that `message` names; `then` gets the letter with them, and their bytes."""

    def keep_result(self, task: Task) -> None:
        """Keep the result of this task, which just came."""

    def keep_rows(self, keep: KeepRows, came: Letter) -> None:
        """Put rows that another server packed among the ghosts."""

    def compare_rows(self, what: CompareRows, came: Letter) -> tuple[int, int]:
        """Compare rows with those among the ghosts: how many came, and how many of them differ."""

    def halt(self) -> None:
        """Let no task begin, and return when none runs."""

    def abandon(self) -> None:
        """Forget tasks that wait, and rows that tasks left for each other: a new incarnation begins."""

    def adopt(self) -> None:
        """Go on with the rows that are in the tables: the server made them as an eager copy."""

    def resume(self) -> None:
        """Tasks may begin again."""


class ThreadExecutor:
    """One graph server's tasks on the threads of a pool, which other servers of the process may share.

    lambdas: run its tensor tasks; None: threads do
    """

    def __init__(
        self,
        setup: Setup,
        server: ServerId,
        worker: GraphWorker,
        pool: Pool,
        lambdas: "LambdaTasks | None" = None,
    ) -> None:
        self._address = Address("graph", server)
        self._name = str(self._address)
        self._worker, self._pool, self._lambdas = worker, pool, lambdas
        self._stages: dict[LaneName, Schedule] = {"train": setup.training, "evaluate": setup.evaluation}
        self._owner = setup.layout.owner
        self._fresh = setup.mode == "async"
        self._early = EarlyGathers(setup, worker, pool, self._address) if setup.gather_parts else None
        self._kinds = {
            (lane, stage.id): f"{lane} {stage}"
            for lane, schedule in self._stages.items()
            for stage in schedule.stages
        }

    def run(
        self, what: RunTask, weights: Weights, began: Callable[[], None], done: Callable[[TaskResult], None]
    ) -> None:
        task = what.task
        priority = task.fresh_priority if self._fresh else task.priority
        kind = self._kinds[task.lane, task.stage.id]

        def run() -> None:
            self._add((0, *priority), kind, lambda: self._run(task, weights, began, done), task)

        if self._lambdas is not None and task.stage.kind.remote:
            # Handed over before cores gather on: Lambdas work while cores do.
            self._add((-1, *priority), kind, lambda: self._hand_over(what, weights, priority, done), task)
        elif self._early is not None and task.stage.kind.begins:
            self._early.end(task, run)
        else:
            run()

    def _run(
        self, task: Task, weights: Weights, began: Callable[[], None], done: Callable[[TaskResult], None]
    ) -> After:
        if self._fresh and task.stage.reads:
            began()
        result = self._worker.run(task, weights)
        return After(lambda: done(result))

    def begin(self, what: BeginTask) -> None:
        assert self._early is not None
        self._early.begin(what)

    def _hand_over(
        self, what: RunTask, weights: Weights, priority: Priority, done: Callable[[TaskResult], None]
    ) -> None:
        assert self._lambdas is not None
        self._lambdas.hand_over(self._worker, what, weights, priority, done)

    def enter(self, asked: WeightsAsked, then: Callable[[], None]) -> None:
        assert asked.interval is not None
        turn = (0, *entry_priority(asked.epoch, asked.interval))
        self._pool.add(
            turn, "enter", lambda: After(then), self._about(asked.epoch, asked.interval), self._address
        )

    def pack_rows(self, to: Address, message: RowsArrived, then: Callable[[Letter, int], None]) -> None:
        about = self._about(message.epoch, message.interval)
        self._pool.add(SOON, "scatter", lambda: self._pack(to.index, message, then), about, self._address)

    def _pack(self, to: ServerId, message: RowsArrived, then: Callable[[Letter, int], None]) -> After:
        stage = self._stages[message.lane][message.stage]
        pieces = self._worker.pack_rows(to, message.lane, stage, message.interval)
        tensors = {str(place): piece.rows for place, piece in enumerate(pieces)}
        letter = Letter(message, tensors, tuple(piece.first for piece in pieces))
        size = sum(piece.rows.nbytes for piece in pieces)
        return After(lambda: then(letter, size), size)

    def keep_result(self, task: Task) -> None:
        """Nothing to do: tasks write their rows in place, and none runs twice."""

    def keep_rows(self, keep: KeepRows, came: Letter) -> None:
        stage, owner = self._stages[keep.lane][keep.stage], ServerId(self._owner[keep.interval])
        self._worker.keep_rows(owner, keep.lane, stage, keep.interval, _pieces(came))

    def compare_rows(self, what: CompareRows, came: Letter) -> tuple[int, int]:
        stage, owner = self._stages[what.lane][what.stage], ServerId(self._owner[what.interval])
        return self._worker.compare_rows(owner, what.lane, stage, _pieces(came))

    def halt(self) -> None:
        self._pool.halt(self._address)
        if self._lambdas is not None:
            self._lambdas.abandon()  # what came back until then waits, and is forgotten

    def abandon(self) -> None:
        self._pool.forget(self._address)
        if self._early is not None:
            self._early.forget()
        self._worker.begin_anew()

    def adopt(self) -> None:
        """Nothing to do: the copy wrote its rows to the same tables."""

    def resume(self) -> None:
        self._pool.resume(self._address)

    def _add(self, urgency: Any, kind: str, job: Job, task: Task) -> None:
        self._pool.add(urgency, kind, job, self._about(task.epoch, task.interval), self._address)

    def _about(self, epoch: Epoch, interval: IntervalId) -> About:
        return About(self._name, epoch, interval)


def _pieces(came: Letter) -> list[Piece]:
    """Rows of a letter, as they were packed."""
    rows = [came.tensors[str(place)] for place in range(len(came.tensors))]
    return [Piece(first, each) for first, each in zip(came.places, rows, strict=True)]
