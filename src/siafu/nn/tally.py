"""Tally: how good some rows are, so that the tallies of a graph's parts add up to that of the whole."""

from dataclasses import dataclass

from torch import Tensor

from siafu.nn.loss import loss_sum, loss_terms


@dataclass(frozen=True, slots=True)
class Tally:
    """What was right and wrong over some rows.

    rows:       how many
    loss_sum:   their losses, added up
    loss_terms: how many losses that were
    hits, tries: accuracy is hits / tries: right rows of all rows; where vertices have several labels, micro-F1: twice the
                right labels of those said and those true together
    """

    rows: int = 0
    loss_sum: float = 0.0
    loss_terms: int = 0
    hits: int = 0
    tries: int = 0

    @classmethod
    def of(cls, logits: Tensor, y: Tensor) -> "Tally":
        """The tally of these rows, y as `loss_sum` takes it."""
        rows = len(logits)
        loss = loss_sum(logits, y).item()
        if y.ndim == 1:
            hits, tries = int((logits.argmax(dim=1) == y).sum()), rows
        else:
            said, true = logits > 0, y.bool()
            hits, tries = 2 * int((said & true).sum()), int(said.sum()) + int(true.sum())
        return cls(rows, loss, loss_terms(y, rows), hits, tries)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.rows + other.rows,
            self.loss_sum + other.loss_sum,
            self.loss_terms + other.loss_terms,
            self.hits + other.hits,
            self.tries + other.tries,
        )

    @property
    def loss(self) -> float:
        """The mean loss; 0 without rows."""
        return self.loss_sum / max(1, self.loss_terms)

    @property
    def accuracy(self) -> float:
        return self.hits / max(1, self.tries)
