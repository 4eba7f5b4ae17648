"""Assembly: the graph servers of a run, made of a graph, its partition and a model's programs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.graph import Graph
from siafu.graph.partition import LocalGraph, Partition, intervals
from siafu.graph.partition.reads import Reads, all_read, interval_reads
from siafu.kernels import Table
from siafu.kernels.advice.advisor import Advisor
from siafu.objective.objective import Objective, as_target, target_of
from siafu.pipeline.ids import IntervalId, LaneName, ServerId
from siafu.pipeline.layout import Layout
from siafu.pipeline.schedule import Schedule, fused_gathers
from siafu.program.constants import constant_rows
from siafu.program.constants import recipes as constant_recipes
from siafu.program.execute.sparse_rows import SparseRows
from siafu.program.program import GatherStep, Program
from siafu.server.edges import ServerEdges
from siafu.server.focus import Focus
from siafu.server.fusion import frees_rows
from siafu.server.gathers.by_columns.column_space import ColumnSpace, whole_edges
from siafu.server.gathers.gather_tables import (
    DiskTables,
    GatherTables,
    HeldTables,
    PassingTables,
    ThreadBuffers,
)
from siafu.server.gathers.local_gather import LocalGather
from siafu.server.gathers.registry import column_step, local_step
from siafu.server.lane import Lane
from siafu.server.memory.disk_share import DiskShare
from siafu.server.memory.savings import Savings
from siafu.server.rows.blocks import Labels
from siafu.server.rows.constant_type import constant_type
from siafu.server.rows.constants_on_disk import ConstantsOnDisk
from siafu.server.rows.feature_rows import FeatureRows
from siafu.server.rows.shared_constants import shared_constants
from siafu.server.rows.sparse_constants import ConstantTable, sparse_constants
from siafu.server.rows.streamed_rows import StreamedRows
from siafu.server.schedules import Groups
from siafu.server.statistics import LocalStatistics
from siafu.server.worker import GraphWorker
from siafu.tables import NamedTables, ScratchDirectory

Mask = NDArray[np.bool_]
_COLUMNS = ("own rows", "slices")  # tables of a gather by columns


ConstantRows = Callable[[Program], dict[str, Tensor]]
"""The rows of a program that never change, [n, …] each, those of one server's vertices."""
StreamedConstants = Callable[[DiskShare, ServerEdges, Sequence[tuple[int, int]]], ConstantsOnDisk]
"""The same for the vertices that some edges lead to and some intervals of them, on a server's disk."""


@dataclass(frozen=True, slots=True, eq=False)
class Blueprint:
    """What all graph servers of a run are made by.

    interval_counts: of each server
    programs:        for training and for evaluation
    schedules:       the stages of each
    splits:          for each of them, the vertices whose rows the last phase computes, by split
    dtype:           what to compute in
    objective:       what is learnt
    multiplies:      tensor tasks run here: constant rows of mostly zeros are held without them
    savings:         how memory is spared
    advisor:         chooses how edges are walked; None: the rules do
    focus:           vertices whose rows the training computes; None: all
    """

    graph: Graph
    partition: Partition
    interval_counts: Sequence[int]
    programs: Mapping[LaneName, Program]
    schedules: Mapping[LaneName, Schedule]
    splits: Mapping[LaneName, Mapping[str, Tensor]]
    dtype: torch.dtype
    groups: Groups
    seed: int
    objective: Objective
    multiplies: bool = True
    savings: Savings = Savings()
    advisor: Advisor | None = None
    focus: Focus | None = None

    def edges(self, server: int) -> ServerEdges:
        """A server's part of the graph."""
        disk = self.savings.disk
        scratch = None if disk is None else disk.directory
        return ServerEdges.of(self.graph, self.partition, server, scratch, self.advisor)

    def whole_edges(self) -> ServerEdges | None:
        """All edges, where some gathers go by columns; else None."""
        groups = [group for program in self.programs.values() for group in program.gathers]
        if not any(step.slices for group in groups for step in group):
            return None
        return whole_edges(self.graph, self.advisor)

    def bounds(self, edges: ServerEdges) -> list[tuple[int, int]]:
        """Its intervals."""
        return intervals(edges.local.forward.edges.indptr, self.interval_counts[edges.local.server])

    def reads(self, parts: Sequence[LocalGraph], bounds: Sequence[Sequence[tuple[int, int]]]) -> Reads:
        """Which interval reads rows of which."""
        if not self.reads_all:
            return interval_reads(parts, bounds)
        count = sum(len(each) for each in bounds)
        return all_read(count, count)

    @property
    def reads_all(self) -> bool:
        """Whether each interval reads all: where tables are on disk all become ready together, and a focus has other intervals."""
        return self.savings.reads_all or self.focus is not None

    def _focused(self, focus: Focus) -> ServerEdges:
        """Edges of the training's vertices."""
        disk, apart = self.savings.disk, focus.partition(self.graph.num_vertices)
        return ServerEdges.of(self.graph, apart, 0, None if disk is None else disk.directory, self.advisor)

    def worker(
        self,
        edges: ServerEdges,
        bounds: Sequence[tuple[int, int]],
        constants: ConstantRows,
        streamed: StreamedConstants | None = None,
        scratch: ScratchDirectory | None = None,
        whole: ServerEdges | None = None,
    ) -> GraphWorker:
        """The holder of its rows.

        streamed: constants, where they are on disk
        scratch:  for its files, which other servers of this process may share; None: one of its own
        whole:    all edges, where gathers go by columns
        """
        space = None
        if whole is not None:
            space = ColumnSpace(whole, self.partition, edges.local.server, len(bounds))
        y = as_target(target_of(self.objective, self.graph), self.dtype)
        cut = self.savings.disk
        disk = None if cut is None else DiskShare(cut, scratch)
        held: _Held | ConstantsOnDisk = _Held(self.graph, constants, sparse=self.multiplies)
        if disk is not None and disk.cut.constants and streamed is not None:
            held = streamed(disk, edges, bounds)
        memory = _Memory(edges, self.savings, disk)
        lanes: dict[LaneName, Lane] = {}
        try:
            if self.focus is not None:
                inner = self._focused(self.focus)
                ranges = self.bounds(inner)
                some: _Picked | ConstantsOnDisk
                if isinstance(held, _Held):
                    some = _Picked(held, self.focus.vertices)
                else:
                    assert disk is not None and streamed is not None
                    some = streamed(disk, inner, ranges)
                lanes["train"] = self._lane("train", inner, ranges, some, y, memory.beside(inner), None, None)
            for name in self.programs:  # the training comes first: an evaluation may use its rows' memory
                if name not in lanes:
                    shared = lanes.get("train") if self.focus is None else None
                    lanes[name] = self._lane(name, edges, bounds, held, y, memory, shared, space)
        except BaseException:
            if disk is not None:
                disk.close()
            raise
        server = edges.local.server
        first_interval = sum(self.interval_counts[:server])
        return GraphWorker(
            ServerId(server), first_interval, bounds, lanes, self.schedules, self.groups, self.seed, disk
        )

    def _lane(
        self,
        name: LaneName,
        edges: ServerEdges,
        bounds: Sequence[tuple[int, int]],
        held: "_Held | _Picked | ConstantsOnDisk",
        y: Tensor,
        memory: "_Memory",
        training_lane: Lane | None,
        space: ColumnSpace | None,
    ) -> Lane:
        program, training, splits = self.programs[name], name == "train", self.splits[name]
        fused = fused_gathers(self.schedules[name].stages)
        mask = np.zeros(edges.graph.num_vertices, np.bool_)
        for ids in splits.values():
            mask[ids.numpy()] = True
        last = len(program.gathers) - 1
        constants = {**held.of(program)}  # before gathers copy their edges: what folding takes is free again

        def made(step: GatherStep, depth: int, number: int) -> LocalGather:
            width, needed = program.shapes[step.sent[0]][0], mask if depth == last else None
            if step.slices:
                assert space is not None
                tables = memory.column_tables(depth, number, len(mask), in_place=depth != last)
                return column_step(step, space, tables, width, self.dtype, needed=needed, training=training)
            placed = edges.placing(memory.tables(program, depth, number, passing=depth in fused))
            return local_step(step, placed, width, self.dtype, needed=needed, training=training)

        gathers = [
            [made(step, depth, number) for number, step in enumerate(group)]
            for depth, group in enumerate(program.gathers)
        ]
        return Lane(
            program,
            bounds,
            torch.from_numpy(edges.own_numbers),
            constants,
            gathers,
            _own_labels(edges, mask, y, splits),
            self.objective,
            training=training,
            fused=fused,
            remade=self.savings.remade if training else frozenset(),
            in_place=self.savings.in_place and training,
            beside=training_lane if self.savings.shared else None,
            disk=memory.rows(),
            statistics=[
                [
                    LocalStatistics(
                        step, self.interval_counts, edges.local.server, self.dtype, training=training
                    )
                    for step in group
                ]
                for group in program.reduces
            ],
            leads=edges.local.server == 0,
        )


class _Memory:
    """Where the gathers of one server have their tables.

    edges: the server's
    disk:  its tables on disk; None: all are in memory
    """

    def __init__(self, edges: ServerEdges, savings: Savings, disk: DiskShare | None) -> None:
        self._own, self._savings, self._scratch, self._disk = edges.own, savings, ThreadBuffers(), disk
        # Else a ghost's gradient would take the place of another ghost's row, which may still be read.
        self._in_place = savings.in_place and edges.aligned
        self._known: dict[tuple[int | str, ...], dict[str, Table]] = {}

    def beside(self, edges: ServerEdges) -> "_Memory":
        """For another lane, whose tables have other sizes; threads use the same buffers."""
        found = _Memory(edges, replace(self._savings, shared=False), self._disk)
        found._scratch = self._scratch
        return found

    def tables(self, program: Program, depth: int, number: int, *, passing: bool) -> GatherTables:
        """Those of one gather of a graph phase; passing: what it gathers has none."""
        if passing and self._disk is not None and self._disk.cut.reads(depth):
            return DiskTables(self._own, self._scratch, str(number), self._disk)
        known = self._known.setdefault((depth, number), {}) if self._savings.shared else None
        in_place = self._in_place and frees_rows(program, depth, self._savings)
        if passing:
            return PassingTables(self._own, self._scratch, str(number), known, in_place=in_place)
        return HeldTables(self._own, known, in_place=in_place)

    def column_tables(
        self, depth: int, number: int, vertices: int, *, in_place: bool
    ) -> tuple[HeldTables, HeldTables]:
        """Those of a gather by columns: for own rows, and for slices of all vertices' rows.

        in_place: gradients take the place of rows; those of the last gather do not come for all of them
        """
        shared = self._savings.shared
        own, slices = (self._known.setdefault((depth, number, of), {}) if shared else None for of in _COLUMNS)
        return HeldTables(self._own, own, in_place=in_place), HeldTables(vertices, slices, in_place=in_place)

    def rows(self) -> NamedTables | None:
        """For rows of a lane that stay at their vertices; None: they are in memory."""
        return None if self._disk is None else self._disk.rows(self._own)


@dataclass(frozen=True, slots=True, eq=False)
class Assembly:
    """Everything that holds rows, and who reads whose."""

    workers: tuple[GraphWorker, ...]
    layout: Layout


def assemble(blueprint: Blueprint, x: Tensor | FeatureRows, weights: Mapping[str, Tensor]) -> Assembly:
    """All servers of a run.

    x:       [V, F] the features, in the type to compute in
    weights: what the model has now; constants are made of those that are not trained
    """
    cut = blueprint.savings.disk
    if cut is not None:  # made once, for all servers
        blueprint = replace(blueprint, graph=blueprint.graph.with_mapped_out_edges(cut.directory))
    scratch = None if cut is None else ScratchDirectory(cut.directory)
    edges = [blueprint.edges(server) for server in range(blueprint.partition.parts)]
    bounds = [blueprint.bounds(each) for each in edges]
    constants = _Constants(blueprint.graph, x, weights)
    whole = blueprint.whole_edges()
    workers = tuple(
        blueprint.worker(own, ranges, constants.of_server(own), constants.on_disk, scratch, whole)
        for own, ranges in zip(edges, bounds, strict=True)
    )
    return Assembly(workers, layout_of(blueprint.reads([each.local for each in edges], bounds), bounds))


class _Constants:
    """Constant rows of the whole graph; those that two programs share are computed once."""

    def __init__(self, graph: Graph, x: Tensor | FeatureRows, weights: Mapping[str, Tensor]) -> None:
        self._graph, self._given, self._weights = graph, x, dict(weights)
        self._known: dict[str, Tensor] = {}

    @cached_property
    def _x(self) -> Tensor:
        return self._given.whole() if isinstance(self._given, FeatureRows) else self._given

    @property
    def on_disk(self) -> StreamedConstants | None:
        """Those of one server's vertices, on its disk."""
        x = self._given
        if not isinstance(x, FeatureRows):
            return None
        return constants_streamed(self._graph, x, self._weights)

    def of_server(self, edges: ServerEdges) -> ConstantRows:
        """Those of one server's vertices."""
        return lambda program: {name: _own_rows(rows, edges) for name, rows in self._of(program).items()}

    def _of(self, program: Program) -> dict[str, Tensor]:
        recipes = constant_recipes(program.cut)
        if not all(recipe in self._known for recipe in recipes):
            self._known |= dict(zip(recipes, self._made(program, recipes), strict=True))
        return {name: self._known[recipe] for name, recipe in zip(program.constants, recipes, strict=True)}

    def _made(self, program: Program, recipes: list[str]) -> list[Tensor]:
        kind, shared = constant_type(program, self._x.dtype), shared_constants()
        keys = None if shared is None else shared.keys(program, self._graph, self._x, kind, recipes)
        if shared is not None and keys is not None and (known := shared.known(keys)) is not None:
            return known
        found = constant_rows(program.cut, self._graph, self._x, self._weights)
        made = [rows.to(kind) for rows in found]
        if shared is not None and keys is not None:
            shared.keep(keys, made)
        return made


def constants_streamed(
    graph: Graph,
    x: FeatureRows,
    weights: Mapping[str, Tensor],
) -> StreamedConstants:
    """Constant rows of one server's vertices, on its disk."""

    def streamed(disk: DiskShare, edges: ServerEdges, ranges: Sequence[tuple[int, int]]) -> ConstantsOnDisk:
        own = None if edges.own == graph.num_vertices else edges.local.vertices
        return ConstantsOnDisk(graph, x, weights, disk, ranges, own)

    return streamed


class _Held:
    """A server's constant rows as its lanes hold them; those that two programs share are held once."""

    def __init__(self, graph: Graph, constants: ConstantRows, *, sparse: bool) -> None:
        self._graph, self._constants, self._sparse = graph, constants, sparse
        self._known: dict[int, tuple[Tensor, SparseRows]] = {}

    def of(self, program: Program) -> dict[str, ConstantTable]:
        rows = self._constants(program)
        if not self._sparse or torch.bfloat16 in (each.dtype for each in rows.values()):
            return dict(rows)
        sparse = sparse_constants(program, self._graph)
        return {name: self._without_zeros(each) if name in sparse else each for name, each in rows.items()}

    def _without_zeros(self, rows: Tensor) -> SparseRows:
        if id(rows) not in self._known:
            self._known[id(rows)] = rows, SparseRows.of(rows)
        return self._known[id(rows)][1]


class _Picked:
    """Some rows of a server's constants."""

    def __init__(self, held: _Held, vertices: NDArray[np.int64]) -> None:
        self._held, self._vertices = held, vertices
        self._known: dict[int, tuple[ConstantTable, ConstantTable]] = {}

    def of(self, program: Program) -> dict[str, ConstantTable]:
        return {name: self._picked(each) for name, each in self._held.of(program).items()}

    def _picked(self, table: ConstantTable) -> ConstantTable:
        if id(table) not in self._known:
            assert not isinstance(table, StreamedRows)
            which = self._vertices
            found = table.pick(which) if isinstance(table, SparseRows) else table[torch.from_numpy(which)]
            self._known[id(table)] = table, found
        return self._known[id(table)][1]


def _own_rows(rows: Tensor, edges: ServerEdges) -> Tensor:
    """The server's rows of a table of the whole graph; the table itself where they are all."""
    if edges.own == len(rows):
        return rows
    return rows[torch.from_numpy(edges.local.vertices)]


def _own_labels(edges: ServerEdges, mask: Mask, y: Tensor, splits: Mapping[str, Tensor]) -> Labels:
    vertices = None if edges.own == len(mask) else edges.local.vertices
    picked = mask if vertices is None else mask[vertices]
    rows = None if bool(picked.all()) else np.flatnonzero(picked)
    ids = vertices if rows is None else rows if vertices is None else vertices[rows]
    members = {}
    for split, these in splits.items():
        inside = np.zeros(len(mask), np.bool_)
        inside[these.numpy()] = True
        members[split] = torch.from_numpy(inside if ids is None else inside[ids])
    return Labels(
        None if rows is None else torch.from_numpy(rows),
        y if ids is None else y[torch.from_numpy(ids)],
        members,
    )


def layout_of(reads: Reads, bounds: Sequence[Sequence[tuple[int, int]]]) -> Layout:
    """Who reads whose rows, as the machines know it."""
    return Layout(
        tuple(len(each) for each in bounds),
        {"forward": _sets(reads.forward), "backward": _sets(reads.backward)},
    )


def _sets(reads: Mask) -> tuple[frozenset[IntervalId], ...]:
    return tuple(frozenset(IntervalId(int(k)) for k in np.flatnonzero(row)) for row in reads)
