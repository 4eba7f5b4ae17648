"""Figure 10: where an epoch of GCN on Amazon goes, task by task."""

from dataclasses import dataclass

from siafu.bench.paper.machines import machine
from siafu.bench.paper.published import FIGURE_10, TABLE_4, Backend
from siafu.bench.paper.reproduce import EPOCHS, epoch

_SUMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "GA": (("GA",), ("G1", "G2")),
    "∇GA": (("∇GA",), ("∇G2",)),
    "AV + ∇AV": (("AV", "∇AV"), ("T1", "∇T2", "∇T1")),
    "SC + ∇SC": (("SC", "∇SC"), ()),
}
"""Tasks, as the paper has them, and the stages that they are here: the last AV and its gradient are one."""


@dataclass(frozen=True, slots=True)
class TaskSeconds:
    """Seconds of an epoch that a server spends on some tasks."""

    task: str
    backend: Backend
    published: float
    predicted: float


def figure_10() -> list[TaskSeconds]:
    """Task times of CPU and GPU clusters. Lambdas' tasks wait for each other and for the network: they have no seconds of their own."""
    row = next(each for each in TABLE_4 if (each.model, each.graph) == ("gcn", "amazon"))
    found = []
    backends: tuple[Backend, ...] = ("cpu", "gpu")
    for place, backend in enumerate(backends, 1):
        run = epoch(row.model, row.graph, row.instance, row.servers, backend, "pipe").run
        cores = machine(row.instance if backend == "cpu" else "p3.2xlarge").cores
        for task, (published, stages) in _SUMS.items():
            busy = sum(run.busy_seconds[f"cores {stage}"] for stage in stages) / cores
            # A server's network goes both ways at once.
            spent = busy if stages else run.busy_seconds["server network"] / 2
            seconds = spent / row.servers / EPOCHS
            found.append(
                TaskSeconds(task, backend, sum(FIGURE_10[each][place] for each in published), seconds)
            )
    return found
