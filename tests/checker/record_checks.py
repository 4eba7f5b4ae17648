"""Checks of what a run reports: every epoch once and in order, whole sums, the right end, the best model."""

from collections.abc import Callable

from siafu.objective.score import Score
from siafu.pipeline.events import Measures
from siafu.pipeline.ids import Anchor, Epoch
from siafu.pipeline.instructions import RecordEpoch, Stop
from siafu.pipeline.run_machine.run_options import RunOptions
from siafu.pipeline.setup import Setup
from tests.checker.truth import Truth, require


class RecordChecks:
    """Invariant 6 as far as machines can keep it: each interval's measures enter a sum once."""

    def __init__(
        self, setup: Setup, options: RunOptions, score: Callable[[Measures], Score], start: Anchor
    ) -> None:
        self._setup = setup
        self._options = options
        self._score = score
        self._start, self._anchor = start.epoch, start
        self._records: list[RecordEpoch] = []

    @property
    def recorded(self) -> int:
        return self._start + len(self._records)

    @property
    def best(self) -> int | None:
        """The epoch with the best evaluation so far."""
        return self._best(self.recorded)

    def record(self, truth: Truth, record: RecordEpoch) -> None:
        count = self._setup.layout.num_intervals
        require(record.epoch == self.recorded, "epochs are recorded in order", record)
        require(record.training[0] == count, "every interval is measured once", record)
        due = self._options.is_evaluated(record.epoch)
        require((record.evaluation is not None) == due, "an epoch is evaluated when it is its turn", record)
        self._records.append(record)
        if record.evaluation is None or record.version is None:
            return
        require(record.evaluation[0] == count, "every interval is evaluated once", record)
        require(record.evaluation[1] == count * record.version, "an evaluation has one version", record)
        exact = self._anchor if self._setup.exact else truth.exact
        if exact is not None and record.epoch >= exact.epoch:
            wanted = exact.version_of(Epoch(record.epoch + 1))
            require(record.version == wanted, "an exact epoch's evaluation is of the version it made", record)

    def rewind(self, epochs: int) -> None:
        del self._records[epochs - self._start :]

    def ended(self, stop: Stop) -> None:
        require(stop.epochs == self.recorded, "a run says how many epochs it recorded", stop)
        require(stop.best == self.best, "a run names its best epoch", stop, self.best)
        if stop.reason == "finished":
            require(stop.epochs == self._options.epochs, "a run ends after its last epoch", stop)
        for epochs in range(self._start + 1, stop.epochs + 1):
            out = self._out_of_patience(epochs)
            require(
                not out or (stop.reason in ("patience", "finished") and epochs == stop.epochs),
                "a run stops when its patience ends, and not later",
                stop,
                epochs,
            )
        if stop.reason == "patience":
            require(self._out_of_patience(stop.epochs), "a run stops no earlier than its patience ends", stop)

    def _out_of_patience(self, epochs: int) -> bool:
        patience = self._options.patience
        best = self._best(epochs)
        return patience is not None and best is not None and epochs - (best + 1) >= patience

    def _best(self, epochs: int) -> int | None:
        """The epoch with the best evaluation of the first `epochs`."""
        found = [
            (self._score(each.evaluation), each.epoch)
            for each in self._records[: epochs - self._start]
            if each.evaluation is not None
        ]
        if not found:
            return None
        return max(found, key=lambda each: (each[0].accuracy or 0.0, -(each[0].loss or 0.0), -each[1]))[1]
