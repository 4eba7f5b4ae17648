"""Lambdas' work for an epoch, as a line of metrics has it: see docs/metrics.md."""

from collections.abc import Sequence
from typing import Any

from siafu.base.activity import together
from siafu.runtime.happenings import EpochActivity

_RANKS = {"p50": 50, "p90": 90, "p99": 99, "max": 100}


def lambda_metrics(activity: EpochActivity) -> dict[str, Any] | None:
    """None: there are none."""
    if activity.lambda_counts is None:
        return None
    return {
        **activity.lambda_counts,
        "latency_ms": percentiles([1000 * each for each in activity.latencies]),
        "busy_seconds": together(activity.lambdas),
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Each is the least of `values` that so large a share of them does not exceed; {}: there are none."""
    ordered = sorted(values)
    if not ordered:
        return {}
    # Whole percents: 0.9 × 10 would be a little more than 9 in floating point.
    return {name: ordered[max(0, -(-percent * len(ordered) // 100) - 1)] for name, percent in _RANKS.items()}
