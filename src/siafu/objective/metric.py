"""Metric: the one number that says how good answers are."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_ABBREVIATIONS = frozenset({"auc", "f1", "mae", "mrr", "mse", "rmse"})


@dataclass(frozen=True, slots=True)
class Metric:
    """The number that an objective is judged by.

    name:             as files have it, with _ between words
    larger_is_better: or smaller is, as with an error
    is_share:         whether it lies between 0 and 1, and people read it in percent
    """

    name: str = "accuracy"
    larger_is_better: bool = True
    is_share: bool = True

    @property
    def words(self) -> str:
        """Its name, for people: `MRR`, `micro-F1`."""
        words = self.name.split("_")
        return "-".join(word.upper() if word in _ABBREVIATIONS else word for word in words)

    @property
    def unit(self) -> str:
        """Unit of its charts: percent or number."""
        return "percent" if self.is_share else "number"

    def told(self, value: float, deviation: float | None = None) -> str:
        """A value of it, for people, and how far values deviate from it."""
        values = [value] if deviation is None else [value, deviation]
        if self.is_share:
            return " ± ".join(f"{100 * each:.2f}" for each in values) + " %"
        return " ± ".join(f"{each:.4f}" for each in values)

    def merit(self, value: float) -> float:
        """A number that is larger for the better of two values."""
        return value if self.larger_is_better else -value

    def as_json(self) -> dict[str, Any]:
        """As a run's files keep it, for readers that do not know the objective."""
        return {"metric" if name == "name" else name: value for name, value in asdict(self).items()}


ACCURACY = Metric()


def metric_of(described: Any, name: Any = None) -> Metric:
    """The metric that a run's files describe.

    described: the section `objective` of config.json, or of a summary; runs of an earlier Siafu have none
    name:      the metric's name, which these have
    """
    found = described if isinstance(described, Mapping) else {}
    named = found.get("metric", name)
    return Metric(
        named if isinstance(named, str) else ACCURACY.name,
        found.get("larger_is_better") is not False,
        found.get("is_share") is not False,
    )


def metric_of_run(config: Mapping[str, Any]) -> Metric:
    """The metric of the run that has this config.json."""
    graph = config.get("graph")
    return metric_of(config.get("objective"), graph.get("metric") if isinstance(graph, Mapping) else None)
