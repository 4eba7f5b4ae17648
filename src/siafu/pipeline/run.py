"""RunMachine: how far a run may go, when it is evaluated and saved, and when it ends."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from siafu.objective.score import Score
from siafu.pipeline.closing import Closing
from siafu.pipeline.evaluations import Evaluations
from siafu.pipeline.events import (
    Begin,
    BestKept,
    CheckpointAsked,
    CheckpointSaved,
    EpochClosed,
    EpochFinished,
    Event,
    Measures,
    Proceed,
    RatesSet,
    Ready,
    ServerGone,
    Settle,
    Settled,
    StateMade,
    StopAsked,
    WeightsGranted,
    WeightsReleased,
)
from siafu.pipeline.ids import RUN, Address, Anchor, Epoch, Incarnation, Life, Version
from siafu.pipeline.instructions import (
    CloseEpochs,
    Instruction,
    KeepBest,
    KeepState,
    RecordEpoch,
    Replace,
    Rewind,
    SaveCheckpoint,
    Send,
    Stop,
    StopReason,
)
from siafu.pipeline.limits import Limits
from siafu.pipeline.records import Best, Evaluation, Records, diverged
from siafu.pipeline.run_options import RunOptions
from siafu.pipeline.setup import Setup
from siafu.pipeline.stamp import Fences
from siafu.pipeline.standing import Standing

_START = Anchor(Epoch(0), Version(0))


@dataclass(frozen=True, slots=True)
class _Saved:
    """A checkpoint to start again from."""

    anchor: Anchor
    exact: bool
    best: Best | None


class RunMachine:
    """The run's part: epochs, evaluations, the best model, checkpoints, the end, and a new start after a loss.

    Training never waits for the run but at a *limit*: a point that no interval may pass before something is done there.
    At a hard limit (a checkpoint, the end, patience, the switch to exact epochs) all intervals stand still and the
    weights settle. An evaluation limits too: in exact epochs its version must be held before the next ones replace it.

    In an exact run every epoch's end is a limit, which costs one hop: nobody enters an epoch before the one before is
    *closed*: all its measures, and the weights and optimizer's state that it made, are at the run. So a loss costs the
    open epoch, and no record is taken back. An asynchronous run begins again at its last checkpoint.
    """

    def __init__(
        self,
        setup: Setup,
        options: RunOptions,
        score: Callable[[Measures], Score],
        *,
        start: Anchor = _START,
        best: Best | None = None,
        exact: bool = False,
        rates: Callable[[Epoch], tuple[float, ...]] | None = None,
    ) -> None:
        """
        score: what an evaluation's measures say
        rates: of an epoch's update, once the one before is closed; None: those of the settings
        start: after so many epochs, with that version; that first epoch is exact
        best:  of the epochs before; exact: an asynchronous run had come to exact epochs by then
        """
        self.setup = setup
        self.options = options
        self.ended = False
        # A server that is lost before its last version was fetched takes the end back.
        self._may_begin_again = True
        self.fences = Fences(RUN)
        self.duplicates = 0
        self._score, self._rates = score, rates
        self._servers = setup.graph_addresses + setup.weight_addresses
        self._saved = _Saved(start, setup.exact or exact, best)
        self._closing = Closing(setup.parts, start) if setup.exact else None
        self._limits = Limits(options, start.epoch)
        self._evaluations = Evaluations(setup, options)
        self._handlers: dict[type[Event], Callable[[Any, list[Instruction]], None]] = {
            Ready: self._ready,
            EpochFinished: self._epoch_finished,
            WeightsGranted: self._weights_granted,
            BestKept: self._best_kept,
            Settled: self._settled,
            CheckpointSaved: self._checkpoint_saved,
            EpochClosed: self._epoch_closed,
            StateMade: self._state_made,
        }
        self._begin_records()
        self._reset()

    def begin(self, lives: Iterable[tuple[Address, Life]] = ()) -> list[Instruction]:
        """The run's first instructions.

        lives: of servers that were replaced before the run began
        """
        out: list[Instruction] = []
        for server, life in lives:
            self.fences.raise_to(server, life)
        self._begin_again(out)
        return out

    def handle(self, event: Event) -> list[Instruction]:
        out: list[Instruction] = []
        if self.ended and not (isinstance(event, ServerGone) and self._may_begin_again):
            return out
        if isinstance(event, ServerGone):
            if event.life != self.fences.life(event.server):
                self.duplicates += 1
                return out
            self.ended = False
            self._lose(event, out)
        elif isinstance(event, CheckpointAsked | StopAsked):
            self._limits.ask(self._until, stop=isinstance(event, StopAsked))
        else:
            self._handlers[type(event)](event, out)
        if not self._unready and not self.ended:
            self._go_on(out)
        return out

    def waiting(self) -> list[str]:
        """Pending work and its causes, in words; epochs are counted from 1."""
        records, running = self._records, self._evaluations.running
        evaluation = (
            "none" if running is None else f"after epoch {running.epoch + 1}, version {running.version}"
        )
        return [
            f"run: {records.trained} epochs trained, {records.recorded} recorded, until {self._until}, "
            f"evaluation {evaluation}, limit {self._standing.state} at {self._limits.next(records)}, "
            f"not ready {sorted(map(str, self._unready))}, unsettled {sorted(self._standing.unsettled)}"
        ]

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself. Tests call it after every event."""
        records = self._records
        records.validate()
        assert self._saved.anchor.epoch <= records.recorded, (
            f"saved {self._saved}, {records.recorded} recorded"
        )
        if self._closing is not None:
            self._closing.validate()
            assert self._closing.anchor.epoch == records.trained, (
                f"{self._closing.anchor}, {records.trained} trained"
            )
        assert records.trained <= self._until, f"{records.trained} trained, until {self._until}"
        assert self._base.epoch <= records.trained, f"based on {self._base}, {records.trained} trained"
        assert self._unready <= set(self._servers), f"{self._unready} are none of its servers"
        assert not self._unready or self._until == self._base.epoch, f"goes on without {self._unready}"
        assert bool(self._standing.unsettled) == (self._standing.state == "settling"), (
            f"{self._standing.state}: {self._standing.unsettled}"
        )
        assert self._standing.state == "going" or records.trained == self._until, (
            f"{self._standing.state} while training"
        )
        running, best = self._evaluations.running, records.best
        early = running is not None and not records.recorded <= running.epoch < records.trained
        assert not early, f"{running}, {records.recorded} recorded, {records.trained} trained"
        kept = self._best_on_its_way
        assert kept is None or (best is not None and best.epoch == kept), f"best {best}, kept {kept}"
        assert self._seen <= records.recorded, f"{self._seen} seen, {records.recorded} recorded"

    # Beginning

    def _begin_again(self, out: list[Instruction]) -> None:
        self.fences.begin(Incarnation(self.fences.incarnation + 1), self.fences.lives)
        self._reset()
        exact, again = self._exact is not None, self._evaluations.started()
        begin = Begin(self.fences.incarnation, self._base, exact, again, self.fences.lives)
        out.extend(Send(to, begin) for to in self._servers)

    def _lose(self, event: ServerGone, out: list[Instruction]) -> None:
        """A server is lost: begin again where epochs are closed, or at the last checkpoint."""
        life = Life(event.life + 1)
        self.fences.raise_to(event.server, life)
        if self._closing is None:
            self._begin_records()
        else:
            self._closing.begin_again()
            self._records.forget_open()
        out += [Rewind(self._records.recorded, self._closing is None), Replace(event.server, life)]
        self._begin_again(out)

    def _begin_records(self) -> None:
        """Know nothing but what the last checkpoint has."""
        self._records = Records(self._saved.anchor.epoch, self.setup.layout.num_servers, self._score)
        self._records.best = self._saved.best
        self._seen = self._saved.anchor.epoch
        self._evaluations.running = None
        self._limits.forget()

    def _reset(self) -> None:
        self._base = self._saved.anchor if self._closing is None else self._closing.anchor
        self._exact = self._base if self._saved.exact else None
        self._until = self._base.epoch
        self._evaluations.forget_asked()
        self._standing = Standing()
        self._limits.begin_again(self._base.epoch)
        self._switching = False
        self._best_on_its_way: Epoch | None = None
        # No one may hear from a server that began before itself did: it would take that for a void event.
        self._unready = set(self._servers)

    def _ready(self, event: Ready, out: list[Instruction]) -> None:
        if event.sender not in self._unready:
            self.duplicates += 1
            return
        self._unready.remove(event.sender)
        if not self._unready and (again := self._evaluations.started()) is not None:
            out.extend(Send(to, again) for to in self.setup.graph_addresses)

    # Going on

    def _go_on(self, out: list[Instruction]) -> None:
        self._close(out)
        self._record(out)
        self._stand_at_limit(out)
        if self.ended:
            return
        self._start_evaluation(out)
        self._proceed(out)

    def _record(self, out: list[Instruction]) -> None:
        epoch = self._records.recorded
        while (found := self._records.next_record(self.options.is_evaluated(epoch))) is not None:
            training, evaluation = found
            measures, version = (evaluation.measures, evaluation.version) if evaluation else (None, None)
            out.append(RecordEpoch(epoch, training, measures, version))
            epoch = self._records.recorded

    def _close(self, out: list[Instruction]) -> None:
        """Close the open epoch if all have finished it, and what it made is here."""
        closing = self._closing
        if closing is None or not closing.is_complete or not self._records.close():
            return
        closing.close()
        running = self._evaluations.running
        out.append(
            CloseEpochs(
                closing.anchor.epoch, closing.anchor.version, None if running is None else running.version
            )
        )

    def _state_made(self, event: StateMade, out: list[Instruction]) -> None:
        if self._closing is None or not self._closing.take(event.home, event.version):
            self.duplicates += 1
            return
        out.append(KeepState(event.home, event.version, self._closing.epochs(event.version)))

    def _proceed(self, out: list[Instruction]) -> None:
        limits = [
            self._limits.next(self._records),
            self._evaluations.limit(self._records, self._exact),
            self._records.trained + (1 if self._closing is not None else self.setup.staleness + 2),
        ]
        if self.options.closes:
            limits.append(self._seen + (1 if self._exact is not None else self.setup.staleness + 2))
        until = Epoch(min(limits))
        if until <= self._until or self._standing.state != "going":
            return
        self._send_rates(self._until, until, out)
        self._until = until
        message = Proceed(until, self._exact)
        out.extend(Send(to, message) for to in self.setup.graph_addresses)

    def _send_rates(self, first: Epoch, until: Epoch, out: list[Instruction]) -> None:
        """Tell the weight servers the rates of epochs that intervals may enter from now on."""
        if self._rates is None:
            return
        anchor = self._exact or self._base
        for epoch in map(Epoch, range(first, until)):
            version = Version(anchor.version_of(epoch) + 1)
            message = RatesSet(version, self._rates(epoch))
            out.extend(Send(Address("weight", home), message) for home in sorted(self.setup.parts))

    def _is_void(self, event: EpochClosed) -> bool:
        """Whether a record was taken back after it was made. Of closed epochs none is."""
        return event.incarnation != self.fences.incarnation and self._closing is None

    def _epoch_closed(self, event: EpochClosed, out: list[Instruction]) -> None:
        if self._is_void(event) or event.epoch != self._seen or event.epoch >= self._records.recorded:
            self.duplicates += 1
            return
        self._seen = Epoch(event.epoch + 1)
        if event.stop:
            self._limits.tell_to_stop(self._until)

    # Limits where everything stands still

    def _stand_at_limit(self, out: list[Instruction]) -> None:
        here = self._records.trained
        if (
            self._standing.state == "going"
            and here == self._until
            and here >= self._limits.next(self._records)
        ):
            self._begin_settling(here, out)
        # What is saved or left behind here has the best model with it.
        complete = self._records.recorded == here and self._best_on_its_way is None
        if self.options.closes:
            complete = complete and self._seen == here
        if self._standing.state == "settled" and complete:
            self._leave_limit(here, out)

    def _begin_settling(self, here: Epoch, out: list[Instruction]) -> None:
        if self._base.epoch == here and not self._switching:
            self._standing.state = "settled"
            return
        self._base = Anchor(here, self._version_at(here))
        exact = self._exact is not None or self._switching
        settle = Settle(self._base, exact)
        self._standing.begin(settle, (each.index for each in self.setup.weight_addresses))
        out.extend(Send(to, settle) for to in self.setup.weight_addresses)

    def _version_at(self, epoch: Epoch) -> Version:
        if self._exact is not None:
            return self._exact.version_of(epoch)
        gradients = (epoch - self._base.epoch) * self.setup.layout.num_intervals
        return Version(self._base.version - (-gradients // self.setup.gradients_an_update))

    def _settled(self, event: Settled, out: list[Instruction]) -> None:
        if not self._standing.take(event):
            self.duplicates += 1
            return
        if not self._standing.unsettled and self._standing.state == "settling":
            self._standing.state = "settled"
            if event.settle.exact:
                self._exact = self._base
                self._switching = False

    def _leave_limit(self, here: Epoch, out: list[Instruction]) -> None:
        reason = self._limits.reason_to_stop(here, self._records)
        if reason in ("finished", "patience", "told"):
            self._stop(reason, out)
        elif self._switching:
            self._begin_settling(here, out)
        elif self._limits.wants_checkpoint(here):
            self._standing.state = "saving"
            out.append(SaveCheckpoint(here, self._base.version))
        elif reason is not None:
            self._stop(reason, out)
        else:
            self._limits.leave()
            self._standing.state = "going"

    def _checkpoint_saved(self, event: CheckpointSaved, out: list[Instruction]) -> None:
        if self._standing.state != "saving" or event.epochs != self._base.epoch:
            self.duplicates += 1
            return
        self._saved = _Saved(self._base, self._exact is not None, self._records.best)
        self._limits.saved = self._base.epoch
        self._standing.state = "settled"

    # Evaluation

    def _start_evaluation(self, out: list[Instruction]) -> None:
        """Ask for the weights of the next evaluation, when it is due and no other is under way.

        The best model must be kept by then: another weight server may keep the next, and the earlier come later.
        """
        if self._evaluations.running is not None or self._best_on_its_way is not None:
            return
        epoch = self._evaluations.next(self._records, self._exact)
        if epoch < self._records.trained and self._standing.state != "settling":
            out.append(self._evaluations.ask(epoch, self._base, self._exact))

    def _weights_granted(self, event: WeightsGranted, out: list[Instruction]) -> None:
        if not self._evaluations.grant(event):
            self.duplicates += 1
            return
        started = self._evaluations.started()
        assert started is not None
        out.extend(Send(to, started) for to in self.setup.graph_addresses)

    def _epoch_finished(self, event: EpochFinished, out: list[Instruction]) -> None:
        if self._records.has(event.lane, event.server, event.epoch):
            self.duplicates += 1
            return
        measures = self._records.take(event.lane, event.server, event.epoch, event.measures)
        if measures is None:
            return
        if diverged(measures):
            self._stop("diverged", out)
        elif event.lane == "evaluate":
            self._evaluated(event.epoch, measures, out)
        elif self._closing is not None:
            self._records.finish(event.epoch, measures)
        else:
            self._records.add_training(event.epoch, measures)

    def _evaluated(self, epoch: Epoch, measures: Measures, out: list[Instruction]) -> None:
        running = self._evaluations.end(epoch)
        if running is None or running.version is None:
            self.duplicates += 1
            return
        best = self._records.add_evaluation(epoch, Evaluation(running.version, measures))
        asked = best and self._closing is None
        if asked:
            self._best_on_its_way = epoch
        elif best:
            out.append(KeepBest(epoch, running.version))
        released = WeightsReleased(None, epoch, asked)
        out.append(Send(Address("weight", running.weights), released))
        self._consider_switch(self._records.score(measures))

    def _best_kept(self, event: BestKept, out: list[Instruction]) -> None:
        if event.epoch == self._best_on_its_way:
            self._best_on_its_way = None
        else:
            self.duplicates += 1

    def _consider_switch(self, score: Score) -> None:
        above = self.options.exact_above
        if self._exact is not None or self._switching or above is None:
            return
        if score.reaches(above):
            self._switching = True
            self._limits.stand_still(self._until)

    def _stop(self, reason: StopReason, out: list[Instruction]) -> None:
        self.ended = True
        self._may_begin_again = reason != "diverged"
        version = None if reason == "diverged" else self._base.version
        best = self._records.best
        out.append(Stop(reason, self._records.recorded, version, best.epoch if best is not None else None))
