"""RunMachine: how far a run may go, when it is evaluated and saved, and when it ends."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from siafu.objective.score import Score
from siafu.pipeline.closing import Closing
from siafu.pipeline.events import (
    Begin,
    BestKept,
    CheckpointAsked,
    CheckpointSaved,
    EpochClosed,
    EpochFinished,
    EvaluationStarted,
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
    WeightsAsked,
    WeightsGranted,
    WeightsReleased,
)
from siafu.pipeline.ids import RUN, Address, Anchor, Epoch, Incarnation, ServerId, Version
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
from siafu.pipeline.records import Best, Evaluation, Records, diverged
from siafu.pipeline.run_options import RunOptions
from siafu.pipeline.setup import Setup

_START = Anchor(Epoch(0), Version(0))


@dataclass(frozen=True, slots=True)
class _Saved:
    """A checkpoint to start again from."""

    anchor: Anchor
    exact: bool
    best: Best | None


@dataclass(frozen=True, slots=True)
class _Running:
    """The evaluation that is under way; no version: it waits for one."""

    epoch: Epoch
    weights: ServerId
    version: Version | None


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
        self.incarnation = Incarnation(-1)
        self.duplicates = 0
        self.outdated = 0
        self._score, self._rates = score, rates
        self._servers = setup.graph_addresses + setup.weight_addresses
        self._saved = _Saved(start, setup.exact or exact, best)
        self._closing = Closing(setup.parts, start) if setup.exact else None
        self._stop_asked = False
        self._stand_still_at: Epoch | None = None
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

    def begin(self) -> list[Instruction]:
        """The run's first instructions."""
        out: list[Instruction] = []
        self._begin_again(out)
        return out

    def handle(self, event: Event) -> list[Instruction]:
        out: list[Instruction] = []
        if self.ended and not (isinstance(event, ServerGone) and self._may_begin_again):
            return out
        if isinstance(event, ServerGone):
            self.ended = False
            self._lose(event, out)
        elif isinstance(event, CheckpointAsked | StopAsked):
            self._stop_asked |= isinstance(event, StopAsked)
            self._checkpoint_asked = True
            self._stand_still_at = self._until
        elif event.incarnation != self.incarnation and not self._is_of_record(event):
            self.outdated += 1
            return out
        else:
            self._handlers[type(event)](event, out)
        if not self._unready and not self.ended:
            self._go_on(out)
        return out

    def waiting(self) -> list[str]:
        """Pending work and its causes, in words; epochs are counted from 1."""
        records, running = self._records, self._evaluation
        evaluation = (
            "none" if running is None else f"after epoch {running.epoch + 1}, version {running.version}"
        )
        return [
            f"run: {records.trained} epochs trained, {records.recorded} recorded, until {self._until}, "
            f"evaluation {evaluation}, limit {self._state} at {self._hard_limit()}, "
            f"not ready {sorted(map(str, self._unready))}, unsettled {sorted(self._unsettled)}"
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
        assert bool(self._unsettled) == (self._state == "settling"), f"{self._state}: {self._unsettled}"
        assert self._state == "going" or records.trained == self._until, f"{self._state} while training"
        running, best = self._evaluation, records.best
        early = running is not None and not records.recorded <= running.epoch < records.trained
        assert not early, f"{running}, {records.recorded} recorded, {records.trained} trained"
        kept = self._best_on_its_way
        assert kept is None or (best is not None and best.epoch == kept), f"best {best}, kept {kept}"
        assert self._seen <= records.recorded, f"{self._seen} seen, {records.recorded} recorded"

    # Beginning

    def _begin_again(self, out: list[Instruction]) -> None:
        self.incarnation = Incarnation(self.incarnation + 1)
        self._reset()
        exact, again = self._exact is not None, self._evaluation_started()
        begin = Begin(self.incarnation, self._base, exact, again)
        out.extend(Send(to, begin) for to in self._servers)

    def _lose(self, event: ServerGone, out: list[Instruction]) -> None:
        """A server is lost: begin again where epochs are closed, or at the last checkpoint."""
        if self._closing is None:
            self._begin_records()
        else:
            self._closing.begin_again()
            self._records.forget_open()
        out += [Rewind(self._records.recorded, self._closing is None), Replace(event.server)]
        self._begin_again(out)

    def _begin_records(self) -> None:
        """Know nothing but what the last checkpoint has."""
        self._records = Records(self._saved.anchor.epoch, self.setup.layout.num_servers, self._score)
        self._records.best = self._saved.best
        self._seen = self._saved.anchor.epoch
        self._evaluation: _Running | None = None
        self._told_to_stop = self._checkpoint_asked = False

    def _reset(self) -> None:
        self._base = self._saved.anchor if self._closing is None else self._closing.anchor
        self._exact = self._base if self._saved.exact else None
        self._until = self._base.epoch
        if self._evaluation is not None and self._evaluation.version is None:
            self._evaluation = None  # its version will be asked for again
        self._state: Literal["going", "settling", "settled", "saving"] = "going"
        asked = self._stop_asked or self._told_to_stop or self._checkpoint_asked
        self._stand_still_at = self._base.epoch if asked else None
        self._switching = False
        self._best_on_its_way: Epoch | None = None
        self._settle: Settle | None = None
        self._unsettled: set[ServerId] = set()
        # No one may hear from a server that began before itself did: it would take that for a void event.
        self._unready = set(self._servers)

    def _ready(self, event: Ready, out: list[Instruction]) -> None:
        if event.sender not in self._unready:
            self.duplicates += 1
            return
        self._unready.remove(event.sender)
        if not self._unready and (again := self._evaluation_started()) is not None:
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
        running = self._evaluation
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
            self._hard_limit(),
            self._evaluation_limit(),
            self._records.trained + (1 if self._closing is not None else self.setup.staleness + 2),
        ]
        if self.options.closes:
            limits.append(self._seen + (1 if self._exact is not None else self.setup.staleness + 2))
        until = Epoch(min(limits))
        if until <= self._until or self._state != "going":
            return
        self._send_rates(self._until, until, out)
        self._until = until
        message = Proceed(self.incarnation, until, self._exact)
        out.extend(Send(to, message) for to in self.setup.graph_addresses)

    def _send_rates(self, first: Epoch, until: Epoch, out: list[Instruction]) -> None:
        """Tell the weight servers the rates of epochs that intervals may enter from now on."""
        if self._rates is None:
            return
        anchor = self._exact or self._base
        for epoch in map(Epoch, range(first, until)):
            version = Version(anchor.version_of(epoch) + 1)
            message = RatesSet(self.incarnation, version, self._rates(epoch))
            out.extend(Send(Address("weight", home), message) for home in sorted(self.setup.parts))

    def _is_of_record(self, event: Event) -> bool:
        """Whether an event is of an epoch's record, which holds in every incarnation: none is taken back."""
        return isinstance(event, EpochClosed) and self._closing is not None

    def _epoch_closed(self, event: EpochClosed, out: list[Instruction]) -> None:
        if event.epoch != self._seen or event.epoch >= self._records.recorded:
            self.duplicates += 1
            return
        self._seen = Epoch(event.epoch + 1)
        if event.stop:
            self._told_to_stop = True
            self._stand_still_at = self._until

    def _evaluation_limit(self) -> int:
        """How far training may go before the next evaluation begins."""
        following = self._next_evaluation()
        if self._exact is None:
            return following + 1 + self.setup.staleness
        return following + 1

    def _next_evaluation(self) -> Epoch:
        epoch = self.options.next_evaluated(self._records.recorded)
        while self._has_begun(epoch):
            epoch = self.options.next_evaluated(Epoch(epoch + 1))
        return epoch

    def _has_begun(self, epoch: Epoch) -> bool:
        """Whether training may go on past an evaluation; where both use the same tables, once it is over."""
        running = self._evaluation
        if running is not None and running.epoch == epoch and not self.setup.alternate:
            # Without a version it has not: later epochs could replace the one that it must have.
            return running.version is not None or self._exact is None
        return self._records.is_evaluated(epoch)

    # Limits where everything stands still

    def _hard_limit(self) -> int:
        limits = [self.options.epochs]
        every = self.options.checkpoint_every
        if every is not None:
            limits.append((self._saved.anchor.epoch // every + 1) * every)
        if self.options.patience is not None:
            limits.append(self._patience_ends())
        if self._stand_still_at is not None:
            limits.append(self._stand_still_at)
        return min(limits)

    def _patience_ends(self) -> int:
        """When the run stops unless a better model comes. The first that is evaluated is the best until then."""
        best = self._records.best
        epoch = best.epoch if best is not None else self.options.next_evaluated(self._records.recorded)
        return epoch + 1 + (self.options.patience or 0)

    def _stand_at_limit(self, out: list[Instruction]) -> None:
        here = self._records.trained
        if self._state == "going" and here == self._until and here >= self._hard_limit():
            self._begin_settling(here, out)
        # What is saved or left behind here has the best model with it.
        complete = self._records.recorded == here and self._best_on_its_way is None
        if self.options.closes:
            complete = complete and self._seen == here
        if self._state == "settled" and complete:
            self._leave_limit(here, out)

    def _begin_settling(self, here: Epoch, out: list[Instruction]) -> None:
        if self._base.epoch == here and not self._switching:
            self._state = "settled"
            return
        self._state = "settling"
        self._unsettled = {each.index for each in self.setup.weight_addresses}
        self._base = Anchor(here, self._version_at(here))
        exact = self._exact is not None or self._switching
        self._settle = Settle(self.incarnation, self._base, exact)
        out.extend(Send(to, self._settle) for to in self.setup.weight_addresses)

    def _version_at(self, epoch: Epoch) -> Version:
        if self._exact is not None:
            return self._exact.version_of(epoch)
        gradients = (epoch - self._base.epoch) * self.setup.layout.num_intervals
        return Version(self._base.version - (-gradients // self.setup.gradients_an_update))

    def _settled(self, event: Settled, out: list[Instruction]) -> None:
        if event.settle != self._settle or event.server not in self._unsettled:
            self.duplicates += 1
            return
        self._unsettled.remove(event.server)
        if not self._unsettled and self._state == "settling":
            self._state = "settled"
            if event.settle.exact:
                self._exact = self._base
                self._switching = False

    def _leave_limit(self, here: Epoch, out: list[Instruction]) -> None:
        reason = self._reason_to_stop(here)
        if reason in ("finished", "patience", "told"):
            self._stop(reason, out)
        elif self._switching:
            self._begin_settling(here, out)
        elif self._wants_checkpoint(here):
            self._state = "saving"
            out.append(SaveCheckpoint(here, self._base.version))
        elif reason is not None:
            self._stop(reason, out)
        else:
            self._stand_still_at = None
            self._checkpoint_asked = False
            self._state = "going"

    def _reason_to_stop(self, here: Epoch) -> StopReason | None:
        if here >= self.options.epochs:
            return "finished"
        if self.options.patience is not None and here >= self._patience_ends():
            return "patience"
        if self._told_to_stop:
            return "told"
        return "asked" if self._stop_asked else None

    def _wants_checkpoint(self, here: Epoch) -> bool:
        every = self.options.checkpoint_every
        asked = self._checkpoint_asked or (every is not None and here % every == 0)
        return asked and self._saved.anchor.epoch != here

    def _checkpoint_saved(self, event: CheckpointSaved, out: list[Instruction]) -> None:
        if self._state != "saving" or event.epochs != self._base.epoch:
            self.duplicates += 1
            return
        self._saved = _Saved(self._base, self._exact is not None, self._records.best)
        self._state = "settled"

    # Evaluation

    def _start_evaluation(self, out: list[Instruction]) -> None:
        """Ask for the weights of the next evaluation, when it is due and no other is under way.

        The best model must be kept by then: another weight server may keep the next, and the earlier come later.
        """
        if self._evaluation is not None or self._best_on_its_way is not None:
            return
        epoch = self._next_evaluation()
        if epoch >= self._records.trained or self._state == "settling":
            return
        weights = ServerId(epoch % self.setup.weight_servers)
        self._evaluation = _Running(epoch, weights, None)
        version = self._version_to_evaluate(epoch)
        oldest = self._oldest_to_evaluate(epoch) if version is None else None
        asked = WeightsAsked(self.incarnation, RUN, None, epoch, version, oldest)
        out.append(Send(Address("weight", weights), asked))

    def _version_to_evaluate(self, epoch: Epoch) -> Version | None:
        if self._exact is not None and epoch + 1 >= self._exact.epoch:
            return self._exact.version_of(Epoch(epoch + 1))
        return self._base.version if self._base.epoch == epoch + 1 else None

    def _oldest_to_evaluate(self, epoch: Epoch) -> Version:
        """The version that has the epoch's gradients, all of which have come."""
        gradients = max(0, epoch + 1 - self._base.epoch) * self.setup.layout.num_intervals
        return Version(self._base.version + gradients // self.setup.gradients_an_update)

    def _weights_granted(self, event: WeightsGranted, out: list[Instruction]) -> None:
        running = self._evaluation
        if running is None or running.version is not None or event.epoch != running.epoch:
            self.duplicates += 1
            return
        self._evaluation = _Running(event.epoch, event.server, event.version)
        started = self._evaluation_started()
        assert started is not None
        out.extend(Send(to, started) for to in self.setup.graph_addresses)

    def _evaluation_started(self) -> EvaluationStarted | None:
        """The evaluation that is under way and has its version."""
        running = self._evaluation
        if running is None or running.version is None:
            return None
        return EvaluationStarted(self.incarnation, running.epoch, running.version, running.weights)

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
        running = self._evaluation
        if running is None or running.version is None or running.epoch != epoch:
            self.duplicates += 1
            return
        best = self._records.add_evaluation(epoch, Evaluation(running.version, measures))
        asked = best and self._closing is None
        if asked:
            self._best_on_its_way = epoch
        elif best:
            out.append(KeepBest(epoch, running.version))
        released = WeightsReleased(self.incarnation, None, epoch, asked)
        out.append(Send(Address("weight", running.weights), released))
        self._evaluation = None
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
            self._stand_still_at = self._until

    def _stop(self, reason: StopReason, out: list[Instruction]) -> None:
        self.ended = True
        self._may_begin_again = reason != "diverged"
        version = None if reason == "diverged" else self._base.version
        best = self._records.best
        out.append(Stop(reason, self._records.recorded, version, best.epoch if best is not None else None))
