"""Tally: how good some rows are, as sums: the tallies of a graph's parts add up to that of the whole.

Tallies of an evaluation travel as one tuple of numbers, which servers add up place by place; `encode` and `decode` alone know
what stands where.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from siafu.graph.stores.content import SPLITS


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over some rows.

    rows:       how many
    loss_sum:   their losses, added up
    loss_terms: what makes that a mean: how many losses these were, or their weights added up
    counts:     what the metric is made of, as `Objective.counted` names it
    """

    rows: int
    loss_sum: float
    loss_terms: float
    counts: tuple[float, ...]

    @classmethod
    def nothing(cls, counted: int) -> "Tally":
        """The tally of no rows, with so many counts."""
        return cls(0, 0.0, 0, (0.0,) * counted)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.rows + other.rows,
            self.loss_sum + other.loss_sum,
            self.loss_terms + other.loss_terms,
            tuple(mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)),
        )

    @property
    def loss(self) -> float:
        """The mean loss; 0 without rows."""
        return self.loss_sum / self.loss_terms if self.loss_terms else 0.0


def encode(tallies: Mapping[str, Tally], counted: int) -> tuple[float, ...]:
    """Tallies of all splits as numbers that can be added up; first the losses of all."""
    found = [tallies.get(split) or Tally.nothing(counted) for split in SPLITS]
    parts = [(each.rows, each.loss_sum, each.loss_terms, *each.counts) for each in found]
    return (sum(each.loss_sum for each in found), *(float(number) for part in parts for number in part))


def decode(numbers: tuple[float, ...]) -> dict[str, Tally]:
    """The tallies that `encode`, or a sum of what it gave, came from; splits without rows are left out."""
    size = (len(numbers) - 1) // len(SPLITS)
    tallies = {}
    for place, split in enumerate(SPLITS):
        rows, loss, terms, *counts = numbers[1 + size * place : 1 + size * (place + 1)]
        if rows:
            tallies[split] = Tally(int(rows), loss, terms, tuple(counts))
    return tallies
