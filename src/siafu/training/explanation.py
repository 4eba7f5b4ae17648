"""Explanation: what a model was compiled to for a graph, stage by stage, and what an epoch of it costs."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from siafu.base.hardware.memory import budget_bytes
from siafu.graph import Graph
from siafu.graph.partition import make_partition
from siafu.graph.reorder import recommend
from siafu.kernels.advice.advisor import degrees
from siafu.options import Options
from siafu.pipeline.ids import LaneName
from siafu.pipeline.schedule import Schedule
from siafu.program.program import Program
from siafu.program.record.record import state_of
from siafu.server.costs.extent import Extent
from siafu.server.costs.graph_extent import extent_of
from siafu.server.costs.stage_cost import StageCost
from siafu.server.focus import focus_of
from siafu.server.layout.layout_choice import chosen_layout, layout_prices, server_peak, told
from siafu.server.memory.fitting import fit, without_far_blocks
from siafu.server.memory.listing import RunListing
from siafu.server.memory.measures import Choice, choose
from siafu.server.memory.memory_list import MemoryList
from siafu.server.plan import ServerPlan, compile_programs, rows_of
from siafu.server.run_advisor import advisor_of
from siafu.server.schedules import schedule_evaluation, schedule_training
from siafu.server.stages.registry import stages_of
from siafu.tables import ScratchDirectory
from siafu.training.placement import choose_partition


@dataclass(frozen=True, slots=True)
class Explanation:
    """What runs, and why.

    training, evaluation: the stages of an epoch and of its evaluation, in order
    once:     rows that were computed once for all epochs, such as 'constant0, 1433 wide'
    choices:  what was decided and for what reason
    needed:   which rows the last phase computes
    memory:   every array of a training in this process; None: the graph has no training split
    choice:   how that training spares memory; None likewise
    budget:   bytes that it may take; None: any amount
    disk:     tables that are on disk, in words; nothing where none is
    layouts:  what gathers cost on several servers, laid out by vertices and by columns, in words
    layout:   the cheaper of them, as `siafu train` takes it; None: one server was asked for
    """

    training: tuple[StageCost, ...]
    evaluation: tuple[StageCost, ...]
    once: tuple[str, ...]
    choices: tuple[str, ...]
    needed: str
    memory: MemoryList | None = None
    choice: Choice | None = None
    budget: int | None = None
    disk: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    layout: str | None = None

    def as_json(self, *, ops: bool) -> dict[str, Any]:
        """As JSON takes it; ops: with the tensor programs in words."""
        found = asdict(replace(self, memory=None, choice=None))
        found["budget_bytes"] = found.pop("budget")
        found["memory"] = None if self.memory is None else self.memory.as_json()
        found["choice"] = None if self.choice is None else self.choice.as_json()
        if not ops:
            for stage in (*found["training"], *found["evaluation"]):
                del stage["text"]
        return found


def explain_training(
    graph: Graph,
    model: nn.Module,
    memory: str | None = None,
    scratch: Path | None = None,
    advisor: str = "on",
) -> Explanation:
    """The same, with the memory that a training with the usual options takes in one process.

    memory:  a size that it may take, such as "8GB"; None: what is free, less a reserve
    scratch: a directory for tables on disk, if it does not fit without
    advisor: on; off: edges are walked by the rules
    """
    if "train" not in rows_of(graph):
        return replace(explain(graph, model), budget=budget_bytes(memory))
    walked = graph.layout or graph
    plan = ServerPlan.of(walked, model, Options(), make_partition(walked, 1))
    listing = RunListing.of(replace(plan, advisor=advisor_of(walked.replace(source=graph.source), advisor)))
    budget = budget_bytes(memory, listing.taken)
    listing = without_far_blocks(listing, budget)
    advised = listing.plan.advisor
    choice = choose(listing, budget)
    on_disk: tuple[str, ...] = ()
    if scratch is not None and budget is not None and choice.listed.peak > budget:
        fitted = fit(listing, budget, ScratchDirectory(scratch))
        choice, on_disk = fitted.choice, (*fitted.disk_told(),)
    found = explain(graph, model, plan.programs)
    walks = [] if advised is None else advised.reasons()
    choices = *found.choices, str(degrees(graph.indptr)), *walks, recommend(graph)
    return replace(found, memory=choice.listed, choice=choice, budget=budget, choices=choices, disk=on_disk)


def explain_layouts(
    found: Explanation, graph: Graph, model: nn.Module, servers: int, partition: str, gbps: float
) -> Explanation:
    """The same with the layouts that gathers may have on so many servers.

    partition: a method, or "auto"
    gbps:      gigabits a second of each server's network
    """
    walked = graph.layout or graph
    plan = ServerPlan.of(
        walked, model, Options(servers=servers), choose_partition(walked, servers, partition)
    )
    prices = layout_prices(plan, gbps)
    chosen = chosen_layout(prices)
    lines = [*told(prices)] or ["no gather of this model can be laid out by columns"]
    names = dict.fromkeys(("vertices", "columns", chosen)) if prices else ()
    peaks = {name: server_peak(plan.laid_out(name)) for name in names}
    sizes = [f"layout {name}: {peak / 1e6:,.0f} MB on the largest server" for name, peak in peaks.items()]
    return replace(found, layouts=(*lines, *sizes), layout=chosen)


def explain(graph: Graph, model: nn.Module, programs: dict[LaneName, Program] | None = None) -> Explanation:
    """Compile `model` for `graph`, as `siafu.train` would, and say what came of it.

    programs: what it was compiled to before; None: it is compiled here
    """
    splits = rows_of(graph)
    learnt = splits.get("train", torch.arange(graph.num_vertices))
    programs = programs or compile_programs(graph, model, learnt)
    train, evaluate = programs["train"], programs["evaluate"]
    weights = state_of(model)
    focus = focus_of(graph, train, learnt, 1)
    computed = None if focus is None else focus.vertices
    trained = extent_of(graph, weights, train, [learnt], computed, training=True)
    evaluated = extent_of(graph, weights, evaluate, splits.values() or [learnt], training=False)
    return Explanation(
        _costs(trained, schedule_training(train)[0]),
        _costs(evaluated, schedule_evaluation(evaluate)),
        tuple(f"{name}, {math.prod(train.shapes[name])} wide" for name in train.constants),
        train.choices,
        f"the last phase computes {trained.needed_rows:,} of {graph.num_vertices:,} rows in training, those that enter "
        f"the loss, and {evaluated.needed_rows:,} in an evaluation, those of the splits; the gather before it "
        f"gathers into those alone{_focused(trained, graph)}",
    )


def _focused(trained: Extent, graph: Graph) -> str:
    """In words, how many rows a training's other phases compute; nothing where they are all."""
    if trained.vertices == graph.num_vertices:
        return ""
    return f"; on one server the training's other phases compute {trained.vertices:,}: no other row has a part in the loss"


def _costs(extent: Extent, schedule: Schedule) -> tuple[StageCost, ...]:
    return tuple(stages_of(stage.kind).cost(extent, stage) for stage in schedule.stages)
