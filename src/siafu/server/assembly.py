"""Assembly: the graph servers of a run, made of a graph, its partition and a model's programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.graph import Graph
from siafu.graph.partition import Partition, intervals
from siafu.graph.partition.reads import interval_reads
from siafu.nn.loss import target_of
from siafu.pipeline.ids import IntervalId, ServerId
from siafu.pipeline.ids import Lane as LaneName
from siafu.pipeline.layout import Layout
from siafu.program.constants import constant_rows
from siafu.program.constants import recipes as constant_recipes
from siafu.program.program import GatherStep, Program
from siafu.server.edge_gather import EdgeGather
from siafu.server.edge_programs import TracedEdge
from siafu.server.edges import ServerEdges
from siafu.server.gathers import LocalGather, local_gather
from siafu.server.lane import Labels, Lane
from siafu.server.schedules import Groups
from siafu.server.worker import GraphWorker

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Assembly:
    """Everything that holds rows, and who reads whose."""

    workers: tuple[GraphWorker, ...]
    layout: Layout


def assemble(
    graph: Graph,
    partition: Partition,
    interval_counts: Sequence[int],
    programs: Mapping[LaneName, Program],
    splits: Mapping[LaneName, Mapping[str, Tensor]],
    x: Tensor,
    weights: Mapping[str, Tensor],
    groups: Groups,
    seed: int,
) -> Assembly:
    """The servers of `partition`.

    interval_counts: of each server
    programs:        for training and for evaluation
    splits:          for each of them, the vertices whose rows the last phase computes, by split
    x:               [V, F] the features, in the type to compute in
    weights:         what the model has now; constants are made of those that are not trained
    """
    edges = [ServerEdges.of(graph, partition, server) for server in range(partition.parts)]
    bounds = [
        intervals(each.local.forward.edges.indptr, count)
        for each, count in zip(edges, interval_counts, strict=True)
    ]
    constants = _Constants(graph, x, weights)
    y = target_of(graph)
    workers = []
    first_interval = 0
    for server, (own, ranges) in enumerate(zip(edges, bounds, strict=True)):
        lanes = {
            name: _lane(
                program,
                own,
                ranges,
                constants.of(program),
                x.dtype,
                y,
                splits[name],
                training=name == "train",
            )
            for name, program in programs.items()
        }
        workers.append(GraphWorker(ServerId(server), first_interval, ranges, lanes, groups, seed))
        first_interval += len(ranges)
    return Assembly(tuple(workers), _layout(edges, bounds))


class _Constants:
    """Constant rows of the whole graph; those that two programs share are computed once."""

    def __init__(self, graph: Graph, x: Tensor, weights: Mapping[str, Tensor]) -> None:
        self._graph, self._x, self._weights = graph, x, dict(weights)
        self._known: dict[str, Tensor] = {}

    def of(self, program: Program) -> dict[str, Tensor]:
        recipes = constant_recipes(program.cut)
        if not all(recipe in self._known for recipe in recipes):
            made = constant_rows(program.cut, self._graph, self._x, self._weights)
            kind = torch.bfloat16 if _is_half(program, self._x) else self._x.dtype
            self._known |= {recipe: rows.to(kind) for recipe, rows in zip(recipes, made, strict=True)}
        return {name: self._known[recipe] for name, recipe in zip(program.constants, recipes, strict=True)}


def _is_half(program: Program, x: Tensor) -> bool:
    """Whether the model asks for rows to be stored in half their memory."""
    sites = program.cut.recording.sites
    asked = bool(sites) and all(site.gather.precision == "bf16" for site in sites)
    return asked and x.dtype == torch.float32


def _lane(
    program: Program,
    edges: ServerEdges,
    bounds: Sequence[tuple[int, int]],
    constants: dict[str, Tensor],
    dtype: torch.dtype,
    y: Tensor,
    splits: Mapping[str, Tensor],
    *,
    training: bool,
) -> Lane:
    mask = np.zeros(edges.graph.num_vertices, np.bool_)
    for ids in splits.values():
        mask[ids.numpy()] = True
    last = len(program.gathers) - 1
    gathers = [
        [
            _gather(step, program, edges, dtype, mask if depth == last else None, training=training)
            for step in group
        ]
        for depth, group in enumerate(program.gathers)
    ]
    vertices = torch.from_numpy(edges.local.vertices)
    own = {name: _own_rows(rows, edges) for name, rows in constants.items()}
    return Lane(
        program, bounds, vertices, own, gathers, _own_labels(edges, mask, y, splits), training=training
    )


def _gather(
    step: GatherStep,
    program: Program,
    edges: ServerEdges,
    dtype: torch.dtype,
    needed: Mask | None,
    *,
    training: bool,
) -> LocalGather:
    (width,) = program.shapes[step.sent[0]]
    if step.edge is None:
        return local_gather(step.site.gather, edges, width, dtype, needed=needed, training=training)
    return EdgeGather(
        step.site.gather,
        TracedEdge(step),
        edges,
        width,
        step.site.width,
        dtype,
        needed=needed,
        training=training,
    )


def _own_rows(rows: Tensor, edges: ServerEdges) -> Tensor:
    """The server's rows of a table of the whole graph; the table itself where they are all."""
    if edges.own == len(rows):
        return rows
    return rows[torch.from_numpy(edges.local.vertices)]


def _own_labels(edges: ServerEdges, mask: Mask, y: Tensor, splits: Mapping[str, Tensor]) -> Labels:
    vertices = edges.local.vertices
    picked = mask[vertices]
    ids = vertices[picked]
    members = {}
    for split, these in splits.items():
        inside = np.zeros(len(mask), np.bool_)
        inside[these.numpy()] = True
        members[split] = torch.from_numpy(inside[ids])
    rows = None if bool(picked.all()) else torch.from_numpy(np.flatnonzero(picked))
    return Labels(rows, y[torch.from_numpy(ids)], members)


def _layout(edges: Sequence[ServerEdges], bounds: Sequence[Sequence[tuple[int, int]]]) -> Layout:
    forward, backward = interval_reads([each.local for each in edges], bounds)
    return Layout(
        tuple(len(each) for each in bounds),
        {"forward": _sets(forward), "backward": _sets(backward)},
    )


def _sets(reads: Mask) -> tuple[frozenset[IntervalId], ...]:
    return tuple(frozenset(IntervalId(int(k)) for k in np.flatnonzero(row)) for row in reads)
