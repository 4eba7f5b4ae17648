"""Evaluations: the one that is under way, the next one that is due, and how far training may go before it."""

from dataclasses import dataclass

from siafu.pipeline.events import EvaluationStarted, WeightsAsked, WeightsGranted
from siafu.pipeline.ids import RUN, Address, Anchor, Epoch, ServerId, Version
from siafu.pipeline.instructions import Send
from siafu.pipeline.run_machine.records import Records
from siafu.pipeline.run_machine.run_options import RunOptions
from siafu.pipeline.setup import Setup


@dataclass(frozen=True, slots=True)
class RunningEvaluation:
    """The evaluation that is under way; no version: it waits for one."""

    epoch: Epoch
    weights: ServerId
    version: Version | None


class Evaluations:
    """Evaluations of a run: one at a time, each of a version that a weight server holds for it.

    running: the one that is under way; None: there is none
    """

    def __init__(self, setup: Setup, options: RunOptions) -> None:
        self.running: RunningEvaluation | None = None
        self._setup, self._options = setup, options

    def limit(self, records: Records, exact: Anchor | None) -> int:
        """How far training may go before the next evaluation begins."""
        following = self.next(records, exact)
        return following + 1 + (self._setup.staleness if exact is None else 0)

    def next(self, records: Records, exact: Anchor | None) -> Epoch:
        """The first epoch whose evaluation is due and has not begun."""
        epoch = self._options.next_evaluated(records.recorded)
        while self._has_begun(epoch, records, exact):
            epoch = self._options.next_evaluated(Epoch(epoch + 1))
        return epoch

    def _has_begun(self, epoch: Epoch, records: Records, exact: Anchor | None) -> bool:
        """Whether training may go on past an evaluation; where both use the same tables, once it is over."""
        running = self.running
        if running is not None and running.epoch == epoch and not self._setup.alternate:
            # Without a version it has not: later epochs could replace the one that it must have.
            return running.version is not None or exact is None
        return records.is_evaluated(epoch)

    def ask(self, epoch: Epoch, base: Anchor, exact: Anchor | None) -> Send:
        """Begin the evaluation of an epoch: ask for its weights."""
        weights = ServerId(epoch % self._setup.weight_servers)
        self.running = RunningEvaluation(epoch, weights, None)
        version = None if exact is None or epoch + 1 < exact.epoch else exact.version_of(Epoch(epoch + 1))
        oldest = self._oldest(epoch, base) if version is None else None
        asked = WeightsAsked(RUN, None, epoch, version, oldest)
        return Send(Address("weight", weights), asked)

    def _oldest(self, epoch: Epoch, base: Anchor) -> Version:
        """The version that has the epoch's gradients, all of which have come."""
        gradients = max(0, epoch + 1 - base.epoch) * self._setup.layout.num_intervals
        return Version(base.version + gradients // self._setup.gradients_an_update)

    def grant(self, event: WeightsGranted) -> bool:
        """The version that was asked for is held: whether that is news."""
        running = self.running
        if running is None or running.version is not None or event.epoch != running.epoch:
            return False
        self.running = RunningEvaluation(event.epoch, event.server, event.version)
        return True

    def started(self) -> EvaluationStarted | None:
        """The evaluation that is under way and has its version."""
        running = self.running
        if running is None or running.version is None:
            return None
        return EvaluationStarted(running.epoch, running.version, running.weights)

    def end(self, epoch: Epoch) -> RunningEvaluation | None:
        """The evaluation of an epoch is over; None: it is not under way."""
        running = self.running
        if running is None or running.version is None or running.epoch != epoch:
            return None
        self.running = None
        return running

    def forget_asked(self) -> None:
        """The run begins again: an evaluation without a version is asked for again."""
        if self.running is not None and self.running.version is None:
            self.running = None
