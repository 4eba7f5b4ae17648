"""Score: how good a model is, and which of two is better."""

from dataclasses import dataclass

from siafu.objective.metric import ACCURACY, Metric


@dataclass(frozen=True, slots=True)
class Score:
    """Result of an evaluation on the validation rows.

    accuracy: the metric's value, under the name that files have for it; None: there are no such rows
    loss:     the mean loss
    metric:   what was measured
    """

    accuracy: float | None
    loss: float | None
    metric: Metric = ACCURACY

    def beats(self, other: "Score") -> bool:
        """Whether this, the later of the two, takes the other's place.

        The better metric wins, of equals the lower loss, of equals the earlier. Without validation rows nothing can choose:
        the later wins.
        """
        if self.accuracy is None or other.accuracy is None:
            return True
        return self._merit(self.accuracy) > other._merit(other.accuracy)

    def reaches(self, bound: float) -> bool:
        """Whether the metric is at least as good as `bound`."""
        return self.accuracy is not None and self.metric.merit(self.accuracy) >= self.metric.merit(bound)

    def _merit(self, accuracy: float) -> tuple[float, float]:
        return (self.metric.merit(accuracy), -(self.loss or 0.0))
