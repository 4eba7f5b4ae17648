"""RunHost: drives the run's machine: it records epochs, makes checkpoints, and says how the run ended."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

from torch import Tensor

from siafu.base.activity import SPANS_KEPT, Activity, add_seconds
from siafu.base.compiling import working_clock
from siafu.pipeline.events import (
    Begin,
    BestKept,
    CheckpointAsked,
    CheckpointSaved,
    EpochClosed,
    EvaluationStarted,
    Noted,
    Proceed,
    RunAhead,
    StateMade,
    StopAsked,
)
from siafu.pipeline.ids import RUN, Address, Epoch, Life, Version
from siafu.pipeline.instructions import (
    CloseEpochs,
    HoldCheckpoint,
    Instruction,
    KeepBest,
    KeepState,
    RecordEpoch,
    Replace,
    Rewind,
    SaveCheckpoint,
    Send,
    Stop,
)
from siafu.pipeline.run_machine.run import RunMachine
from siafu.runtime.counters.bills import Bills
from siafu.runtime.counters.counting import added
from siafu.runtime.counters.epoch_counters import EpochCounters
from siafu.runtime.counters.server_activity import RunActivity
from siafu.runtime.happenings import EpochRecord, Happening, Outcome, Snapshot
from siafu.runtime.hosts.collection import Collection
from siafu.runtime.hosts.host import Host, Watch, unwatched
from siafu.runtime.hosts.states import States
from siafu.runtime.hosts.weight_host import HELD, STATE, WEIGHT
from siafu.runtime.letter import Letter, named
from siafu.runtime.post import Post
from siafu.runtime.requests import ActivityReported, Report, ReportWanted, TraceWanted


class ServerRecovery(Protocol):
    """Replaces servers that are lost."""

    @property
    def loss_counters(self) -> dict[str, Any]:
        """Losses, as the summary counts them."""

    def replace(self, server: Address) -> None:
        """Start a server in place of a lost one."""

    def rewound(self, recorded: Epoch, epochs: Epoch) -> None:
        """Of `recorded` epochs, those after `epochs` are void."""

    def resumed(self, recorded: Epoch) -> None:
        """A server is replaced within the open epoch, the one after `recorded` epochs: nothing is void."""

    def proceeding(self) -> None:
        """All servers go on."""

    def recorded(self) -> None:
        """An epoch has ended."""

    def saved(self) -> None:
        """There is a checkpoint."""

    def life(self, server: Address) -> int:
        """Number of the life of the server that is at this address now."""


class NoRecovery:
    """Recovery where no server can be lost: all live in this process."""

    loss_counters: dict[str, Any] = {}  # noqa: RUF012 (there are none)

    def replace(self, server: Address) -> None:
        raise AssertionError(f"{server} cannot be lost")

    def rewound(self, recorded: Epoch, epochs: Epoch) -> None: ...
    def resumed(self, recorded: Epoch) -> None: ...
    def proceeding(self) -> None: ...
    def recorded(self) -> None: ...
    def saved(self) -> None: ...
    def life(self, server: Address) -> int:
        return 1


class RunHost(Host):
    """The run's own host: it has no rows.

    over:     whether the run has ended
    recorded: number of epochs that are recorded
    servers:  the addresses of all others
    start:    the weights and the optimizer's state to start from; every later version's come as it is made, in exact runs
    happened: called with every epoch, every checkpoint, and last the outcome
    threads:  number of threads of all graph servers together
    activity: of threads that all servers share; None: each server reports its own
    traced:   whether records tell of every task of the graph servers
    recovery: replaces servers that are lost
    checkpoint_due: called after every epoch: whether to make a checkpoint
    """

    def __init__(
        self,
        machine: RunMachine,
        post: Post,
        servers: Iterable[Address],
        start: Snapshot,
        happened: Callable[[Happening], None],
        *,
        threads: int,
        activity: Activity | None = None,
        traced: bool = False,
        recovery: ServerRecovery | None = None,
        checkpoint_due: Callable[[], bool] = lambda: False,
        watch: Watch = unwatched,
    ) -> None:
        super().__init__(RUN, machine, post, watch)
        self.over = False
        self._run, self._servers, self._happened = machine, tuple(servers), happened
        self._recovery: ServerRecovery = recovery or NoRecovery()
        self._checkpoint_due, self._threads, self._traced = checkpoint_due, threads, traced
        self._states, self._saved_best = States(start), start.best
        self._held: dict[Epoch, Snapshot] = {}
        self._saved_counters, self._epoch_counters = dict[str, Any](), EpochCounters()
        self._counters_at_begin: dict[str, Any] = {}
        self._final_counters: dict[str, Any] = {}
        self._best: dict[str, Tensor] | None = None
        self._collection: Collection | None = None
        self._numbers = 0
        self._bills = Bills()
        self._activity = RunActivity(SPANS_KEPT if traced else 0, activity)
        self._busy: dict[str, float] = {}
        self.recorded = start.epochs
        self._stop_wanted = False

    def begin(self) -> None:
        """Set the run going."""
        self._marked = working_clock()
        with self.lock:
            lives = [(each, Life(self._recovery.life(each))) for each in self._servers]
            for instruction in self._run.begin(lives):
                self._watch(RUN, instruction)
                self._obey(instruction, Letter(CheckpointAsked()))
        self.post.flush()

    def counters(self) -> dict[str, Any]:
        """Counters of this session, as of the last checkpoint or the end."""
        return self._final_counters or self._saved_counters

    def stop_at_epoch(self) -> None:
        """End at an epoch's end, after a checkpoint. May be called from a signal's handler."""
        self._stop_wanted = True

    def stop_if_wanted(self) -> None:
        """Stop if `stop_at_epoch` was called, unless an epoch that ended since has done it."""
        if self._stop_wanted:
            self._stop_wanted = False
            self.deliver(StopAsked())

    def close_epoch(self, record: EpochRecord, stop: bool) -> None:
        """The owner has seen the record of an epoch; the next may begin, or the run ends."""
        self.deliver(EpochClosed(record.incarnation, record.epoch, stop))

    def forget_reports(self) -> None:
        """A server is lost: drop the reports that are being collected."""
        with self.lock:
            self._collection = None

    def _take(self, letter: Letter) -> None:
        match letter.event:
            case ActivityReported() as did:
                counted = self._activity.hear(did.sender, did.told, letter.tensors)
                if counted is not None:
                    epochs, counters = counted
                    self._note_bills(did.sender, counters)
                    self._epoch_counters.tell(Epoch(epochs), did.sender, counters)
            case BestKept():
                self._best = letter.owned()

    def _pass_on(self, letter: Letter) -> None:
        match letter.event:
            case Report() as report:
                self._take_report(report, letter)
            case ActivityReported():
                pass
            case Noted() as noted:
                self.deliver(noted, letter)
                with self.lock:
                    if self._run.is_whole:
                        self._recovery.proceeding()
            case event:
                self.deliver(event, letter)

    # What the machine says

    def _obey(self, what: Instruction, came: Letter) -> None:
        if self.over:
            return
        match what:
            case Send():
                self._send(what)
            case RecordEpoch():
                self._record(what)
            case KeepState():
                self._keep_state(what, came)
            case CloseEpochs():
                self._states.forget(what.version, what.held)
                self._epoch_counters.close(what.epochs)
            case KeepBest():
                self._best = self._states.weights(what.version)
            case HoldCheckpoint():
                self._hold(what)
            case SaveCheckpoint() if self._run.saves_aside:
                self._save_held(what.epochs)
            case SaveCheckpoint():
                self._collect(
                    what.version, lambda found: self._save_collected(what.epochs, found), last=False
                )
            case Rewind():
                self._rewind(what)
            case Replace():
                self._replace(what)
            case Stop():
                if what.version is None:
                    self._finish(Outcome(what, None))
                else:
                    self._collect(what.version, lambda found: self._end(what, found), last=True)
            case _:
                raise NotImplementedError(f"the run cannot {what}")

    def _send(self, send: Send) -> None:
        to, message, beside = send.to, send.message, {}
        # An evaluation may begin while a lost server's place is still being taken.
        if isinstance(message, Proceed | EvaluationStarted) and self._run.is_whole:
            self._recovery.proceeding()
        if isinstance(message, Begin) and to.role == "weight":
            version, again = message.start.version, message.evaluation
            beside = named(WEIGHT, self._states.weights(version)) | named(
                STATE, self._states.optimizer(version)
            )
            if again is not None and again.version != version:
                beside |= named(HELD, self._states.weights(again.version))
        elif isinstance(message, RunAhead):
            beside = named(WEIGHT, self._states.weights(message.version))
        self.send(to, message, beside)
        if isinstance(message, Begin) and to.role == "graph" and self._traced:
            self.send(to, TraceWanted())

    def _keep_state(self, what: KeepState, came: Letter) -> None:
        made = came.event
        assert isinstance(made, StateMade)
        self._states.keep(what.home, what.version, came)
        counters = {"weight_versions_peak": made.versions_peak, "gradients_applied": made.gradients}
        self._epoch_counters.tell(what.epochs, Address("weight", what.home), counters)

    def _record(self, what: RecordEpoch) -> None:
        now = working_clock()
        self._recovery.proceeding()
        self.recorded = Epoch(what.epoch + 1)
        self._recovery.recorded()
        activity = self._activity.take(what.epoch)
        spent: dict[str, float] = {}
        for taken in activity.threads:
            add_seconds(spent, taken.busy_seconds)
        add_seconds(self._busy, spent)
        evaluating = sum(each for kind, each in spent.items() if kind.startswith("evaluate")) / self._threads
        seconds = now - self._marked - evaluating
        busy = dict(self._busy)
        self._happened(
            EpochRecord(
                what.epoch,
                what.training,
                what.evaluation,
                seconds,
                evaluating,
                busy,
                activity,
                self.incarnation,
            )
        )
        self._marked = now
        if self._stop_wanted:
            self.stop_if_wanted()
        elif self._checkpoint_due():
            self.deliver(CheckpointAsked())

    def _replace(self, what: Replace) -> None:
        if what.within:
            self._recovery.resumed(self.recorded)
            lost = self._epoch_counters.lose(what.server)
            self._counters_at_begin = added(self._counters_at_begin, lost)
        self._recovery.replace(what.server)

    def _rewind(self, what: Rewind) -> None:
        self._recovery.rewound(self.recorded, what.epochs)
        self.recorded = what.epochs
        counted = self._epoch_counters.begin_again()
        if not what.to_checkpoint:
            self._counters_at_begin = added(self._counters_at_begin, counted)
            return
        self._activity.forget()
        self._counters_at_begin = dict(self._saved_counters)
        self._best = None if self._saved_best is None else dict(self._saved_best)

    def mark(self) -> None:
        """The next epoch's time counts from now."""
        self._marked = working_clock()

    def _own_waiting(self) -> list[str]:
        wanted = self._collection
        if wanted is None:
            return []
        missing = sorted(str(each) for each in self._servers if each not in wanted.answered)
        return [f"run: waits for what these have counted: {', '.join(missing)}"]

    # Checkpoints

    def _collect(self, version: Version, then: Callable[[Collection], None], *, last: bool) -> None:
        """Ask all servers for their counters, and weight servers for a version; `then` gets all reports together."""
        self._recovery.proceeding()
        self._numbers += 1
        self._collection = Collection(self._numbers, version, then)
        wanted = ReportWanted(self._numbers, version, last)
        for address in self._servers:
            self.send(address, wanted)

    def _take_report(self, report: Report, letter: Letter) -> None:
        with self.lock:
            wanted = self._collection
            if wanted is None or report.number != wanted.number or report.sender in wanted.answered:
                return
            counters = json.loads(report.counters)
            self._note_bills(report.sender, counters)
            wanted.take(report.sender, counters, letter)
            if wanted.answered == set(self._servers):
                self._collection = None
                wanted.then(wanted)

    def _note_bills(self, sender: Address, counters: dict[str, Any]) -> None:
        """Take what a server says of its Lambdas out of its counters."""
        if (usage := counters.pop("lambda", None)) is not None:
            self._bills.note(sender, self._recovery.life(sender), usage)

    def _hold(self, what: HoldCheckpoint) -> None:
        counters = added(self._counters_at_begin, self._epoch_counters.total())
        weights, state = self._states.weights(what.version), self._states.optimizer(what.version)
        self._held[what.epochs] = Snapshot(what.epochs, what.version, weights, state, counters)

    def _save_held(self, epochs: Epoch) -> None:
        self._save(self._complete(self._held.pop(epochs)))

    def _save_collected(self, epochs: Epoch, found: Collection) -> None:
        saved = self._collected(epochs, found)
        if not self._run.setup.closes:
            self._states = States(saved)
        self._save(saved)
        self.deliver(CheckpointSaved(epochs))

    def _save(self, saved: Snapshot) -> None:
        self._saved_best, self._saved_counters = saved.best, dict(saved.counters)
        self._happened(saved)
        self._recovery.saved()

    def _collected(self, epochs: Epoch, found: Collection) -> Snapshot:
        counters = added(self._counters_at_begin, found.counters)
        return self._complete(Snapshot(epochs, found.version, found.weights, found.optimizer, counters))

    def _complete(self, found: Snapshot) -> Snapshot:
        """With the best model, losses and bills as of now, when all of these epochs are recorded."""
        counters = {**found.counters, **self._recovery.loss_counters, **self._bills.counters()}
        return replace(found, counters=counters, best=self._best)

    def _end(self, stop: Stop, found: Collection) -> None:
        last = self._collected(stop.epochs, found)
        self._final_counters = dict(last.counters)
        self._finish(Outcome(stop, last))

    def _finish(self, outcome: Outcome) -> None:
        self.over = True
        self._happened(outcome)
