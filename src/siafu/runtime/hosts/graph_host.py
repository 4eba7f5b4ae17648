"""GraphHost: drives a graph server's machine. It holds the weights that tasks use and the gradients they made."""

import threading
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from siafu.pipeline.events import (
    Begin,
    EpochFinished,
    GradientArrived,
    RowsArrived,
    TakenOver,
    TaskDone,
    TaskStarted,
    WeightsAsked,
    WeightsGranted,
)
from siafu.pipeline.graph_basis import GraphServerCounts
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import RUN, Address, Epoch, IntervalId, PhaseId, Version
from siafu.pipeline.instructions import (
    Abandon,
    Adopt,
    BeginTask,
    CompareRows,
    ForgetGradients,
    Instruction,
    KeepResult,
    KeepRows,
    RunTask,
    Send,
)
from siafu.pipeline.stamp import Stamp
from siafu.runtime.counters.server_activity import ServerActivity
from siafu.runtime.executor import Executor
from siafu.runtime.hosts.host import Host, Watch, unwatched
from siafu.runtime.letter import Letter
from siafu.runtime.post import Post
from siafu.runtime.requests import ActivityReported, ReportWanted, TraceWanted, WeightsSent, WeightsWanted
from siafu.server.worker import TaskResult

if TYPE_CHECKING:
    from siafu.runtime.lambda_tasks import LambdaTasks


class GraphHost(Host):
    """One graph server.

    activity:  its report to the run at the end of an epoch
    lambdas:   its own Lambdas, to be tuned and billed; None: it has none, or shares another server's
    reporting: whether it waits for its Lambdas' receipts, for its report to the run
    """

    def __init__(
        self,
        machine: GraphServer,
        post: Post,
        executor: Executor,
        activity: ServerActivity,
        lambdas: "LambdaTasks | None" = None,
        watch: Watch = unwatched,
    ) -> None:
        super().__init__(machine.address, machine, post, watch)
        self._server, self._executor, self._activity, self._lambdas = machine, executor, activity, lambdas
        self._bytes_scattered = self._rows_compared = self._rows_differ = 0
        self._weights: dict[Version, dict[str, Tensor]] = {}
        self._users: Counter[Version] = Counter()
        self._held_up: defaultdict[Version, list[RunTask]] = defaultdict(list)
        self._gradients: dict[tuple[Epoch, PhaseId, IntervalId], dict[str, Tensor]] = {}
        self.reporting = False
        # Counters of closed epochs must not be lost with their server, nor gradients with the one they were sent to.
        self._tells_counters = machine.setup.closes
        self._keeps_gradients = machine.setup.resumes and not activity.shares_threads

    def _take(self, letter: Letter) -> None:
        if isinstance(letter.event, WeightsSent | WeightsGranted):
            self._take_weights(letter.event.version, letter)

    def _pass_on(self, letter: Letter) -> None:
        match letter.event:
            case ReportWanted() as wanted:
                self._answer(wanted)
            case TraceWanted():
                self._activity.keep_spans()
            case Begin() as begin:
                self._begin(begin, letter)
            case WeightsSent():
                pass
            case TakenOver() as taken:
                self.deliver(taken, letter)
                self._want_again(taken.server)
            case event:
                self.deliver(event, letter)

    def _begin(self, begin: Begin, letter: Letter) -> None:
        """Begin an incarnation. From now on nothing of an earlier one may be written to the tables."""
        self._executor.halt()
        self._server.counts = GraphServerCounts()
        self.deliver(begin, letter)
        self._executor.resume()

    def _take_weights(self, version: Version, letter: Letter) -> None:
        if not letter.tensors:
            return
        for old in [each for each in self._weights if each < version - 1 and not self._users[each]]:
            del self._weights[old]
        self._weights[version] = letter.owned()
        for what in self._held_up.pop(version, []):
            self._run(what)

    # What the machine says

    def _obey(self, what: Instruction, came: Letter) -> None:
        match what:
            case Send():
                self._send(what)
            case RunTask():
                self._schedule(what)
            case BeginTask():
                self._executor.begin(what)
            case KeepResult():
                self._executor.keep_result(what.task)
            case KeepRows():
                self._executor.keep_rows(what, came)
            case CompareRows():
                came_again, differ = self._executor.compare_rows(what, came)
                self._rows_compared += came_again
                self._rows_differ += differ
            case Abandon():
                self._abandon()
            case Adopt():
                self._executor.adopt()
            case ForgetGradients():
                for key in [each for each in self._gradients if each[0] < what.before]:
                    del self._gradients[key]
            case _:
                raise NotImplementedError(f"a graph server cannot {what}")

    def _abandon(self) -> None:
        self._executor.abandon()
        self._bytes_scattered = self._rows_compared = self._rows_differ = 0
        self._gradients.clear()
        self._weights.clear()
        self._users.clear()
        self._held_up.clear()
        self._activity.forget()

    def _send(self, send: Send) -> None:
        to, message = send.to, send.message
        match message:
            case RowsArrived():
                receivers = [to] if send.also is None else [to, send.also]
                stamped = [(each, self._server.fences.stamp(each)) for each in receivers]
                self._executor.pack_rows(
                    to, message, lambda letter, size: self._send_rows(stamped, letter, size)
                )
            case GradientArrived():
                key = message.epoch, message.phase, message.interval
                self.send(to, message, self._gradients[key])
                if not self._keeps_gradients:
                    del self._gradients[key]
            case WeightsAsked() if message.interval is not None and message.version is None:
                self._executor.enter(message, lambda: self._send_now(to, message))
            case EpochFinished():
                if self._lambdas is not None and message.lane == "train":
                    self._lambdas.end_epoch()
                told, tensors = self._activity.told(
                    message.epoch,
                    self._server.counts.staleness,
                    self._bytes_scattered,
                    self._counters() if message.lane == "train" and self._tells_counters else None,
                )
                self.send(RUN, ActivityReported(self.address, told), tensors)
                self.send(to, message)
            case _:
                self.send(to, message)

    def _send_now(self, to: Address, message: WeightsAsked) -> None:
        self.send(to, message)
        self.post.flush()

    def _send_rows(self, receivers: list[tuple[Address, Stamp]], letter: Letter, size: int) -> None:
        with self.lock:
            self._bytes_scattered += size * len(receivers)
        for to, stamp in receivers:
            self.post.send(to, replace(letter, stamp=stamp))
        self.post.flush()

    def _schedule(self, what: RunTask) -> None:
        """Run a task as soon as its weights are here."""
        self._users[what.version] += 1
        if what.version in self._weights:
            self._run(what)
            return
        if what.version not in self._held_up:
            wanted = WeightsWanted(self.address, what.version)
            self.send(Address("weight", what.weights), wanted)
        self._held_up[what.version].append(what)

    def _want_again(self, server: Address) -> None:
        """Ask a new weight server for the weights that its predecessor was asked for."""
        with self.lock:
            for version, tasks in self._held_up.items():
                if any(Address("weight", what.weights) == server for what in tasks):
                    self.send(server, WeightsWanted(self.address, version))
        self.post.flush()

    def _run(self, what: RunTask) -> None:
        stamp = self._server.fences.stamp(self.address)
        self._executor.run(
            what,
            self._weights[what.version],
            lambda: self.deliver(TaskStarted(what.task), stamp=stamp),
            lambda done: self._done(stamp, what, done),
        )

    def _done(self, stamp: Stamp, what: RunTask, done: TaskResult) -> None:
        task = what.task
        with self.lock:
            if stamp.incarnation == self.incarnation:
                self._users[what.version] -= 1
                if not self._users[what.version]:
                    del self._users[what.version]
                for phase, gradients in done.gradients.items():
                    self._gradients[task.epoch, phase, task.interval] = gradients
        self.deliver(TaskDone(task, done.measures), stamp=stamp)

    def _own_waiting(self) -> list[str]:
        held_up = [
            f"{self.address}: {what.task} waits for version {version} from weight server {what.weights}"
            for version, tasks in self._held_up.items()
            for what in tasks
        ]
        return held_up if self._lambdas is None else held_up + self._lambdas.waiting()

    # What the run asks

    def _answer(self, wanted: ReportWanted) -> None:
        if self._lambdas is None or not wanted.last:
            self.answer(wanted)
            return
        # Their receipts are waited for in a thread of its own, and the post goes on.
        self.reporting = True
        threading.Thread(target=self._answer_last, args=(wanted,), name="siafu-last", daemon=True).start()

    def _answer_last(self, wanted: ReportWanted) -> None:
        assert self._lambdas is not None
        try:
            self._lambdas.dismiss_all()
            self.answer(wanted)
        except BaseException as error:  # handed to who waits for the run
            self._lambdas.failed(error)
        finally:
            self.reporting = False

    def _report(self, wanted: ReportWanted) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._counters(), {}

    def _counters(self) -> dict[str, Any]:
        """Counters since the run began, or began again; those of Lambdas since this server has them."""
        counts = self._server.counts
        twice = {"rows_compared": self._rows_compared, "rows_differ": self._rows_differ}
        ahead = {"tasks_done_ahead": counts.adopted} if counts.adopted else {}
        lambdas = {} if self._lambdas is None else {"lambda": self._lambdas.usage()}
        return (
            (twice if self._rows_compared else {})
            | ahead
            | lambdas
            | {
                "max_staleness_seen": max(counts.staleness, default=0),
                "staleness_histogram": {str(lead): count for lead, count in sorted(counts.staleness.items())},
                "row_age_histogram": {str(age): count for age, count in sorted(counts.row_ages.items())},
                "bytes_scattered": self._bytes_scattered,
            }
        )
