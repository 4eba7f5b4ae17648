"""The price of tables on disk: a rough prediction of the seconds that an epoch and its evaluation spend on them."""

from siafu.server.disk_share import SLOTS, DiskCut
from siafu.server.memory.lane_rows import LaneRows
from siafu.server.memory.listing import RunListing, constants_of
from siafu.server.plan import ServerPlan

_DISK = 1.2e9  # bytes that a disk moves in a second
_SUMS = (
    2e10  # bytes of sums that all threads load and store in a second, while they add what a partition brings
)
_STEP = 2e-4  # seconds of a partition's part of a group, besides
_READ_THROUGH = 3  # times that constants are: forth, back, and by the evaluation


def disk_seconds(listing: RunListing, plan: ServerPlan) -> float:
    """Seconds for a plan; listing: of the same run, whatever it spares."""
    cut = plan.savings.disk
    if cut is None:
        return 0.0
    constants = constants_of(plan, listing.parts, on_lambdas=listing.on_lambdas).disk_bytes
    tables = sum(
        _table_seconds(lane, cut) for part in listing.parts for lane in listing.lanes(plan, part).values()
    )
    return tables + _READ_THROUGH * constants / _DISK


def tables_read(cut: DiskCut) -> float:
    """Tables' bytes that a gather reads: each group all partitions, but for one that is there from the group before."""
    if cut.partitions <= SLOTS:
        return 1.0
    return cut.groups - cut.groups / cut.partitions


def _table_seconds(lane: LaneRows, cut: DiskCut) -> float:
    found = 0.0
    for _, array in lane.on_disk():
        size = array.bytes(lane.part.rows)
        written = (array.forward is not None) + (array.backward is not None)
        if array.on_disk == "rows":
            found += 2 * size / _DISK
            continue
        # A training gathers once more on the way back instead of keeping.
        gathers = written + (lane.extent.training and array.forward is not None)
        a_gather = tables_read(cut) * size / _DISK + cut.partitions * (cut.groups * _STEP + 2 * size / _SUMS)
        found += written * size / _DISK + gathers * a_gather
    return found
