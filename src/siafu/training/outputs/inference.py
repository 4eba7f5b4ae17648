"""Inference: a model's outputs for the vertices of a graph, by the stages of an evaluation and under a budget."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch
from torch import Tensor, nn

from siafu.base.hardware.memory import budget_bytes
from siafu.base.threads import thread_count
from siafu.graph import Graph
from siafu.objective.outputs_only import OutputsOnly
from siafu.pipeline.ids import Epoch, IntervalId, LaneName
from siafu.pipeline.task import Task
from siafu.runtime.one_thread import one_thread, use_one_thread
from siafu.server.assembly import assemble
from siafu.server.memory.fitting import Fit, fit
from siafu.server.memory.listing import RunListing
from siafu.server.plan import ServerPlan
from siafu.server.worker import GraphWorker
from siafu.tables import DiskTraffic, ScratchDirectory

_LANE: LaneName = "evaluate"


class Inference:
    """A pass over the whole graph, laid out before anything is allocated. What does not fit is refused when it is made.

    fit:     how it fits its budget
    traffic: bytes that went to and from scratch files
    """

    def __init__(
        self,
        graph: Graph,
        model: nn.Module,
        *,
        normalize: bool = False,
        rows: Tensor | None = None,
        memory: str | None = None,
        scratch: ScratchDirectory | None = None,
    ) -> None:
        """Ready to run.

        normalize: whether features are divided by the sums of their rows
        rows:      vertices whose outputs are wanted, ascending; None: all
        memory:    a size that this process may take; None: what is free, less a reserve
        scratch:   for tables that do not fit; None: all are in memory
        """
        plan = ServerPlan.to_infer(graph, model, rows, normalize=normalize)
        listing = RunListing.of(plan)
        self.fit: Fit = fit(listing, budget_bytes(memory, listing.taken), scratch)
        self.fit.refuse_misfit("predicting", "a machine with more, or a smaller graph", memory=memory)
        self.traffic = DiskTraffic()

    def run(self) -> Tensor:
        """[V, C]: the outputs; rows that are not wanted are zeros."""
        plan = self.fit.plan
        program = plan.programs[_LANE]
        width = program.shapes[program.phases[-1].outputs[-1]]
        out = torch.zeros((plan.graph.num_vertices, *width), dtype=plan.dtype)
        plan = replace(plan, objective=OutputsOnly(out))
        with one_thread(), torch.no_grad():  # what is folded has the same bits wherever it is made
            (worker,) = assemble(plan.blueprint(), plan.features, plan.weights).workers
            if worker.disk is not None:
                self.traffic = worker.disk.scratch.traffic
            try:
                _pass(plan, worker)
            finally:
                worker.close()
        return out


def _pass(plan: ServerPlan, worker: GraphWorker) -> None:
    """All stages, one after the other, each on all intervals."""
    with ThreadPoolExecutor(thread_count(), "siafu-infer", initializer=use_one_thread) as pool:
        for stage in plan.schedules[_LANE].stages:
            tasks = [
                Task(_LANE, Epoch(0), stage, IntervalId(each)) for each in range(plan.interval_counts[0])
            ]
            for done in [pool.submit(worker.run, task, plan.weights) for task in tasks]:
                done.result()
