"""Numbers as people read them, in reports and tables."""

from siafu.cost.money import dollars
from siafu.report.progress import duration

NOTHING = "–"


def percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.2f} %"


def number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"


def count(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{1e6 * value:.3g} µs" if 0 < value < 1e-3 else duration(value)


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


def usd(value: float | None) -> str:
    return NOTHING if value is None else dollars(value)
