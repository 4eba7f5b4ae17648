"""The price of tables on disk: a rough prediction of the seconds that an epoch, with its share of an evaluation, spends on them."""

from siafu.kernels import block_size
from siafu.pipeline.schedule import Stage
from siafu.server.costs.held_array import HeldArray
from siafu.server.fusion import gathers_again
from siafu.server.gathers.local_gather import stored_size
from siafu.server.memory.disk_share import DiskCut
from siafu.server.memory.edge_copies import is_mapped, slabs
from siafu.server.memory.lane_rows import LaneRows
from siafu.server.memory.listing import RunListing
from siafu.server.memory.measures import more_seconds
from siafu.server.plan import ServerPlan

_REQUEST = 5e-4  # seconds of a read besides its bytes: a thread asks, another waits
_SUMS = (
    2e10  # bytes of sums that all threads load and store in a second, while they add what a partition brings
)
_STEP = 5e-4  # seconds of a partition's part of a group, besides: threads begin and wait for each other
_CACHE = 3  # times a group's edges that the system's cache must have room for to keep them beside what else is read
_PASSING = 2  # partitions that change: one is used while another is read
_COUNT = 4  # bytes of the number of a row's edges in a bucket
_MADE = 0.1  # of two passes over the edges: the part of an epoch in making the copy
_READ_THROUGH = 2  # times that constants are: forth and back; once more by an evaluation


def disk_seconds(listing: RunListing, plan: ServerPlan) -> float:
    """Seconds for a plan, with those of what is computed again; listing: of the same run, whatever it spares."""
    if plan.savings.disk is None:
        return 0.0
    return moving_seconds(listing, plan) + more_seconds(listing, plan.savings)


def moving_seconds(listing: RunListing, plan: ServerPlan) -> float:
    """Seconds of the disk alone; without tables on disk, for edges that do not stay in memory beside the server."""
    cut = plan.savings.disk
    hardware, evaluations = listing.hardware, 1 / plan.options.evaluate_every
    constants = listing.constants(plan).disk_bytes
    room = hardware.page_room(listing.saving(plan.savings).peak, listing.taken)
    stay = room is None or listing.edge_pages(plan) <= room
    tables = sum(
        (1.0 if name == "train" or not plan.trains else evaluations)
        * ((0.0 if cut is None else _table_seconds(lane, cut)) + _edge_seconds(lane, cut, room, stay=stay))
        for part in listing.parts
        for name, lane in listing.lanes(plan, part).items()
    )
    through = (_READ_THROUGH + evaluations) * constants / hardware.read_bytes_s
    return tables + through


def tables_read(cut: DiskCut) -> float:
    """Tables' bytes that a gather reads: each group all partitions, but for those that are there from the group before."""
    if cut.partitions <= cut.slots:
        return 1.0
    changing = cut.groups * (cut.partitions - cut.slots + _PASSING)
    first_and_missing = cut.partitions + (cut.groups - 1) * (cut.partitions - cut.slots)
    return max(changing, first_and_missing) / cut.partitions


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
    found, disk = 0.0, lane.hardware
    for stage, array in lane.on_disk():
        size = array.bytes(lane.part.rows)
        written = (array.forward is not None) + (array.backward is not None)
        if array.on_disk == "rows":
            found += size / disk.read_bytes_s + size / disk.write_bytes_s
            continue
        a_gather = (
            _collect_seconds(lane, cut, stage, array) if array.is_collected else _sum_seconds(lane, cut, size)
        )
        through = 0 if array.grouped is None else array.grouped.through
        found += written * size / disk.write_bytes_s + through * size / disk.read_bytes_s
        found += _walks(lane, stage, array) * a_gather
    return found


def _sum_seconds(lane: LaneRows, cut: DiskCut, size: int) -> float:
    """Of one gather that adds up what each partition of a table brings."""
    reads = tables_read(cut) * cut.partitions
    found = reads * (size / cut.partitions / lane.hardware.read_bytes_s + _REQUEST)
    return found + cut.partitions * (cut.groups * _STEP + 2 * size / _SUMS)


def _collect_seconds(lane: LaneRows, cut: DiskCut, stage: Stage, array: HeldArray) -> float:
    """Of one gather that collects the sources of each group from a table."""
    size, groups = array.bytes(lane.part.rows), lane.collects(cut, stage, array)
    reads = 1 if groups == 1 else groups * cut.partitions
    copied = 0.0 if groups == 1 else 2 * size / _SUMS
    return groups * (size / lane.hardware.read_bytes_s + copied) + reads * (_REQUEST + _STEP)


def _walks(lane: LaneRows, stage: Stage, array: HeldArray) -> int:
    """Times that an epoch gathers from a table on disk: forth, perhaps once more, and back."""
    training = lane.extent.training
    again = training and stage.phase - 1 in gathers_again(lane.extent.program, lane.extent.savings)
    if array.is_collected and array.rows != "forward":
        return int(array.rows == "backward")  # of own rows nothing is gathered
    forth = 1 + again if array.forward is not None else 0
    return forth + (array.reads_back if training else 0) + (array.backward is not None)


def _edge_seconds(lane: LaneRows, cut: DiskCut | None, room: int | None, *, stay: bool) -> float:
    """Seconds for edges that are read from the store, or from their copy in the order of buckets.

    room: memory for pages of mapped files; None: enough
    stay: whether it has room for all edges that an epoch walks
    """
    if room is None:
        return 0.0
    found, on_disk = 0.0, set[int]()
    again = gathers_again(lane.extent.program, lane.extent.savings) if lane.extent.training else frozenset()
    for stage, array in lane.on_disk():
        if array.on_disk != "source":
            continue
        assert cut is not None
        on_disk.add(stage.phase)
        size = _edge_bytes(lane, stage)
        found += _walks(lane, stage, array) * edges_read(cut, size, lane.part.vertices, room)
    mapped = is_mapped(lane.plan.graph.indices) if lane.part.alone else cut is not None
    read = mapped and not stay
    for stage in (each for each in lane.stages if read and each.kind.reads and each.phase not in on_disk):
        walks = 1 + (stage.direction == "backward" and stage.phase - 1 in again)
        found += 0.0 if _goes_by_blocks(lane, stage) else walks * _edge_bytes(lane, stage)
    return found / lane.hardware.read_bytes_s


def _edge_bytes(lane: LaneRows, stage: Stage) -> float:
    """Of the edges that a gather walks."""
    graph = lane.plan.graph
    edge = graph.indices.itemsize + (0 if graph.edge_weight is None else graph.edge_weight.itemsize)
    return (lane.needed.edge_share if stage.phase == lane.extent.last else 1.0) * edge * lane.part.edges


def _goes_by_blocks(lane: LaneRows, stage: Stage) -> bool:
    """Whether a gather walks a copy of the edges that is in memory."""
    part, cache = lane.part, lane.hardware.near_cache
    sizes = (
        size
        for step in lane.extent.steps(stage)
        for _, size in slabs(step.site.width, stored_size(step.site.gather, lane.extent.itemsize))
    )
    return all(
        block_size(part.vertices, part.edges, size, sources=part.rows.forward, cache=cache) for size in sizes
    )


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
