"""Objective: what a model learns, and how good it is at it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.objective.metric import Metric
from siafu.objective.score import Score
from siafu.objective.tally import Tally, decode, encode

_KINDS = (torch.int64, torch.uint8, torch.bool)


class Objective(ABC):
    """Target, loss, counts, the metric made of these, and answers: all that decides what is learnt.

    Everything is a sum over rows, so that the parts of a graph add up to the whole. `out` is always [rows, outputs], the
    model's; `y` the same rows of the target.

    name:    as `siafu.train(objective=…)`, `--objective` and config.json have it
    metric:  what epochs are compared by
    counted: names of the sums that the metric is made of
    """

    name: str
    metric: Metric
    counted: tuple[str, ...]

    def on(self, graph: Graph) -> "Objective":
        """The objective as it is for this graph; itself, unless it depends on more than targets."""
        return self

    def target(self, graph: Graph) -> Tensor:
        """Values to learn, one row for each vertex: [V, …] of floats, int64, uint8 or booleans."""
        return torch.from_numpy(_labels(graph))

    def outputs(self, graph: Graph) -> int:
        """Numbers that the model gives for a vertex."""
        return graph.num_classes

    @abstractmethod
    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        """The loss, summed over the rows. It is traced: it may hold what a tensor program can, and mix no rows but by this sum."""

    def terms(self, y: Tensor) -> float:
        """Divisor that makes a mean of the sum of these rows' losses: their number, or their weights added up."""
        return len(y)

    @abstractmethod
    def count(self, out: Tensor, y: Tensor) -> tuple[float, ...]:
        """The sums over these rows, at least one, that `counted` names."""

    @abstractmethod
    def measure(self, *counts: float) -> float:
        """The metric's value, out of the sums over all rows of a split."""

    @abstractmethod
    def answers(self, out: Tensor) -> Tensor:
        """Predictions: [rows], or [rows, C] booleans where several may hold."""

    def probabilities(self, out: Tensor) -> Tensor:
        """[rows, C]: how likely each answer is."""
        raise BadInput(f"objective {self.name} has no probabilities: ask for its predictions alone")

    # What follows is made of the above.

    def tally(self, out: Tensor, y: Tensor) -> Tally:
        """The tally of these rows."""
        if not len(out):
            return Tally.nothing(len(self.counted))
        counts = tuple(self.count(out, y))
        if len(counts) != len(self.counted):
            raise BadInput(
                f"objective {self.name} counts {len(counts)} sums and names {len(self.counted)}: name each in `counted`"
            )
        return Tally(len(out), self.loss(out, y).item(), self.terms(y), counts)

    def encode(self, tallies: Mapping[str, Tally]) -> tuple[float, ...]:
        """Tallies by split as numbers that can be added up and sent."""
        return encode(tallies, len(self.counted))

    def measured(self, tally: Tally) -> float:
        """The metric over the rows of a tally."""
        value = float(self.measure(*tally.counts))
        if not math.isfinite(value):
            sums = ", ".join(
                f"{name} {count:g}" for name, count in zip(self.counted, tally.counts, strict=True)
            )
            raise BadInput(
                f"objective {self.name}: {self.metric.name} is {value} over {tally.rows} rows ({sums}): let `measure` give a number"
            )
        return value

    def score(self, measures: tuple[float, ...]) -> Score:
        """How good the validation rows are, of an evaluation's numbers."""
        val = decode(measures).get("val")
        if val is None:
            return Score(None, None, self.metric)
        return Score(self.measured(val), val.loss, self.metric)

    def scores(self, out: Tensor, y: Tensor, rows: Mapping[str, Tensor]) -> dict[str, dict[str, float]]:
        """For each split: how many `rows` it has, the mean `loss`, and the metric as `accuracy`."""
        return {split: self._scored(out[ids], as_target(y[ids], out.dtype)) for split, ids in rows.items()}

    def _scored(self, out: Tensor, y: Tensor) -> dict[str, float]:
        # Divided as a tensor, this is PyTorch's own mean to the last bit.
        loss = (self.loss(out, y) / self.terms(y)).item()
        return {"rows": len(out), "loss": loss, "accuracy": self.measured(self.tally(out, y))}

    def as_json(self) -> dict[str, Any]:
        """As config.json describes it."""
        return {"name": self.name, **self.metric.as_json()}


def target_of(objective: Objective, graph: Graph) -> Tensor:
    """The objective's target, one row for each vertex; refused if it is anything else."""
    if graph.renumbered is not None:  # an objective knows the vertices by the user's numbers
        return target_of(objective, graph.renumbered.graph)[torch.from_numpy(graph.renumbered.order)]
    y = objective.target(graph)
    if not isinstance(y, Tensor) or y.ndim == 0 or len(y) != graph.num_vertices:
        shape = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise BadInput(
            f"objective {objective.name} has a target of {shape}: give a tensor with a row for each of the "
            f"{graph.num_vertices} vertices"
        )
    if not y.is_floating_point() and y.dtype not in _KINDS:
        raise BadInput(
            f"objective {objective.name} has a target of {y.dtype}: give floats, int64, uint8 or booleans"
        )
    return y


def as_target(y: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows of a target as the loss takes them: floats in the type that is computed in."""
    return y.to(dtype) if y.is_floating_point() else y


def _labels(graph: Graph) -> Any:
    if graph.y is None:
        raise BadInput(
            f"graph {graph.name!r} has no labels: give it y, or import it with labels (--vertices or --labels)"
        )
    return graph.y
