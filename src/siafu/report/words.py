"""Numbers as people read them, in reports and tables."""

from collections.abc import Callable
from typing import Any

from siafu.cost.money import dollars
from siafu.objective.metric import Metric
from siafu.report.progress import duration

NOTHING = "–"


def amount(value: Any) -> float | None:
    """A number that a file holds; None: it holds something else there."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def measured(value: float | None, metric: Metric) -> str:
    return NOTHING if value is None else metric.told(value)


def _if_known(say: Callable[[float], str]) -> Callable[[float | None], str]:
    return lambda value: NOTHING if value is None else say(value)


short = _if_known("{:,.4g}".format)
percent = _if_known(lambda share: f"{100 * share:.2f} %")
number = _if_known("{:.4f}".format)
count = _if_known("{:,}".format)
usd = _if_known(dollars)
seconds = _if_known(lambda value: f"{1e6 * value:.3g} µs" if 0 < value < 1e-3 else duration(value))


def ratio(value: float, least: float | None) -> str:
    """A multiple of the least."""
    if not least:
        return NOTHING
    times = value / least
    return f"{times:,.0f} ×" if times >= 100 else f"{times:.3g} ×"


def size(value: float | None) -> str:
    """Bytes."""
    if value is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
