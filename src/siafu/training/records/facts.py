"""What is found when a run begins, for its report: the machine, what each stage costs, how good the partition is."""

import os
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from siafu.base.hardware import machine
from siafu.base.threads import thread_count
from siafu.graph.partition.quality import measure
from siafu.graph.stores.remote import is_address
from siafu.server.costs.stage_cost import StageCost
from siafu.training.explanation import explain
from siafu.training.trainer import Trainer

VERSION = 1

_PACKAGES = ("siafu", "torch", "numpy", "numba", "llvmlite", "pyzmq")
_MOST_EDGES = 10**8  # to walk for the sake of a report: more take seconds
_OF_A_STAGE = ("name", "over", "count", "widths_in", "widths_out", "flops", "bytes")


def facts_of(trainer: Trainer) -> dict[str, Any]:
    """As JSON takes it. What cannot be found is null: no run ends for want of it."""
    return {
        "version": VERSION,
        "environment": environment(),
        "stages": _stages(trainer),
        "partition": _partition(trainer),
    }


def environment() -> dict[str, Any]:
    """The machine and the versions."""
    memory, _ = machine.memory_bytes()
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": machine.processor_name(),
        "cores": os.cpu_count(),
        "threads": thread_count(),
        "simd": machine.simd_features(),
        "memory_bytes": memory,
        "versions": {package: _version(package) for package in _PACKAGES},
    }


def _stages(trainer: Trainer) -> dict[str, list[dict[str, Any]]] | None:
    try:
        found = explain(trainer.plan.graph, trainer.model, trainer.programs)
    except Exception:  # a model of the user's own may do what we can run and cannot cost
        return None
    return {"train": [*map(_stage, found.training)], "evaluate": [*map(_stage, found.evaluation)]}


def _stage(cost: StageCost) -> dict[str, Any]:
    found = {name: value for name, value in asdict(cost).items() if name in _OF_A_STAGE}
    # The runtime's name: the loss and its gradient come in one.
    loss = cost.name.endswith("(loss)")
    found["kind"] = f"∇{cost.name.removesuffix('(loss)')}" if loss else cost.name
    found["attention"] = any("Softmax" in operation for operation in cost.operations)
    return found


def _partition(trainer: Trainer) -> dict[str, Any] | None:
    graph, partition = trainer.plan.graph, trainer.plan.partition
    far = graph.source is not None and is_address(graph.source)
    # The driver of a cluster holds no part of the graph, and need not read it for this.
    if partition.parts == 1 or graph.num_edges > _MOST_EDGES or far or trainer.on_cluster:
        return None
    quality = measure(graph, partition)
    return {
        "method": partition.method,
        "parts": partition.parts,
        "cut_share": quality.cut_share,
        "balance": quality.balance,
        "vertices": quality.vertices.tolist(),
        "edges": quality.edges.tolist(),
        "forward_ghosts": quality.forward_ghosts.tolist(),
        "backward_ghosts": quality.backward_ghosts.tolist(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
