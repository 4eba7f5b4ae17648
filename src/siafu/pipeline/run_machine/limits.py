"""RunLimits: points where a run stands still: the end, the end of patience, what was asked for, and some checkpoints."""

from siafu.pipeline.ids import Epoch
from siafu.pipeline.instructions import StopReason
from siafu.pipeline.run_machine.records import Records
from siafu.pipeline.run_machine.run_options import RunOptions


class RunLimits:
    """Points that no interval may pass before something is done there.

    saved: the epoch of the last checkpoint
    """

    def __init__(self, options: RunOptions, saved: Epoch, *, saves_aside: bool) -> None:
        """saves_aside: nothing stands still for a checkpoint"""
        self.saved = saved
        self._options, self._saves_aside = options, saves_aside
        self._stop_asked = self._told_to_stop = self._checkpoint_asked = False
        self._stand_still_at: Epoch | None = None

    def ask(self, at: Epoch, *, stop: bool) -> None:
        """Someone wants a checkpoint, and perhaps the end, at an epoch that everyone can come to."""
        self._stop_asked |= stop
        if stop or not self._saves_aside:
            self.stand_still(at)
        if not (stop and self._saves_aside):  # the end saves itself
            self._checkpoint_asked = True

    def tell_to_stop(self, at: Epoch) -> None:
        """The run's owner ends it."""
        self._told_to_stop = True
        self.stand_still(at)

    def stand_still(self, at: Epoch) -> None:
        self._stand_still_at = at

    def leave(self) -> None:
        """What was asked for is done, and the run goes on."""
        self._stand_still_at = None
        self._checkpoint_asked &= self._saves_aside

    def hold(self, here: Epoch) -> bool:
        """Whether the epoch that is closed here is to be a checkpoint, aside. It is not asked for any more."""
        wanted = self._saves_aside and here < self._options.epochs and self.wants_checkpoint(here)
        if wanted:
            self._checkpoint_asked = False
        return wanted

    def begin_again(self, at: Epoch) -> None:
        """What was asked for is done where the run begins again."""
        stands = self._checkpoint_asked and not self._saves_aside
        asked = self._stop_asked or self._told_to_stop or stands
        self._stand_still_at = at if asked else None

    def forget(self) -> None:
        """Go back to the last checkpoint: what was said since is void, but that someone wants the end."""
        self._told_to_stop = self._checkpoint_asked = False

    def next(self, records: Records) -> int:
        """The epoch's end where all intervals stand still next."""
        limits = [self._options.epochs]
        every = self._options.checkpoint_every
        if every is not None and not self._saves_aside:
            limits.append((self.saved // every + 1) * every)
        if self._options.patience is not None:
            limits.append(self.patience_ends(records))
        if self._stand_still_at is not None:
            limits.append(self._stand_still_at)
        return min(limits)

    def patience_ends(self, records: Records) -> int:
        """When the run stops unless a better model comes. The first that is evaluated is the best until then."""
        best = records.best
        epoch = best.epoch if best is not None else self._options.next_evaluated(records.recorded)
        return epoch + 1 + (self._options.patience or 0)

    def reason_to_stop(self, here: Epoch, records: Records) -> StopReason | None:
        if here >= self._options.epochs:
            return "finished"
        if self._options.patience is not None and here >= self.patience_ends(records):
            return "patience"
        if self._told_to_stop:
            return "told"
        return "asked" if self._stop_asked else None

    def wants_checkpoint(self, here: Epoch) -> bool:
        every = self._options.checkpoint_every
        asked = self._checkpoint_asked or (every is not None and here % every == 0)
        return asked and self.saved != here
