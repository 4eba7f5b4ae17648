"""RunMachine: how far a run may go, when it is evaluated and saved, and when it ends."""

from collections.abc import Callable, Iterable
from typing import Any

from siafu.objective.score import Score
from siafu.pipeline.events import (
    BestKept,
    CheckpointAsked,
    CheckpointSaved,
    Closed,
    CopyGone,
    CopyMade,
    EpochClosed,
    EpochFinished,
    Event,
    HandOverAsked,
    Measures,
    Noted,
    Ready,
    ServerGone,
    Settle,
    Settled,
    StateMade,
    StopAsked,
    WeightsGranted,
    WeightsReleased,
)
from siafu.pipeline.ids import Address, Anchor, Epoch, Life, Version
from siafu.pipeline.instructions import (
    CloseEpochs,
    HoldCheckpoint,
    Instruction,
    KeepBest,
    KeepState,
    RecordEpoch,
    SaveCheckpoint,
    Send,
    Stop,
    StopReason,
)
from siafu.pipeline.run_machine.closing import Closing
from siafu.pipeline.run_machine.records import Evaluation, diverged
from siafu.pipeline.run_machine.run_basis import SavedRun
from siafu.pipeline.run_machine.run_losses import RunLosses
from siafu.pipeline.run_machine.run_options import RunOptions
from siafu.pipeline.setup import Setup


class RunMachine(RunLosses):
    """The run's part: epochs, evaluations, the best model, checkpoints, the end, and a new start after a loss.

    Training never waits for the run but at a *limit*: a point that no interval may pass before something is done there.
    At a hard limit (the end, patience, the switch to exact epochs, an asynchronous run's checkpoint) all intervals stand
    still and the weights settle. An evaluation limits too: in exact epochs its version must be held before the next ones
    replace it.

    An epoch is *closed* when all its measures, and the weights and optimizer's state that it made, are at the run: no loss
    takes its record back. In an exact run nobody enters an epoch before the one before is closed, which costs one hop; a
    loss then costs the lost server's tasks of the open epoch. A checkpoint is what the run has of a closed epoch, once
    that is recorded: nobody waits for it.

    Asynchronous epochs overlap, and several are open: after a loss all begin these again. Where versions are not of one
    epoch each (`update_every`), no epoch closes, and all begin again at the last checkpoint.
    """

    def __init__(
        self, setup: Setup, options: RunOptions, score: Callable[[Measures], Score], **more: Any
    ) -> None:
        """more: as `RunBasis` has it"""
        super().__init__(setup, options, score, **more)
        self._handlers: dict[type[Event], Callable[[Any, list[Instruction]], None]] = {
            Ready: self._ready,
            EpochFinished: self._epoch_finished,
            WeightsGranted: self._weights_granted,
            BestKept: self._best_kept,
            Settled: self._settled,
            CheckpointSaved: self._checkpoint_saved,
            EpochClosed: self._epoch_closed,
            StateMade: self._state_made,
            Noted: self._noted,
            CopyMade: self._copy_made,
            CopyGone: self._copy_gone,
        }

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
        elif isinstance(event, HandOverAsked):
            self._handing_over |= {event.server} if self.setup.resumes else set()
        else:
            self._handlers[type(event)](event, out)
        if self._succession.is_over and not self.ended:
            self._go_on(out)
        return out

    # Going on

    def _go_on(self, out: list[Instruction]) -> None:
        closed = False
        while self._closing is not None and self._close(self._closing, out):
            closed = True  # of asynchronous epochs, several may have waited for one
        self._record(out)
        if closed and self._handing_over:
            self._hand_over(out)
            return
        self._stand_at_limit(out)
        if self.ended:
            return
        self._start_evaluation(out)
        self._proceed(out)

    def _record(self, out: list[Instruction]) -> None:
        epoch = self._records.recorded
        while self._best_on_its_way != epoch:
            found = self._records.next_record(self.options.is_evaluated(epoch))
            if found is None:
                return
            training, evaluation = found
            measures, version = (evaluation.measures, evaluation.version) if evaluation else (None, None)
            out.append(RecordEpoch(epoch, training, measures, version))
            epoch = self._records.recorded
            if self._held and self._held[0].epoch == epoch:
                self._limits.saved = epoch
                out.append(SaveCheckpoint(epoch, self._held.pop(0).version))

    def _close(self, closing: Closing, out: list[Instruction]) -> bool:
        """Close the open epoch if all have finished it, and what it made is here; whether they have."""
        if not closing.is_complete or not self._records.close():
            return False
        closing.close()
        running, version = self._evaluations.running, closing.anchor.version
        held = None if running is None else running.version
        out.append(CloseEpochs(closing.anchor.epoch, version, held))
        if self.setup.exact:
            out.extend(Send(to, Closed(version, held)) for to in self.setup.weight_addresses)
        if self._limits.hold(closing.anchor.epoch):
            self._held.append(closing.anchor)
            out.append(HoldCheckpoint(closing.anchor.epoch, version))
        return True

    def _state_made(self, event: StateMade, out: list[Instruction]) -> None:
        if self._closing is None or not self._closing.take(event.home, event.version):
            self.duplicates += 1
            return
        out.append(KeepState(event.home, event.version, self._closing.epochs(event.version)))

    def _proceed(self, out: list[Instruction]) -> None:
        limits = [
            self._limits.next(self._records),
            self._evaluations.limit(self._records, self._exact),
            self._records.trained + self._most_open,
        ]
        if self.options.closes:
            limits.append(self._seen + (1 if self._exact is not None else self.setup.staleness + 2))
        until = Epoch(min(limits))
        if until <= self._until or self._standing.state != "going":
            return
        self._send_rates(self._until, until, sorted(self.setup.parts), out)
        self._until = until
        message = self._may_proceed()
        if self._copies_ready:
            self._run_ahead(Epoch(until - 1), out)
        out.extend(Send(to, message) for to in self.setup.graph_addresses)

    @property
    def _most_open(self) -> int:
        """How many epochs may be under way, and not closed."""
        return 1 if self.setup.exact else self.setup.staleness + 2

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
        elif not self.saves_aside and self._limits.wants_checkpoint(here):
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
        self._saved = SavedRun(self._base, self._exact is not None, self._records.best)
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
        started, joined = self._evaluations.started(), self._succession.joined
        assert started is not None
        out.extend(Send(to, started) for to in self.setup.graph_addresses if to not in joined)

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
        elif self._closing is None:
            self._records.add_training(event.epoch, measures)

    def _evaluated(self, epoch: Epoch, measures: Measures, out: list[Instruction]) -> None:
        running = self._evaluations.end(epoch)
        if running is None or running.version is None:
            self.duplicates += 1
            return
        best = self._records.add_evaluation(epoch, Evaluation(running.version, measures))
        asked = best and not self.setup.exact
        if asked:
            self._best_on_its_way = epoch
        elif best:
            out.append(KeepBest(epoch, running.version))
        if not self.setup.exact:
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
