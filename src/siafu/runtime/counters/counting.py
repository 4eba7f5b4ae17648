"""Sums of a run's counters over sessions, or over servers."""

from collections.abc import Mapping
from typing import Any

_PEAKS = ("max_staleness_seen", "weight_versions_peak", "recovery_seconds")


def added(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Counters of an earlier session and of this one: peaks are the higher, histograms and sums add up."""
    total = dict(now)
    for name, value in before.items():
        if name not in now:
            total[name] = value
        else:
            total[name] = max(value, now[name]) if name in _PEAKS else _sum(value, now[name])
    return total


def _summed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    names = dict.fromkeys((*before, *now))
    ordered = sorted(names, key=int) if all(name.lstrip("-").isdigit() for name in names) else names
    return {name: _sum(before.get(name), now.get(name)) for name in ordered}


def _sum(before: Any, now: Any) -> Any:
    """Numbers are added, lists joined, tables summed entry by entry; of words the latest hold."""
    if before is None or now is None:
        return now if before is None else before
    if isinstance(now, dict):
        return _summed(before, now)
    return now if isinstance(now, str) else before + now
