"""RunOptions: how long a run goes on and what is done on the way."""

from dataclasses import dataclass

from siafu.pipeline.ids import Epoch


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How long a run goes on and what is done on the way.

    epochs:           how many, those before a resumed start counted
    evaluate_every:   evaluate after every so many epochs, and after the last
    patience:         stop when so many epochs brought no better model; None: never
    checkpoint_every: save after every so many epochs; None: only when asked
    exact_above:      async: go on exactly, as pipe, once the validation score is at least this good; None: never
    closes:           an epoch begins when the run's owner has seen the one before (`EpochClosed`)
    """

    epochs: int
    evaluate_every: int = 1
    patience: int | None = None
    checkpoint_every: int | None = None
    exact_above: float | None = None
    closes: bool = False

    def is_evaluated(self, epoch: Epoch) -> bool:
        return (epoch + 1) % self.evaluate_every == 0 or epoch + 1 == self.epochs

    def next_evaluated(self, epoch: Epoch) -> Epoch:
        """The first epoch from `epoch` on that is evaluated."""
        regular = -(-(epoch + 1) // self.evaluate_every) * self.evaluate_every - 1
        return Epoch(min(regular, self.epochs - 1) if epoch < self.epochs else regular)
