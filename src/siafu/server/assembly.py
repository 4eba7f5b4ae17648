"""Assembly: the graph servers of a run, made of a graph, its partition and a model's programs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.graph import Graph
from siafu.graph.partition import Partition, intervals
from siafu.graph.partition.reads import Reads, interval_reads
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


ConstantRows = Callable[[Program], dict[str, Tensor]]
"""The rows of a program that never change, [n, …] each, those of one server's vertices."""


@dataclass(frozen=True, slots=True, eq=False)
class Blueprint:
    """What all graph servers of a run are made by.

    interval_counts: of each server
    programs:        for training and for evaluation
    splits:          for each of them, the vertices whose rows the last phase computes, by split
    dtype:           what to compute in
    """

    graph: Graph
    partition: Partition
    interval_counts: Sequence[int]
    programs: Mapping[LaneName, Program]
    splits: Mapping[LaneName, Mapping[str, Tensor]]
    dtype: torch.dtype
    groups: Groups
    seed: int

    def edges(self, server: int) -> ServerEdges:
        """A server's part of the graph."""
        return ServerEdges.of(self.graph, self.partition, server)

    def bounds(self, edges: ServerEdges) -> list[tuple[int, int]]:
        """Its intervals."""
        return intervals(edges.local.forward.edges.indptr, self.interval_counts[edges.local.server])

    def worker(
        self, edges: ServerEdges, bounds: Sequence[tuple[int, int]], constants: ConstantRows
    ) -> GraphWorker:
        """What holds its rows."""
        y = target_of(self.graph)
        lanes = {
            name: _lane(
                program,
                edges,
                bounds,
                constants(program),
                self.dtype,
                y,
                self.splits[name],
                training=name == "train",
            )
            for name, program in self.programs.items()
        }
        server = edges.local.server
        first_interval = sum(self.interval_counts[:server])
        return GraphWorker(ServerId(server), first_interval, bounds, lanes, self.groups, self.seed)


@dataclass(frozen=True, slots=True, eq=False)
class Assembly:
    """Everything that holds rows, and who reads whose."""

    workers: tuple[GraphWorker, ...]
    layout: Layout


def assemble(blueprint: Blueprint, x: Tensor, weights: Mapping[str, Tensor]) -> Assembly:
    """All servers of a run.

    x:       [V, F] the features, in the type to compute in
    weights: what the model has now; constants are made of those that are not trained
    """
    edges = [blueprint.edges(server) for server in range(blueprint.partition.parts)]
    bounds = [blueprint.bounds(each) for each in edges]
    constants = _Constants(blueprint.graph, x, weights)
    workers = tuple(
        blueprint.worker(own, ranges, constants.of_server(own))
        for own, ranges in zip(edges, bounds, strict=True)
    )
    return Assembly(workers, layout_of(interval_reads([each.local for each in edges], bounds), bounds))


class _Constants:
    """Constant rows of the whole graph; those that two programs share are computed once."""

    def __init__(self, graph: Graph, x: Tensor, weights: Mapping[str, Tensor]) -> None:
        self._graph, self._x, self._weights = graph, x, dict(weights)
        self._known: dict[str, Tensor] = {}

    def of_server(self, edges: ServerEdges) -> ConstantRows:
        """Those of one server's vertices."""
        return lambda program: {name: _own_rows(rows, edges) for name, rows in self._of(program).items()}

    def _of(self, program: Program) -> dict[str, Tensor]:
        recipes = constant_recipes(program.cut)
        if not all(recipe in self._known for recipe in recipes):
            made = constant_rows(program.cut, self._graph, self._x, self._weights)
            kind = constant_type(program, self._x.dtype)
            self._known |= {recipe: rows.to(kind) for recipe, rows in zip(recipes, made, strict=True)}
        return {name: self._known[recipe] for name, recipe in zip(program.constants, recipes, strict=True)}


def constant_type(program: Program, dtype: torch.dtype) -> torch.dtype:
    """What constant rows are stored in: half their memory where the model asks for that."""
    sites = program.cut.recording.sites
    asked = bool(sites) and all(site.gather.precision == "bf16" for site in sites)
    return torch.bfloat16 if asked and dtype == torch.float32 else dtype


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
    labels = _own_labels(edges, mask, y, splits)
    return Lane(program, bounds, vertices, constants, gathers, labels, training=training)


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


def layout_of(reads: Reads, bounds: Sequence[Sequence[tuple[int, int]]]) -> Layout:
    """Who reads whose rows, as the machines know it."""
    return Layout(
        tuple(len(each) for each in bounds),
        {"forward": _sets(reads.forward), "backward": _sets(reads.backward)},
    )


def _sets(reads: Mask) -> tuple[frozenset[IntervalId], ...]:
    return tuple(frozenset(IntervalId(int(k)) for k in np.flatnonzero(row)) for row in reads)
