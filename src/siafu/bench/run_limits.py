"""Least times of a run's tasks: the work of each stage at this machine's limits."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from siafu.base.hardware import machine
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
    every = {
        f"{lane} {stage['kind']}": stage_limit(stage) for lane, listed in stages.items() for stage in listed
    }
    return {kind: seconds for kind, seconds in every.items() if seconds is not None}


def stage_limit(stage: Mapping[str, Any]) -> float | None:
    """Seconds of a stage: products at their peak, gathers at their own cache's bandwidth; None: it is not known."""
    if stage["over"] == "rows":
        return float(stage["flops"]) / product_peak()
    if stage["attention"] or not stage["widths_in"]:
        return None
    return float(stage["bytes"]) / near_bandwidth(max(stage["widths_in"]), np.float32)
