"""The price of tables on disk: a rough prediction of the seconds that an epoch and its evaluation spend on them."""

from siafu.base.hardware.memory import free_bytes
from siafu.server.fusion import gathers_again
from siafu.server.memory.disk_share import SLOTS, DiskCut
from siafu.server.memory.lane_rows import LaneRows
from siafu.server.memory.listing import RunListing, constants_of
from siafu.server.memory.measures import more_seconds
from siafu.server.plan import ServerPlan

_DISK = 1.2e9  # bytes that a disk moves in a second
_REQUEST = 5e-4  # seconds of a read besides its bytes: a thread asks, another waits
_SUMS = (
    2e10  # bytes of sums that all threads load and store in a second, while they add what a partition brings
)
_STEP = 5e-4  # seconds of a partition's part of a group, besides: threads begin and wait for each other
_CACHE = 3  # times a group's edges that the system's cache must have room for to keep them beside what else is read
_COUNT = 4  # bytes of the number of a row's edges in a bucket
_MADE = 0.1  # of two passes over the edges: the part of an epoch in making the copy
_READ_THROUGH = 3  # times that constants are: forth, back, and by the evaluation


def disk_seconds(listing: RunListing, plan: ServerPlan) -> float:
    """Seconds for a plan, with those of what is computed again; listing: of the same run, whatever it spares."""
    cut = plan.savings.disk
    if cut is None:
        return 0.0
    constants = constants_of(plan, listing.parts, on_lambdas=listing.on_lambdas).disk_bytes
    room = free_bytes()
    room = None if room is None else max(0, room + listing.taken - listing.saving(plan.savings).peak)
    tables = sum(
        _table_seconds(lane, cut) + _edge_seconds(lane, cut, room)
        for part in listing.parts
        for lane in listing.lanes(plan, part).values()
    )
    return tables + _READ_THROUGH * constants / _DISK + more_seconds(listing, plan.savings)


def tables_read(cut: DiskCut) -> float:
    """Tables' bytes that a gather reads: each group all partitions, but for one that is there from the group before."""
    if cut.partitions <= SLOTS:
        return 1.0
    return cut.groups - cut.groups / cut.partitions


def largest_table(listing: RunListing, plan: ServerPlan) -> int:
    """Bytes of the largest table that edges read; plan: with tables on disk."""
    tables = (
        array.bytes(part.rows)
        for part in listing.parts
        for lane in listing.lanes(plan, part).values()
        for _, array in lane.on_disk()
        if array.on_disk == "source"
    )
    return max(tables, default=0)


def _table_seconds(lane: LaneRows, cut: DiskCut) -> float:
    found = 0.0
    again = gathers_again(lane.extent.program, lane.extent.savings) if lane.extent.training else frozenset()
    for stage, array in lane.on_disk():
        size = array.bytes(lane.part.rows)
        written = (array.forward is not None) + (array.backward is not None)
        if array.on_disk == "rows":
            found += 2 * size / _DISK
            continue
        gathers = written + (array.forward is not None and stage.phase - 1 in again)
        reads = tables_read(cut) * cut.partitions
        a_gather = reads * (size / cut.partitions / _DISK + _REQUEST)
        a_gather += cut.partitions * (cut.groups * _STEP + 2 * size / _SUMS)
        found += written * size / _DISK + gathers * a_gather
    return found


def _edge_seconds(lane: LaneRows, cut: DiskCut, room: int | None) -> float:
    """Seconds for edges that are read from the store, or from their copy in the order of buckets.

    room: memory for pages of mapped files; None: enough
    """
    if room is None:
        return 0.0
    found, graph = 0.0, lane.plan.graph
    edge = graph.indices.itemsize + (0 if graph.edge_weight is None else graph.edge_weight.itemsize)
    again = gathers_again(lane.extent.program, lane.extent.savings) if lane.extent.training else frozenset()
    for stage, array in lane.on_disk():
        if array.on_disk != "source":
            continue
        share = lane.needed.edge_share if stage.phase == lane.extent.last else 1.0
        size = share * edge * lane.part.edges
        gathers = (array.forward is not None) * (1 + (stage.phase - 1 in again)) + (
            array.backward is not None
        )
        found += gathers * edges_read(cut, size, lane.part.vertices, room) / _DISK
    return found


def edges_read(cut: DiskCut, size: float, rows: int, room: int) -> float:
    """Bytes of edges that a gather reads from a disk, its part of making their copy included.

    size: of all edges; rows: that are gathered for
    room: memory for pages of mapped files: what is there from a walk before is not read again
    """
    if size <= room:
        return 0.0
    if cut.buckets:
        return size * (1 + _MADE) + _COUNT * rows * cut.partitions
    missed = min(1.0, _CACHE * size / cut.groups / max(1, room))
    return size * (1 + (cut.partitions - 1) * missed)
