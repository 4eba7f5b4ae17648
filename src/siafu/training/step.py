"""siafu.compile: a model on a graph as a step that a loop of one's own can call: loss and gradients, as `siafu.train` computes them."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.base.hardware.memory import budget_bytes
from siafu.base.nearest import choose
from siafu.base.threads import thread_count
from siafu.graph import Graph
from siafu.graph.foreign import graph_of
from siafu.graph.partition import Partition
from siafu.graph.stores.content import SPLITS
from siafu.objective.tally import decode
from siafu.options import Options
from siafu.pipeline.ids import Epoch, IntervalId, LaneName
from siafu.pipeline.schedule import Schedule
from siafu.pipeline.task import Task
from siafu.program.headline import headline
from siafu.program.record.record import state_of
from siafu.runtime.one_thread import one_thread, record_nothing, use_one_thread
from siafu.server.assembly import assemble
from siafu.server.memory.fitting import fit
from siafu.server.memory.listing import RunListing
from siafu.server.plan import ServerPlan
from siafu.server.worker import TaskResult
from siafu.training.no_module import refuse_no_module
from siafu.weights.gradient_sums import GradientSums

_OPTIONS = ("objective", "class_weights", "label_smoothing", "normalize_features", "seed", "intervals")


class TrainingStep:
    """A training step over the whole graph. Call it: it gives the loss, and adds gradients to the parameters' `.grad`.

    Dropout is drawn from the seed and the number of the call. Running statistics of norms move with every call, as they do in torch.

    calls: how many there were
    """

    def __init__(self, plan: ServerPlan, model: nn.Module) -> None:
        """Made by `siafu.compile`."""
        self._plan, self._model = plan, model
        self.calls = 0
        with one_thread():  # what is folded has the same bits wherever it is made
            (self._worker,) = assemble(plan.blueprint(), plan.features, plan.weights).workers
        self._pool: ThreadPoolExecutor | None = None
        if plan.interval_counts[0] > 1:
            self._pool = ThreadPoolExecutor(thread_count(), "siafu-step", initializer=_ready)

    def __call__(self) -> Tensor:
        """The mean loss of the training vertices, with dropout, in float64; gradients are added to those that are there."""
        results = self._run("train", self._plan.training)
        loss = sum(done.measures[0] for done in results if done.measures)
        sums = GradientSums({name: len(each) for name, each in self._plan.weights.items() if each.ndim})
        for done in results:
            # Of each stage in the order of its intervals: the same sums however many threads there are.
            for group in done.gradients.values():
                sums.add(group)
        self._give(sums.sums)
        self.calls += 1
        return torch.tensor(loss, dtype=torch.float64)

    def evaluate(self) -> dict[str, float]:
        """Metric and loss of each split with the weights that the model has now, without dropout."""
        results = self._run("evaluate", self._plan.schedules["evaluate"])
        measures = [done.measures for done in results if done.measures]
        tallies = decode(tuple(map(sum, zip(*measures, strict=True))))
        objective = self._plan.objective
        name = objective.metric.name
        found: dict[str, float] = {}
        for split in SPLITS:
            if split in tallies:
                found[f"{split}_{name}"] = objective.measured(tallies[split])
                found[f"{split}_loss"] = tallies[split].loss
        return found

    def close(self) -> None:
        """Let go of the threads; the step cannot be called any more."""
        if self._pool is not None:
            self._pool.shutdown()

    def __repr__(self) -> str:
        return f"TrainingStep({type(self._model).__name__} on {self._plan.graph.name!r}: {headline(self._plan.programs['train'])})"

    def _run(self, lane: LaneName, schedule: Schedule) -> list[TaskResult]:
        """All stages, one after the other, each on all intervals; results in that order."""
        weights = state_of(self._model)
        results: list[TaskResult] = []
        with one_thread(), torch.no_grad():
            for stage in schedule.stages:
                tasks = [
                    Task(lane, Epoch(self.calls), stage, IntervalId(number))
                    for number in range(self._plan.interval_counts[0])
                ]
                if self._pool is None:
                    results += [self._worker.run(task, weights) for task in tasks]
                else:
                    results += self._pool.map(lambda task: self._worker.run(task, weights), tasks)
        return results

    def _give(self, found: dict[str, Tensor]) -> None:
        """Add gradients to the parameters', and let buffers follow the step's statistics."""
        state, running = state_of(self._model), self._plan.settings.running
        parameters = dict(self._model.named_parameters())
        came = {name: found.pop(name) for name in running if name in found}
        with torch.no_grad():
            moved = {name: running[name].next(name, came, state) for name in came}
            for name, value in moved.items():
                state[name].copy_(value)
            for name, gradient in found.items():
                parameter = parameters[name]
                parameter.grad = gradient.clone() if parameter.grad is None else parameter.grad.add_(gradient)


def _ready() -> None:
    use_one_thread()
    record_nothing()


def compile(model: nn.Module, graph: Graph, *, memory: str | None = None, **options: Any) -> TrainingStep:
    """Compile a model for a graph, once, to a step that a loop of your own calls:

        step = siafu.compile(model, graph)
        for epoch in range(200):
            optimizer.zero_grad()
            loss = step()          # forward and backward over the whole graph
            optimizer.step()       # any optimizer of torch's, on model.parameters()

    What never changes is computed once, so features and frozen parameters (`requires_grad_(False)`) must stay as they are.

    memory:  a size that this process may take; None: what is free
    options: objective, class_weights, label_smoothing, normalize_features, seed, intervals: as for `siafu.train`
    """
    graph = graph_of(graph, "compile")
    refuse_no_module(model)
    unknown = next((name for name in options if name not in _OPTIONS), None)
    if unknown is not None:
        raise BadInput(f"compile takes no {unknown}: {choose(unknown, ('memory', *_OPTIONS))}")
    walked = graph if graph.layout is None else graph.layout.replace(source=graph.source)
    partition = Partition.whole(walked.num_vertices)
    plan = ServerPlan.of(walked, model, Options(mode="sync", **options), partition)
    listing = RunListing.of(plan)
    fitted = fit(listing, budget_bytes(memory, listing.taken), None)
    fitted.refuse_misfit(
        "training", "narrower layers (hidden), rows in bf16 (precision) or a machine with more", memory=memory
    )
    return TrainingStep(fitted.plan, model)
