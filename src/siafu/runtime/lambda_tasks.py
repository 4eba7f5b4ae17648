"""LambdaTasks: tensor tasks of graph servers, computed by Lambdas."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.base.activity import About
from siafu.pipeline.ids import IntervalId, LaneName, PhaseId
from siafu.pipeline.instructions import RunTask
from siafu.pipeline.task import Priority
from siafu.runtime.counters.counting import added
from siafu.runtime.lambdas import Lambdas
from siafu.runtime.pool import After, Job
from siafu.server.remote import StashProgram, TaskInputs
from siafu.server.worker import GraphWorker, TaskResult
from siafu.serverless.control.ids import TaskId
from siafu.serverless.inbox.dispatch import Dispatch, Watch, unwatched
from siafu.serverless.inbox.task_step import Shortcut, TaskStep
from siafu.serverless.inbox.task_times import LambdaActivity

Arrays = Mapping[str, NDArray[Any]]
Soon = Callable[[str, Job, About], None]
"""Runs a job as soon as possible on a thread of the server: its kind, the job, and its server, epoch and interval."""

_RECEIPTS_SECONDS = 5.0  # to wait for the Lambdas' receipts when a run has ended
_VERSION_BITS = 40


@dataclass(frozen=True, slots=True, eq=False)
class _TaskRequest:
    """A task that was handed over, and whose result is waited for.

    weights:   number under which Lambdas ask for its weights
    beginning: number of the run's beginning that it is of
    """

    worker: GraphWorker
    what: RunTask
    inputs: TaskInputs
    priority: Priority
    done: Callable[[TaskResult], None]
    weights: int
    beginning: int

    @property
    def about(self) -> About:
        task = self.what.task
        return About(f"graph server {self.worker.server}", task.epoch, task.interval)

    def kind(self, step: int) -> str:
        return f"{self.what.task.lane} {self.what.task.stage}" + (f", {step + 1}" if step else "")


@dataclass(slots=True)
class _Held:
    arrays: dict[str, NDArray[Any]]
    users: int = 0


class LambdaTasks:
    """Has Lambdas compute tensor tasks. Any thread may call.

    Lambdas keep weights, and ask for them by a number that contains the run's beginning: after the run began anew, a
    version of the same number may be other weights.

    lambdas:   options of the Lambdas
    intervals: number of intervals of the servers that they work for
    dtype:     of the computation
    soon:      runs a job that takes a result
    failed:    called with an error that ends the run
    watch:     called with every event and instruction of the controller
    """

    def __init__(
        self,
        lambdas: Lambdas,
        intervals: int,
        dtype: torch.dtype,
        soon: Soon,
        failed: Callable[[BaseException], None],
        watch: Watch = unwatched,
    ) -> None:
        self._watch = watch
        self._lambdas, self._intervals = lambdas, intervals
        self._soon, self.failed = soon, failed
        self._dispatch = self._make_dispatch()
        self._precision = str(dtype).removeprefix("torch.")
        self._dismissed = False
        self._earlier: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}
        self._blocks: dict[tuple[int, LaneName, PhaseId, IntervalId], int] = {}
        self._beginning = 0

    @property
    def are_out(self) -> bool:
        """Whether a task waits for its result."""
        with self._lock:
            return bool(self._held)

    def waiting(self) -> list[str]:
        """Tasks and Lambdas that wait, in words."""
        return [f"Lambdas: {line}" for line in self._dispatch.waiting()]

    def watch_queue(self, waiting: int) -> None:
        """Tell the autotuner the number of jobs that wait for a core now."""
        if self._dispatch.tuning is not None:
            self._dispatch.tuning.graph_queue(waiting)

    def start(self) -> None:
        self._dispatch.start()

    def stop(self) -> None:
        """End everything at once."""
        self._dispatch.stop()

    def dismiss_all(self) -> None:
        """Dismiss all Lambdas, and wait a little for their receipts, which say what they cost."""
        self._dismissed = True
        self._dispatch.dismiss_all(_RECEIPTS_SECONDS)

    def end_epoch(self) -> None:
        """An epoch has ended: there may be more Lambdas from now on, or fewer."""
        self._dispatch.end_epoch()

    def keep_spans(self) -> None:
        """From now on, `activity` tells of every task."""
        self._dispatch.times.activity.keep_spans()

    def activity(self, epoch: int) -> LambdaActivity:
        """Work of Lambdas for an epoch, and counts since the last call."""
        return self._dispatch.activity(epoch)

    def usage(self) -> dict[str, Any]:
        """Work and cost of the Lambdas, for the run's summary."""
        return added(self._earlier, self._dispatch.usage())

    def hand_over(
        self,
        worker: GraphWorker,
        what: RunTask,
        weights: Mapping[str, Tensor],
        priority: Priority,
        done: Callable[[TaskResult], None],
    ) -> None:
        """Have a tensor task computed; `done` gets its result once, in a job of `soon`."""
        inputs = worker.task_inputs(what.task, self._lambdas.settings)
        with self._lock:
            number = self._beginning << _VERSION_BITS | what.version
            held = self._held.setdefault(
                number, _Held({name: each.numpy() for name, each in weights.items()})
            )
            held.users += 1
            request = _TaskRequest(worker, what, inputs, priority, done, number, self._beginning)
        arrays = {name: each.numpy() for name, each in inputs.inputs.items()}
        self._send(request, arrays, {}, 0)

    def abandon(self) -> None:
        """The run begins anew: results of tasks under way are dropped from now on.

        The caller makes sure that nothing is handed over meanwhile.
        """
        with self._lock:
            self._beginning += 1
        if self._dismissed:
            self._call_back()

    def _call_back(self) -> None:
        """Start another dispatch: the Lambdas were dismissed at the run's end, and now the run goes on."""
        self._earlier = self.usage()
        self._dispatch.stop()
        self._dispatch, self._dismissed = self._make_dispatch(), False
        self._dispatch.start()

    def _make_dispatch(self) -> Dispatch:
        dispatch = self._lambdas.dispatch(self._intervals, self._weights_of, self.failed)
        dispatch.watch = self._watch
        return dispatch

    def _send(self, request: _TaskRequest, known: Arrays, made: Arrays, step: int) -> None:
        """Have the next of a task's programs run. `known`: arrays it may read; `made`: outputs of the programs before."""
        self._dispatch.submit(
            lambda number: self._task_step(request, number, known, step),
            request.kind(step),
            request.priority,
            lambda outputs: self._came(request, {**known, **outputs}, {**made, **outputs}, step),
            request.about,
        )

    def _came(self, request: _TaskRequest, known: Arrays, made: Arrays, step: int) -> None:
        with self._lock:
            abandoned = request.beginning != self._beginning
            last = step + 1 == len(request.inputs.programs)
            if abandoned or last:
                self._let_go(request.weights)
            if last and not abandoned:
                # Under the lock: once `abandon` has returned, nothing more is added.
                self._soon(f"{request.kind(step)} taken", lambda: self._take(request, made), request.about)
        if not (abandoned or last):
            self._send(request, known, made, step + 1)

    def _take(self, request: _TaskRequest, made: Arrays) -> After:
        tensors = {name: torch.from_numpy(each) for name, each in made.items()}
        result = request.worker.finish(request.what.task, tensors)
        return After(lambda: request.done(result))

    def _task_step(self, request: _TaskRequest, number: TaskId, known: Arrays, step: int) -> TaskStep:
        task, inputs = request.what.task, request.inputs
        program = inputs.programs[step]
        tag = task.epoch << 31 | request.what.version
        return TaskStep(
            number,
            program,
            inputs.rows,
            self._precision,
            0,
            request.weights,
            {name: known[name] for name in program.input_names if name in known},
            self._block(request),
            inputs.constants,
            _shortcut(inputs.leaves, tag),
            _shortcut(inputs.finds, tag),
            # All phases of an interval at one Lambda: who has as many intervals as others has as much to do in each.
            home=task.interval,
        )

    def _block(self, request: _TaskRequest) -> int:
        """Number of the rows that a task reads. Rows that Lambdas keep from an earlier beginning have another."""
        task = request.what.task
        name = request.beginning, task.lane, task.stage.phase, task.interval
        with self._lock:
            return self._blocks.setdefault(name, len(self._blocks) + 1)

    def _weights_of(self, number: int) -> dict[str, NDArray[Any]] | None:
        """Weights that Lambdas may ask for; None: no task uses them."""
        with self._lock:
            held = self._held.get(number)
            return None if held is None else held.arrays

    def _let_go(self, number: int) -> None:
        held = self._held[number]
        held.users -= 1
        if not held.users:
            del self._held[number]


def _shortcut(stash: StashProgram | None, tag: int) -> Shortcut | None:
    return None if stash is None else Shortcut(stash.program, stash.names, tag)
