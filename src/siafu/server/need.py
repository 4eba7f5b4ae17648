"""Need: bytes that a training in one process cannot do without, worked out before any of them is allocated."""

import math

import numpy as np

from siafu.graph import Graph
from siafu.nn.tensors import storage
from siafu.program.constants import recipes
from siafu.program.program import GatherStep, Program
from siafu.program.tensor_program import Spec
from siafu.server.assembly import constant_type
from siafu.server.local_gather import sum_type
from siafu.server.plan import Plan

_FEATURES = "x"  # the recipe of constant rows that are the features themselves


def least_bytes(plan: Plan, *, on_lambdas: bool = False) -> int:
    """What all servers hold at once, at least: tables of gathered rows, rows kept for the backward pass, constants.

    Ghosts, edges, weights, padding and what a task holds while it runs come on top, and are left out: more is needed
    for certain. Features that are mapped from a store and used as they are take nothing that must stay.

    on_lambdas: tensor tasks run elsewhere, and keep their rows there
    """
    vertices, itemsize = plan.graph.num_vertices, plan.dtype.itemsize
    widened = widened_bytes(plan.graph, itemsize, normalize=plan.options.normalize_features)
    constants = vertices * _constant_bytes(plan)
    made = vertices * sum(
        _lane_bytes(plan, program, training=name == "train", on_lambdas=on_lambdas)
        for name, program in plan.programs.items()
    )
    # While constants are made tables are not touched yet; later only features that are constants themselves stay.
    stay = any(_FEATURES in recipes(program.cut) for program in plan.programs.values())
    return max(widened + constants, constants + made + (widened if stay else 0))


def widened_bytes(graph: Graph, itemsize: int, *, normalize: bool) -> int:
    """Of the features, where they are not used as they are stored."""
    if graph.x is None or (graph.x.itemsize == itemsize and graph.x.dtype.kind == "f" and not normalize):
        return 0
    return graph.num_vertices * graph.num_features * itemsize


def _constant_bytes(plan: Plan) -> int:
    """A vertex's rows that are computed once; those that programs share count once."""
    found: dict[str, int] = {}
    for program in plan.programs.values():
        size = constant_type(program, plan.dtype).itemsize
        for name, recipe in zip(program.constants, recipes(program.cut), strict=True):
            if recipe != _FEATURES:
                found[recipe] = size * math.prod(program.shapes[name])
    return sum(found.values())


def _lane_bytes(plan: Plan, program: Program, *, training: bool, on_lambdas: bool) -> int:
    """A vertex's rows in a program's tables, and in training what its phases keep."""
    gathers = (stage for stage in plan.training.stages if stage.kind == "gather")
    back = {stage.phase for stage in gathers if stage.direction == "backward"}
    total = 0
    for depth, group in enumerate(program.gathers):
        is_last = depth == len(program.gathers) - 1
        goes_back = training and depth + 1 in back
        total += sum(_gather_bytes(plan, program, step, is_last, goes_back) for step in group)
    if training and not on_lambdas:
        # The last phase goes forth and back at once, and only over rows that have a label.
        kept = (spec for phase in program.phases[:-1] for spec in phase.programs.kept)
        total += sum(_size(spec, plan) * math.prod(spec.sizes(1)) for spec in kept)
    return total


def _gather_bytes(plan: Plan, program: Program, step: GatherStep, is_last: bool, goes_back: bool) -> int:
    kind = np.dtype(sum_type(plan.dtype))
    stored = np.dtype(storage(np.empty(0, kind), step.site.gather.precision))
    sent, gathered = program.shapes[step.sent[0]][0], step.site.width
    # Of the last gather only rows that are read are gathered, and sent back: how many depends on the splits.
    forward = sent * stored.itemsize + (0 if is_last else gathered * kind.itemsize)
    if not goes_back:
        return forward
    if is_last:
        return forward + min(sent, gathered) * kind.itemsize
    return forward + gathered * stored.itemsize


def _size(spec: Spec, plan: Plan) -> int:
    return plan.dtype.itemsize if spec.kind == "float" else np.dtype(spec.kind).itemsize
