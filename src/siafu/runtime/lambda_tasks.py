"""LambdaTasks: tensor tasks of graph servers on Lambdas: what goes out, and what becomes of what comes back."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.base.activity import About
from siafu.pipeline.ids import IntervalId, Lane, PhaseId
from siafu.pipeline.instructions import RunTask
from siafu.pipeline.task import Priority
from siafu.runtime.counting import added
from siafu.runtime.lambdas import Lambdas
from siafu.runtime.pool import After, Job
from siafu.server.remote import Detour, TensorJob
from siafu.server.worker import GraphWorker, Result
from siafu.serverless.control.ids import TaskId
from siafu.serverless.desk.assignment import Assignment, Shortcut
from siafu.serverless.desk.dispatch import Dispatch, Watch, unwatched
from siafu.serverless.desk.task_times import LambdaDoings

Arrays = Mapping[str, NDArray[Any]]
Soon = Callable[[str, Job, About], None]
"""Has something done as soon as may be, on a thread of the server's: its kind, the job, and what it is part of."""

_RECEIPTS_SECONDS = 5.0  # to wait for the Lambdas' receipts when a run has ended
_VERSION_BITS = 40


@dataclass(frozen=True, slots=True, eq=False)
class _Errand:
    """A task that is out.

    weights: the number under which Lambdas ask for them
    beginning: which of the run's beginnings it is of
    """

    worker: GraphWorker
    what: RunTask
    job: TensorJob
    priority: Priority
    done: Callable[[Result], None]
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

    Lambdas ask for weights by a number that says the run's beginning, too: after another, a version of the same
    number may be other weights, and they keep what they have.

    lambdas:   which
    intervals: of the servers that they work for
    dtype:     what is computed in
    soon:      where results are taken
    failed:    hears of what ends the run
    watch:     is told of every event and every instruction of the Lambdas' controller
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
        self._gone_home = False
        self._earlier: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}
        self._blocks: dict[tuple[int, Lane, PhaseId, IntervalId], int] = {}
        self._beginning = 0

    @property
    def are_out(self) -> bool:
        """Whether the result of a task is waited for."""
        with self._lock:
            return bool(self._held)

    def waiting(self) -> list[str]:
        """What waits for what, in words."""
        return [f"Lambdas: {line}" for line in self._dispatch.waiting()]

    def watch_queue(self, waiting: int) -> None:
        """So many of the servers' jobs wait for a core now: it says something of how many Lambdas there should be."""
        if self._dispatch.tuning is not None:
            self._dispatch.tuning.graph_queue(waiting)

    def start(self) -> None:
        self._dispatch.start()

    def stop(self) -> None:
        """End everything at once."""
        self._dispatch.stop()

    def send_home(self) -> None:
        """Let all Lambdas go, and wait a little for their receipts: what they cost is known then."""
        self._gone_home = True
        self._dispatch.send_home(_RECEIPTS_SECONDS)

    def end_epoch(self) -> None:
        """An epoch has ended: there may be more Lambdas from now on, or fewer."""
        self._dispatch.end_epoch()

    def keep_spans(self) -> None:
        """From now on, `doings` tell of every task."""
        self._dispatch.times.activity.keep_spans()

    def doings(self, epoch: int) -> LambdaDoings:
        """What Lambdas did for an epoch, and counted since this was last called."""
        return self._dispatch.doings(epoch)

    def usage(self) -> dict[str, Any]:
        """What the Lambdas did and what it costs, for the run's summary."""
        return added(self._earlier, self._dispatch.usage())

    def hand_over(
        self,
        worker: GraphWorker,
        what: RunTask,
        weights: Mapping[str, Tensor],
        priority: Priority,
        done: Callable[[Result], None],
    ) -> None:
        """Have a tensor task computed; `done` hears what it gives once, where results are taken."""
        job = worker.job(what.task, self._lambdas.habits)
        with self._lock:
            number = self._beginning << _VERSION_BITS | what.version
            held = self._held.setdefault(
                number, _Held({name: each.numpy() for name, each in weights.items()})
            )
            held.users += 1
            errand = _Errand(worker, what, job, priority, done, number, self._beginning)
        inputs = {name: each.numpy() for name, each in job.inputs.items()}
        self._send(errand, inputs, {}, 0)

    def abandon(self) -> None:
        """The run begins anew: no result of what is out is given to `soon` from now on.

        Whoever calls sees to it that nothing is handed over meanwhile.
        """
        with self._lock:
            self._beginning += 1
        if self._gone_home:
            self._call_back()

    def _call_back(self) -> None:
        """The run was as good as over, and is not: a dispatch whose Lambdas were let go has no more."""
        self._earlier = self.usage()
        self._dispatch.stop()
        self._dispatch, self._gone_home = self._make_dispatch(), False
        self._dispatch.start()

    def _make_dispatch(self) -> Dispatch:
        dispatch = self._lambdas.dispatch(self._intervals, self._weights_of, self.failed)
        dispatch.watch = self._watch
        return dispatch

    def _send(self, errand: _Errand, known: Arrays, made: Arrays, step: int) -> None:
        """Have the next of a job's programs run. `known`: what it may read; `made`: by those before it."""
        self._dispatch.submit(
            lambda number: self._assignment(errand, number, known, step),
            errand.kind(step),
            errand.priority,
            lambda outputs: self._came(errand, {**known, **outputs}, {**made, **outputs}, step),
            errand.about,
        )

    def _came(self, errand: _Errand, known: Arrays, made: Arrays, step: int) -> None:
        with self._lock:
            abandoned = errand.beginning != self._beginning
            last = step + 1 == len(errand.job.programs)
            if abandoned or last:
                self._let_go(errand.weights)
            if last and not abandoned:
                # Under the lock: once `abandon` has returned, nothing more is added.
                self._soon(f"{errand.kind(step)} taken", lambda: self._take(errand, made), errand.about)
        if not (abandoned or last):
            self._send(errand, known, made, step + 1)

    def _take(self, errand: _Errand, made: Arrays) -> After:
        tensors = {name: torch.from_numpy(each) for name, each in made.items()}
        result = errand.worker.finish(errand.what.task, tensors)
        return After(lambda: errand.done(result))

    def _assignment(self, errand: _Errand, number: TaskId, known: Arrays, step: int) -> Assignment:
        task, job = errand.what.task, errand.job
        program = job.programs[step]
        tag = task.epoch << 31 | errand.what.version
        return Assignment(
            number,
            program,
            job.rows,
            self._precision,
            0,
            errand.weights,
            {name: known[name] for name in program.input_names if name in known},
            self._block(errand),
            job.constants,
            _shortcut(job.leaves, tag),
            _shortcut(job.finds, tag),
            # All phases of an interval at one Lambda: who has as many intervals as others has as much to do in each.
            home=task.interval,
        )

    def _block(self, errand: _Errand) -> int:
        """A number for the rows that a task is about. What Lambdas keep of an earlier beginning's is not for this one."""
        task = errand.what.task
        name = errand.beginning, task.lane, task.stage.phase, task.interval
        with self._lock:
            return self._blocks.setdefault(name, len(self._blocks) + 1)

    def _weights_of(self, number: int) -> dict[str, NDArray[Any]] | None:
        """What Lambdas that are at a task may ask for."""
        with self._lock:
            held = self._held.get(number)
            return None if held is None else held.arrays

    def _let_go(self, number: int) -> None:
        held = self._held[number]
        held.users -= 1
        if not held.users:
            del self._held[number]


def _shortcut(detour: Detour | None, tag: int) -> Shortcut | None:
    return None if detour is None else Shortcut(detour.program, detour.names, tag)
