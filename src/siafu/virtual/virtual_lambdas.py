"""VirtualLambdas: the Lambdas of one graph server in virtual time: rows travel, programs run, rows travel back."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from siafu.pipeline.ids import Epoch, IntervalId, PhaseId, Version
from siafu.server.costs.work import Work
from siafu.virtual.agenda import Agenda
from siafu.virtual.costs import LambdaKind, compute_seconds
from siafu.virtual.resources import Cores, Urgency, VirtualLink, carry_over

_SHARE_TO_KEEP = 0.5  # of a Lambda's memory: as in `siafu.runtime.lambdas`


@dataclass(frozen=True, slots=True, eq=False)
class TensorTask:
    """A tensor task on its way to a Lambda.

    work:  of one interval
    block: which rows it is of; the same forth and back
    done:  called when its rows are at the server again
    """

    work: Work
    block: tuple[PhaseId, IntervalId]
    epoch: Epoch
    back: bool
    version: Version
    urgency: Urgency
    done: Callable[[float], None]


@dataclass(eq=False, slots=True)
class _Lambda:
    """One Lambda.

    given:   tasks that it has
    kept:    blocks whose constant rows it has
    forward: blocks whose forward pass it has, and of which epoch
    versions: of the weights that it has, by phase
    began:   when it was invoked; None: it is at home
    served:  tasks so far; taken: those that this invocation took
    """

    down: VirtualLink
    up: VirtualLink
    computes: VirtualLink
    given: int = 0
    versions: dict[PhaseId, Version] = field(default_factory=dict)
    kept: set[tuple[PhaseId, IntervalId]] = field(default_factory=set)
    kept_bytes: float = 0.0
    forward: dict[tuple[PhaseId, IntervalId], Epoch] = field(default_factory=dict)
    began: float | None = None
    served: int = 0
    taken: int = 0


class VirtualLambdas:
    """The Lambdas of one server. Each takes `1 + prefetch` tasks at a time, and computes one.

    each:          how many Lambdas of the server one that is simulated stands for
    servers_each:  how many servers this one stands for
    to_all, from_all: the server's network, which all share
    weights_out:   the weight server's, which weights come from
    cores:         what Lambdas compute on, where they are processes on their server; None: each has its own
    """

    def __init__(
        self,
        agenda: Agenda,
        kind: LambdaKind,
        count: int,
        each: float,
        to_all: VirtualLink,
        from_all: VirtualLink,
        weights_out: VirtualLink,
        servers_each: float,
        cores: Cores | None = None,
    ) -> None:
        self.kind, self.each = kind, each
        self.invocations = 0
        self.tasks = 0
        self.billed = self.computing = 0.0
        self.bytes_in = self.bytes_out = self.bytes_weights = 0.0
        self._agenda = agenda
        self._to_all, self._from_all, self._weights_out = to_all, from_all, weights_out
        self._servers_each = servers_each
        self._cores = cores
        self._lambdas = [
            _Lambda(VirtualLink(kind.bytes_s), VirtualLink(kind.bytes_s), VirtualLink(1.0))
            for _ in range(count)
        ]
        self._waiting: list[tuple[Urgency, int, TensorTask]] = []
        self._submitted = 0

    def submit(self, task: TensorTask) -> None:
        self._submitted += 1
        heapq.heappush(self._waiting, (task.urgency, self._submitted, task))
        self._hand_out()

    def end(self, now: float) -> None:
        """The run is over: Lambdas that serve until there is no more are dismissed."""
        for each in self._lambdas:
            if each.began is not None:
                self._go_home(each, now)

    def _hand_out(self) -> None:
        while self._waiting:
            free = [each for each in self._lambdas if self._takes_more(each)]
            if not free:
                return
            task = heapq.heappop(self._waiting)[2]
            self._give(self._best(free, task), task)

    def _takes_more(self, one: _Lambda) -> bool:
        limit = self.kind.tasks_per_invocation
        return one.given <= self.kind.prefetch and not (limit and one.taken >= limit)

    def _best(self, free: list[_Lambda], task: TensorTask) -> _Lambda:
        """The least loaded; of those, one that has what the task needs."""
        return min(
            free,
            key=lambda each: (each.given, task.block not in each.forward, task.block not in each.kept),
        )

    def _give(self, to: _Lambda, task: TensorTask) -> None:
        now, kind = self._agenda.now, self.kind
        to.given += 1
        to.taken += 1
        ready = self._invoked(to, now)
        work = self._work(to, task)
        self.bytes_in += work.received * self.each
        rows_at = max(
            self._to_all.carry(ready, work.received * self.each), to.down.carry(ready, work.received)
        )
        arrived = max(rows_at + kind.latency_s, self._weights_at(to, task, ready + kind.latency_s))
        self._agenda.after(arrived - now, self._compute, to, task, work)

    def _weights_at(self, to: _Lambda, task: TensorTask, offered: float) -> float:
        """When the Lambda has the weights: it asks for a version of a phase's once, when the task is offered."""
        phase, size = task.block[0], task.work.weights
        if to.versions.get(phase) == task.version:
            return offered
        to.versions[phase] = task.version
        self.bytes_weights += size * self.each
        asked = offered + self.kind.latency_s
        shared = self._weights_out.carry(asked, size * self.each * self._servers_each)
        return max(shared, to.down.carry(asked, size)) + self.kind.latency_s

    def _invoked(self, to: _Lambda, now: float) -> float:
        """When the Lambda can ask for rows."""
        if to.began is not None:
            return now
        # What AWS takes to get a request to a Lambda is not billed; a new Lambda's own start is.
        starts = now + self.kind.invoke_s
        to.began = starts
        self.invocations += 1
        first = to.served == 0
        warm = starts if not first else max(starts, now + self.kind.cold_start_s)
        # Invoked, it asks for tasks.
        return warm + self.kind.latency_s

    def _work(self, to: _Lambda, task: TensorTask) -> Work:
        """What the task takes there, given what the Lambda has kept."""
        work, kind = task.work, self.kind
        found = kind.keeps_forward and to.forward.get(task.block) == task.epoch
        if task.back and work.again is not None and not found:
            work = _together(work, work.again)
        if task.block in to.kept:
            return replace(work, received=work.received - work.constant)
        most = _SHARE_TO_KEEP * kind.memory_mb * (1 << 20)
        if kind.keeps_constants and work.constant and to.kept_bytes + work.constant <= most:
            to.kept.add(task.block)
            to.kept_bytes += work.constant
        return work

    def _compute(self, on: _Lambda, task: TensorTask, work: Work) -> None:
        now = self._agenda.now
        seconds = self.kind.task_seconds + compute_seconds(work, self.kind.thread)
        self.computing += seconds * self.each
        if not task.back:
            on.forward[task.block] = task.epoch
        if self._cores is None:
            self._agenda.after(on.computes.carry(now, seconds) - now, self._send, on, task, work)
        else:
            self._cores.add(task.urgency, "lambda", seconds, partial(self._send, on, task, work))

    def _send(self, by: _Lambda, task: TensorTask, work: Work) -> None:
        now = self._agenda.now
        size = work.sent + work.gradients
        self.bytes_out += size * self.each
        back = max(carry_over(now, size, by.up), self._from_all.carry(now, size * self.each))
        self._agenda.after(back - now + self.kind.latency_s, self._done, by, task, size)

    def _done(self, by: _Lambda, task: TensorTask, size: float) -> None:
        self.tasks += 1
        by.given -= 1
        by.served += 1
        limit = self.kind.tasks_per_invocation
        if limit and by.taken >= limit and not by.given:
            self._go_home(by, self._agenda.now)
        task.done(size)
        self._hand_out()

    def _go_home(self, lambda_: _Lambda, now: float) -> None:
        if lambda_.began is not None:
            self.billed += now - lambda_.began
            lambda_.began = None
            lambda_.taken = 0


def _together(work: Work, more: Work) -> Work:
    return replace(
        work,
        products=work.products + more.products,
        moved=work.moved + more.moved,
        draws=work.draws + more.draws,
        functions=work.functions + more.functions,
        calls=work.calls + more.calls,
        received=work.received + more.received,
        constant=work.constant + more.constant,
    )
