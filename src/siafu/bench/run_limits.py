"""What the tasks of a run take at least: this machine at its best, on what each stage of the run has to do."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from siafu.base import machine
from siafu.bench.limits import near_bandwidth, product_peak


def run_limits(facts: Mapping[str, Any]) -> dict[str, float] | None:
    """Seconds of an epoch by kind of task, on all threads together; None: it ran on another kind of machine, or does not say.

    facts: what was found when the run began
    """
    environment, stages = facts.get("environment"), facts.get("stages")
    if not isinstance(environment, dict) or not isinstance(stages, dict):
        return None
    if environment.get("processor") != machine.processor_name():
        return None
    return dict(_limits(stages))


def _limits(stages: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for lane, listed in stages.items():
        for stage in listed:
            seconds = _limit(stage)
            if seconds is not None:
                yield f"{lane} {stage['kind']}", seconds


def _limit(stage: Mapping[str, Any]) -> float | None:
    if stage["over"] == "rows":
        return float(stage["flops"]) / _product_peak()
    if stage["attention"] or not stage["widths_in"]:
        return None
    return float(stage["bytes"]) / _bandwidth(max(stage["widths_in"]))


@lru_cache
def _product_peak() -> float:
    return product_peak()


@lru_cache
def _bandwidth(columns: int) -> float:
    return near_bandwidth(columns, np.float32)
