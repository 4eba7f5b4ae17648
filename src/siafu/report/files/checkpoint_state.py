"""CheckpointState: the values of a checkpoint besides its tensors, and the only form in which they are read."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput

_MOST = 2**63


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """State of a run when a checkpoint was taken.

    epoch:          how many were done
    seconds:        that they took
    peak_rss_bytes: the most memory held
    counters:       of the pipeline, as they stand in a summary
    metrics_crc32:  of the lines of metrics up to `epoch`; None: of a run of a Siafu that wrote none
    """

    epoch: int
    seconds: float
    peak_rss_bytes: int
    counters: dict[str, Any]
    metrics_crc32: int | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, found: Mapping[str, Any], where: Path, *, may_lack_checksum: bool) -> "CheckpointState":
        """The state that stands in the checkpoint at `where`, or one line on what is wrong with it."""
        fields: dict[str, _Fits] = {"epoch": _is_count, "seconds": _is_number, "peak_rss_bytes": _is_count}
        fields |= {"counters": _are_counters, "metrics_crc32": _is_count}
        complete = {"counters": {}, **found}
        if may_lack_checksum and complete.setdefault("metrics_crc32", None) is None:
            del fields["metrics_crc32"]
        for name, fits in fields.items():
            if name not in complete or not fits(complete[name]):
                raise _damaged(where, f"lacks or misnames {name!r}")
        if unknown := sorted(complete.keys() - cls.__dataclass_fields__.keys()):
            raise _damaged(where, f"has {unknown[0]!r}, which is not known")
        return cls(**complete)


def _damaged(where: Path, what: str) -> BadInput:
    return BadInput(f"{where} is damaged (its state {what}): copy the run again, or train it again")


_Fits = Callable[[Any], bool]


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < _MOST and math.isfinite(value)


def _is_histogram(value: Any) -> bool:
    return _is_table(value, _is_count) and all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in value)


def _is_table(value: Any, fits: _Fits) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) and fits(value[name]) for name in value)


def _are_counters(value: Any) -> bool:
    return isinstance(value, dict) and all(
        name in _COUNTERS and _COUNTERS[name](value[name]) for name in value
    )


def _is_usage(value: Any) -> bool:
    """Whether it is what Lambdas did: numbers, but for what is named here."""
    return isinstance(value, dict) and all(_IN_USAGE.get(name, _is_number)(value[name]) for name in value)


_IN_USAGE: dict[str, _Fits] = {
    "prices": lambda value: _is_table(value, lambda text: text is None or isinstance(text, str)),
    "kinds": lambda value: _is_table(value, lambda kind: _is_table(kind, _is_count)),
    "weights": lambda value: _is_table(value, _is_count),
    "counts": lambda value: isinstance(value, list) and all(map(_is_count, value)),
}

_COUNTERS: dict[str, _Fits] = {
    "max_staleness_seen": _is_count,
    "staleness_histogram": _is_histogram,
    "row_age_histogram": _is_histogram,
    "weight_versions_peak": _is_count,
    "gradients_applied": _is_count,
    "bytes_scattered": _is_count,
    "sampled_vertices": _is_count,
    "sampled_edges": _is_count,
    "bytes_of_structure": _is_count,
    "bytes_of_features": _is_count,
    "bytes_of_products": _is_count,
    "bytes_of_weights": _is_count,
    "feature_bytes_read": _is_count,
    "feature_bytes_random_order": _is_count,
    "bytes_read": _is_count,
    "bytes_written": _is_count,
    "disk_busy_seconds": _is_number,
    "disk_wait_seconds": _is_number,
    "lambda": _is_usage,
    "servers_lost": _is_count,
    "epochs_lost": _is_count,
    "recovery_seconds": _is_number,
    "servers_moved": _is_count,
    "rows_compared": _is_count,
    "rows_differ": _is_count,
    "tasks_done_ahead": _is_count,
}
