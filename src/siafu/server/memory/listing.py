"""The list of a run's arrays, made before any of them is allocated: of a plan, and of the process as it is now."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from siafu.base.hardware.memory import own_bytes
from siafu.base.threads import thread_count
from siafu.graph import Graph
from siafu.kernels import LANES
from siafu.pipeline.ids import LaneName
from siafu.server.costs.extent import Extent
from siafu.server.gathers.registry import behaviour_of
from siafu.server.memory.constants import ConstantSizes
from siafu.server.memory.disk_share import WRITTEN_BEHIND
from siafu.server.memory.edge_copies import EdgeCopies, bucket_bytes, graph_edges, is_mapped
from siafu.server.memory.lane_rows import LaneRows
from siafu.server.memory.memory_list import Allocation, Lifetime, MemoryList
from siafu.server.memory.needed_rows import NeededRows
from siafu.server.memory.savings import Savings
from siafu.server.memory.server_part import ServerPart, focused_part, parts_of, whole_part
from siafu.server.plan import ServerPlan
from siafu.tables.page_pool import IDLE_BYTES

_KERNELS = 40 << 20  # bytes that compiled kernels take once they are loaded
_VERSIONS = 2  # of the weights at a time, where tasks overlap
_STATES = {"sgd": 0}  # arrays of an optimizer's state for each weight; others have 2
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
    always:  what no saving changes but the disk
    taken:   bytes that the process holds already
    besides: arrays of others in this process
    """

    plan: ServerPlan
    parts: Sequence[ServerPart]
    needs: Mapping[LaneName, NeededRows]
    extents: Mapping[LaneName, Extent]
    always: Sequence[Allocation]
    taken: int
    on_lambdas: bool
    besides: Sequence[Allocation] = ()
    _lists: dict[Savings, MemoryList] = field(default_factory=dict, repr=False)

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
        always = tuple(_always(plan, parts, needs, taken, on_lambdas))
        return cls(plan, parts, needs, extents, always, taken, on_lambdas, besides)

    @property
    def listed(self) -> MemoryList:
        """The list, as the plan spares memory."""
        return self.saving(self.plan.savings)

    def again(self, plan: ServerPlan) -> "RunListing":
        """The same for a plan that spares memory in another way."""
        return RunListing.of(plan, self.parts, self.taken, on_lambdas=self.on_lambdas, besides=self.besides)

    def saving(self, savings: Savings) -> MemoryList:
        """The list; made once for each way."""
        if savings not in self._lists:
            always: Iterable[Allocation] = self.always
            if savings.disk != self.plan.savings.disk:
                plan = self.plan.saving(savings)
                always = _always(plan, self.parts, self.needs, self.taken, self.on_lambdas)
            found = MemoryList.of((*always, *self._rows(savings), *self.besides), self.taken)
            self._lists[savings] = found
        return self._lists[savings]

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
            )
            for lane in plan.programs
        }

    def _rows(self, savings: Savings) -> Iterator[Allocation]:
        plan = self.plan if savings == self.plan.savings else self.plan.saving(savings)
        blocks = 0
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
        yield Allocation(
            "tasks' blocks", thread_count() * blocks, Lifetime.TASK, "rows that threads compute at the moment"
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


def _always(
    plan: ServerPlan,
    parts: Sequence[ServerPart],
    needs: Mapping[LaneName, NeededRows],
    taken: int,
    on_lambdas: bool,
) -> Iterator[Allocation]:
    graph = plan.graph
    yield from _given(graph, taken)
    yield from _edges(plan, parts, needs)
    constants = constants_of(plan, parts, on_lambdas=on_lambdas)
    yield from constants.listed()
    for part in _focused_parts(plan):
        yield from constants.picked(plan.programs["train"], part.vertices)
    yield from _weights(plan) if plan.trains else _outputs(plan, needs["evaluate"])
    for part in (*parts, *_focused_parts(plan)):
        yield Allocation("vertices", _VERTEX * part.vertices, Lifetime.SERVERS, "their ids and factors")


def _part_of(plan: ServerPlan, lane: LaneName, part: ServerPart) -> ServerPart:
    """The part of a server whose rows a lane computes."""
    return focused_part(plan.graph, plan.focus) if plan.focus is not None and lane == "train" else part


def _focused_parts(plan: ServerPlan) -> Sequence[ServerPart]:
    """The training's own part, where it has one."""
    return [] if plan.focus is None else [focused_part(plan.graph, plan.focus)]


def _edges(
    plan: ServerPlan, parts: Sequence[ServerPart], needs: Mapping[LaneName, NeededRows]
) -> Iterator[Allocation]:
    graph, itemsize, mapped = plan.graph, plan.dtype.itemsize, plan.savings.disk is not None
    steps = (step for each in plan.programs.values() for group in each.gathers for step in group)
    numbered = any(step.site.features for step in steps)
    yield from graph_edges(graph, [*parts, *_focused_parts(plan)], on_disk=mapped, numbered=numbered)
    cut = plan.savings.disk
    partitions = cut.partitions if cut is not None and cut.buckets and cut.tables else 0
    for part in parts:
        copies = EdgeCopies(
            graph, part, itemsize, plan.gathers_on_disk, mapped, plan.advisor, partitions=partitions
        )
        for lane, program in plan.programs.items() if plan.focus is not None else ():
            own = replace(copies, part=_part_of(plan, lane, part))
            yield from own.of({lane: program}, needs)
        if plan.focus is None:
            yield from copies.of(plan.programs, needs)
    if cut is not None and cut.buckets and cut.constants:
        edges, weight = sum(part.edges for part in parts), 0 if graph.edge_weight is None else itemsize
        found = bucket_bytes(graph, graph.num_vertices, edges, cut.constant_partitions, weight)
        yield Allocation(
            "edges in buckets, to fold", found, Lifetime.FOLDING, "each is read once", mapped=True
        )
    if plan.partition.parts > 1:
        whole, on_disk = whole_part(graph), plan.gathers_on_disk
        copies = EdgeCopies(graph, whole, itemsize, on_disk, advisor=plan.advisor, columns=True)
        yield from copies.of(plan.programs, needs)


def constants_of(plan: ServerPlan, parts: Sequence[ServerPart], *, on_lambdas: bool) -> ConstantSizes:
    """Rows that are made of the features once."""
    return ConstantSizes(
        plan.graph,
        plan.programs,
        plan.dtype,
        normalize=plan.options.normalize_features,
        sparse=not on_lambdas,
        vertices=sum(part.vertices for part in parts),
        servers=len(parts),
        disk=plan.savings.disk,
    )


def disk_bytes(plan: ServerPlan, parts: Sequence[ServerPart]) -> int:
    """Bytes of all tables on disk, and of copies of edges; parts: the servers of one process."""
    listing = RunListing.of(plan, parts)
    constants = constants_of(plan, parts, on_lambdas=False).disk_bytes
    constants += sum(round(part.share * constants) for part in _focused_parts(plan))
    edges = [each for each in _edges(plan, parts, listing.needs) if each.mapped and each.name != "in-edges"]
    # What is there while constants are made is gone when the last copies are.
    folding, later = (
        sum(each.bytes for each in edges if (each.lifetime == Lifetime.FOLDING) == early)
        for early in (True, False)
    )
    constants += max(folding, later)
    return constants + sum(_disk_bytes(listing.lanes(plan, part).values()) for part in parts)


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


def _given(graph: Graph, taken: int) -> Iterator[Allocation]:
    """The program itself, and what the graph holds besides its edges."""
    arrays = [graph.x, graph.y, graph.ids, graph.train, graph.val, graph.test]
    rows = [each for each in arrays if each is not None]
    edges = [each for each in graph.in_edges if each is not None]
    inside = sum(each.nbytes for each in (*rows, *edges) if not is_mapped(each))
    yield Allocation(
        "program", max(taken - inside, 0) + _KERNELS, Lifetime.RUN, "Python, PyTorch, compiled kernels"
    )
    for each in rows:
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


def _weights(plan: ServerPlan) -> Iterator[Allocation]:
    one = sum(each.nbytes for each in plan.weights.values())
    yield Allocation(
        "weights", one * (_VERSIONS + 1), Lifetime.EPOCHS, "versions that tasks use, and the best"
    )
    tasks = min(thread_count(), sum(plan.interval_counts)) + 1
    yield Allocation("gradients of weights", one * tasks, Lifetime.TASK, "of running tasks, and their sum")
    states = _STATES.get(plan.settings.optimizer, 2)
    yield Allocation("optimizer", one * states, Lifetime.EPOCHS, f"state of {plan.settings.optimizer}")
