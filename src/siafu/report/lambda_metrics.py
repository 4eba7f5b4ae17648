"""Lambdas' work for an epoch, as a line of metrics has it: see docs/metrics.md."""

from collections.abc import Sequence
from typing import Any

from siafu.base.activity import together
from siafu.runtime.happenings import Doings

_RANKS = {"p50": 0.50, "p90": 0.90, "p99": 0.99, "max": 1.0}


def lambda_metrics(doings: Doings) -> dict[str, Any] | None:
    """None: there are none."""
    if doings.lambda_counts is None:
        return None
    return {
        **doings.lambda_counts,
        "latency_ms": percentiles([1000 * each for each in doings.latencies]),
        "busy_seconds": together(doings.lambdas),
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Each is the least of `values` that so large a share of them does not exceed; {}: there are none."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {name: ordered[max(0, _ceil(share * len(ordered)) - 1)] for name, share in _RANKS.items()}


def _ceil(value: float) -> int:
    # 0.9 × 10 is a little more than 9 in floating point, and means 9.
    return -int(-(value - 1e-9) // 1)
