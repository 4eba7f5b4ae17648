"""The list of a run's arrays, made before any of them is allocated: of a plan, and of the process as it is now."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.hardware.memory import own_bytes
from siafu.graph import Graph
from siafu.graph.partition import intervals
from siafu.kernels import LANES
from siafu.pipeline.ids import LaneName
from siafu.server.costs.extent import Extent
from siafu.server.gathers.registry import behaviour_of
from siafu.server.memory.constants import ConstantSizes
from siafu.server.memory.disk_share import WRITTEN_BEHIND
from siafu.server.memory.edge_copies import EdgeCopies, bucket_bytes, edge_shares, graph_edges, is_mapped
from siafu.server.memory.lane_rows import LaneRows
from siafu.server.memory.memory_list import Allocation, Lifetime, MemoryList
from siafu.server.memory.needed_rows import NeededRows
from siafu.server.memory.savings import Savings
from siafu.server.memory.server_hardware import ServerHardware, this_machine
from siafu.server.memory.server_part import ServerPart, focused_part, parts_of, whole_part
from siafu.server.plan import ServerPlan
from siafu.tables.page_pool import IDLE_BYTES

_KERNELS = 40 << 20  # bytes that compiled kernels take once they are loaded
_VERSIONS = 2  # of the weights at a time, where tasks overlap
_ID = 8  # bytes of a vertex's number
_NEXT_EDGE = 12  # bytes for each row of a gather that is begun: its next edge, how many of a block are added
_ON_THEIR_WAY = 2  # intervals of each server whose rows travel at a time
_VERTEX = 24  # bytes of the numbers that gathers share for a vertex: its id, its factors


def memory_list(plan: ServerPlan, *, on_lambdas: bool = False) -> MemoryList:
    """Every array of a training whose servers are all in this process; on_lambdas: tensor tasks run elsewhere."""
    return RunListing.of(plan, on_lambdas=on_lambdas).saving(plan.savings)


def server_memory_list(
    plan: ServerPlan, part: ServerPart, taken: int, *, on_lambdas: bool = False
) -> MemoryList:
    """Every array of one graph server in a process of its own, which held `taken` bytes before it opened the graph."""
    return RunListing.of(plan, [part], taken, on_lambdas=on_lambdas).saving(plan.savings)


@dataclass(frozen=True, slots=True, eq=False)
class RunListing:
    """A plan in one process, whose arrays are listed for any way to spare memory.

    parts:   the servers of this process
    needs:   the rows that each lane's last phase computes
    extents: what each lane goes over
    taken:   bytes that the process holds already
    hardware: the machine of the process
    besides: arrays of others in this process
    lengths: rows of each lane's intervals, where one server has them all
    """

    plan: ServerPlan
    parts: Sequence[ServerPart]
    needs: Mapping[LaneName, NeededRows]
    extents: Mapping[LaneName, Extent]
    taken: int
    on_lambdas: bool
    hardware: ServerHardware
    besides: Sequence[Allocation] = ()
    lengths: Mapping[LaneName, Collection[int]] = field(default_factory=dict)
    _lists: dict[Savings, MemoryList] = field(default_factory=dict, repr=False)
    _always: dict[Savings, Sequence[Allocation]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        plan: ServerPlan,
        parts: Sequence[ServerPart] | None = None,
        taken: int | None = None,
        *,
        on_lambdas: bool = False,
        besides: Sequence[Allocation] = (),
    ) -> "RunListing":
        """parts: None: all servers are in this process; taken: None: what it holds now; on_lambdas: tensor tasks run elsewhere."""
        taken = own_bytes() if taken is None else taken
        parts = parts_of(plan.graph, plan.partition) if parts is None else parts
        needs = {
            lane: NeededRows.of(plan.graph, plan.needed(lane), plan.computed(lane)) for lane in plan.programs
        }
        extents = {lane: plan.extent(lane) for lane in plan.programs}
        alone = plan.partition.parts == 1
        lengths = {lane: _interval_lengths(plan, lane) for lane in plan.programs} if alone else {}
        return cls(plan, parts, needs, extents, taken, on_lambdas, this_machine(), besides, lengths)

    @property
    def listed(self) -> MemoryList:
        """The list, as the plan spares memory."""
        return self.saving(self.plan.savings)

    def again(self, plan: ServerPlan) -> "RunListing":
        """The same for a plan that spares memory in another way, or goes without an advisor."""
        return replace(self, plan=plan, _lists={}, _always={})

    def saving(self, savings: Savings) -> MemoryList:
        """The list; made once for each way."""
        if savings not in self._lists:
            disk = Savings() if savings.disk is None else Savings(savings.fused, disk=savings.disk)
            if disk not in self._always:
                self._always[disk] = tuple(self._fixed(self.plan.saving(disk)))
            arrays = (*self._always[disk], *self._rows(savings), *self.besides)
            self._lists[savings] = MemoryList.of(arrays, self.taken)
        return self._lists[savings]

    def constants(self, plan: ServerPlan) -> ConstantSizes:
        """Rows that are made of the features once, as a plan spares memory."""
        return ConstantSizes(
            plan.graph,
            plan.programs,
            plan.dtype,
            normalize=plan.options.normalize_features,
            sparse=not self.on_lambdas,
            vertices=sum(part.vertices for part in self.parts),
            servers=len(self.parts),
            hardware=self.hardware,
            disk=plan.savings.disk,
        )

    def edge_pages(self, plan: ServerPlan) -> int:
        """Bytes of mapped files with edges that gathers of an epoch walk."""
        others = {"in-edges"} if not all(part.alone for part in self.parts) else set[str]()
        return sum(
            each.bytes
            for each in self._edges(plan)
            if each.mapped and each.lifetime != Lifetime.FOLDING and each.name not in others
        )

    def disk_bytes(self, plan: ServerPlan) -> int:
        """Bytes of a plan's tables on disk, and of copies of edges."""
        constants = self.constants(plan).disk_bytes
        constants += sum(round(part.share * constants) for part in _focused_parts(plan))
        edges = [each for each in self._edges(plan) if each.mapped and each.name != "in-edges"]
        # What is there while constants are made is gone when the last copies are.
        folding, later = (
            sum(each.bytes for each in edges if (each.lifetime == Lifetime.FOLDING) == early)
            for early in (True, False)
        )
        tables = sum(_disk_bytes(self.lanes(plan, part).values()) for part in self.parts)
        return constants + max(folding, later) + tables

    def lanes(self, plan: ServerPlan, part: ServerPart) -> dict[LaneName, LaneRows]:
        """Arrays that each lane holds of a part, as a plan spares memory."""
        schedules = plan.schedules
        return {
            lane: LaneRows(
                plan,
                lane,
                _part_of(plan, lane, part),
                self.needs[lane],
                replace(self.extents[lane], savings=plan.savings),
                schedules[lane].stages,
                self.on_lambdas,
                self.hardware,
                self.lengths.get(lane, ()),
            )
            for lane in plan.programs
        }

    def _fixed(self, plan: ServerPlan) -> Iterator[Allocation]:
        """Arrays that no saving changes but the disk."""
        yield from _given(plan.graph, self.taken)
        yield from self._edges(plan)
        constants = self.constants(plan)
        yield from constants.listed()
        for part in _focused_parts(plan):
            yield from constants.picked(plan.programs["train"], part.vertices)
        yield from self._weights(plan) if plan.trains else _outputs(plan, self.needs["evaluate"])
        for part in (*self.parts, *_focused_parts(plan)):
            yield Allocation("vertices", _VERTEX * part.vertices, Lifetime.SERVERS, "their ids and factors")

    def _edges(self, plan: ServerPlan) -> Iterator[Allocation]:
        graph, itemsize, cut = plan.graph, plan.dtype.itemsize, plan.savings.disk
        steps = (step for each in plan.programs.values() for group in each.gathers for step in group)
        numbered = any(step.site.features for step in steps)
        mapped, on_disk, cache = cut is not None, plan.gathers_on_disk, self.hardware.near_cache
        yield from graph_edges(graph, [*self.parts, *_focused_parts(plan)], on_disk=mapped, numbered=numbered)
        yield from edge_shares(graph, plan.programs.values(), itemsize)
        partitions = cut.partitions if cut is not None and cut.buckets and cut.tables else 0
        for part in self.parts:
            copies = EdgeCopies(
                graph, part, itemsize, on_disk, mapped, plan.advisor, partitions=partitions, cache=cache
            )
            for lane, program in plan.programs.items() if plan.focus is not None else ():
                own = replace(copies, part=_part_of(plan, lane, part))
                yield from own.of({lane: program}, self.needs)
            if plan.focus is None:
                yield from copies.of(plan.programs, self.needs)
        if cut is not None and cut.buckets and cut.constants:
            edges, weight = (
                sum(part.edges for part in self.parts),
                0 if graph.edge_weight is None else itemsize,
            )
            found = bucket_bytes(graph, graph.num_vertices, edges, cut.constant_partitions, weight)
            yield Allocation(
                "edges in buckets, to fold", found, Lifetime.FOLDING, "each is read once", mapped=True
            )
        if plan.partition.parts > 1:
            whole = whole_part(graph)
            copies = EdgeCopies(
                graph, whole, itemsize, on_disk, advisor=plan.advisor, columns=True, cache=cache
            )
            yield from copies.of(plan.programs, self.needs)

    def _weights(self, plan: ServerPlan) -> Iterator[Allocation]:
        one = sum(each.nbytes for each in plan.weights.values())
        yield Allocation(
            "weights", one * (_VERSIONS + 1), Lifetime.EPOCHS, "versions that tasks use, and the best"
        )
        tasks = min(self.hardware.threads, sum(plan.interval_counts)) + 1
        yield Allocation(
            "gradients of weights", one * tasks, Lifetime.TASK, "of running tasks, and their sum"
        )
        settings = plan.settings
        states = sum(
            each.nbytes * sum(slot != "step" for slot in settings.rule_of(name).slots)
            for name, each in plan.weights.items()
        )
        yield Allocation("optimizer", states, Lifetime.EPOCHS, f"state of {settings.optimizer}")

    def _rows(self, savings: Savings) -> Iterator[Allocation]:
        plan = self.plan if savings == self.plan.savings else self.plan.saving(savings)
        blocks = filled = 0
        for part in self.parts:
            lanes = self.lanes(plan, part)
            if plan.trains:
                yield from lanes["train"].listed()
                yield from self._begun(plan, part)
            shares = plan.trains and savings.shared and plan.focus is None
            there = lanes["train"].shared() if shares else {}
            yield from lanes["evaluate"].listed(there)
            on_disk = _disk_bytes(lanes.values())
            waiting = min(WRITTEN_BEHIND, on_disk)
            yield Allocation("rows to be written", waiting, Lifetime.EPOCHS, "to tables on disk, behind")
            idle = min(IDLE_BYTES, on_disk - waiting)
            yield Allocation("buffers that were written", idle, Lifetime.EPOCHS, "until they are used again")
            found = _travelling(part, lanes.values()) // max(1, min(plan.interval_counts))
            yield Allocation("rows on their way", found, Lifetime.TASK, "of intervals, to other servers")
            blocks = max(blocks, *(each.block_bytes() for each in lanes.values()))
            filled = max(filled, *(each.filled_bytes() for each in lanes.values()))
        yield Allocation(
            "tasks' blocks",
            self.hardware.threads * blocks,
            Lifetime.TASK,
            "rows that threads compute at the moment",
        )
        yield Allocation(
            "blocks being filled",
            self.hardware.threads * filled,
            Lifetime.TASK,
            "before they are to be written to tables on disk",
        )

    def _begun(self, plan: ServerPlan, part: ServerPart) -> Iterator[Allocation]:
        """Where gathers stand that have begun with some of their rows: one graph phase of a training at a time."""
        travel = self.on_lambdas or len(self.parts) < plan.partition.parts
        if not travel or not plan.gather_parts:
            return
        state = max(
            _NEXT_EDGE + LANES * plan.dtype.itemsize * behaviour_of(step.site.gather).heads(step.site.gather)
            for group in plan.programs["train"].gathers
            for step in group
        )
        yield Allocation(
            "gathers begun", part.vertices * state, Lifetime.TASK, "before all their rows are there"
        )


def _interval_lengths(plan: ServerPlan, lane: LaneName) -> Collection[int]:
    """The different numbers of rows that intervals have on a server which has them all."""
    indptr = plan.graph.indptr
    if plan.focus is not None and lane == "train":
        own = plan.focus.vertices
        indptr = np.concatenate([[0], np.cumsum(indptr[own + 1] - indptr[own])])
    return {last - first for first, last in intervals(indptr, plan.interval_counts[0])}


def _part_of(plan: ServerPlan, lane: LaneName, part: ServerPart) -> ServerPart:
    """The part of a server whose rows a lane computes."""
    return focused_part(plan.graph, plan.focus) if plan.focus is not None and lane == "train" else part


def _focused_parts(plan: ServerPlan) -> Sequence[ServerPart]:
    """The training's own part, where it has one."""
    return [] if plan.focus is None else [focused_part(plan.graph, plan.focus)]


def _travelling(part: ServerPart, lanes: Iterable[LaneRows]) -> int:
    """Bytes of rows that were read from tables on disk for another server, or came from one and are not written yet."""
    tables = [array for each in lanes for _, array in each.on_disk() if array.on_disk == "source"]
    row = max((each.row_bytes for each in tables), default=0)
    return _ON_THEIR_WAY * row * max(part.forward_ghosts, part.backward_ghosts)


def _disk_bytes(lanes: Iterable[LaneRows]) -> int:
    aligned = (
        replace(array, aligned=True).bytes(lane.part.rows) for lane in lanes for _, array in lane.on_disk()
    )
    return sum(aligned)


def held_bytes(graph: Graph) -> int:
    """Bytes of a graph's own arrays that are in memory, not mapped from files."""
    edges = [each for each in graph.in_edges if each is not None]
    return sum(each.nbytes for each in (*_rows_of(graph), *edges) if not is_mapped(each))


def _rows_of(graph: Graph) -> list[NDArray[Any]]:
    arrays = [graph.x, graph.y, graph.ids, graph.train, graph.val, graph.test]
    return [each for each in arrays if each is not None]


def _given(graph: Graph, taken: int) -> Iterator[Allocation]:
    """The program itself, and what the graph holds besides its edges."""
    program = max(taken - held_bytes(graph), 0) + _KERNELS
    yield Allocation("program", program, Lifetime.RUN, "Python, PyTorch, compiled kernels")
    for each in _rows_of(graph):
        is_x = each is graph.x
        name, purpose = (
            ("features", "as they are given") if is_x else ("labels, splits, ids", "as they are given")
        )
        yield Allocation(name, each.nbytes, Lifetime.RUN, purpose, mapped=is_mapped(each))


def _outputs(plan: ServerPlan, needed: NeededRows) -> Iterator[Allocation]:
    """Of a pass that trains nothing: the weights, and what the model gives."""
    one = sum(each.nbytes for each in plan.weights.values())
    yield Allocation("weights", one, Lifetime.RUN, "of the model")
    program = plan.programs["evaluate"]
    row = plan.dtype.itemsize * math.prod(program.shapes[program.phases[-1].outputs[-1]])
    found = round(needed.touched(row) * needed.vertices * row)
    yield Allocation("outputs", found, Lifetime.EPOCHS, "what the model gives")
    yield Allocation("rows' numbers", 2 * _ID * needed.vertices, Lifetime.RUN, "where outputs go")
