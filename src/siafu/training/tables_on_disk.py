"""A training that does not fit memory, with tables on disk: what is chosen, what is refused, and how it is told."""

from siafu.base.errors import BadInput
from siafu.options import Options
from siafu.server.memory.disk_choice import on_disk
from siafu.server.memory.listing import RunListing, disk_bytes
from siafu.server.plan import ServerPlan
from siafu.tables import ScratchDirectory


def with_tables_on_disk(
    plan: ServerPlan, scratch: ScratchDirectory, budget: int, options: Options, *, on_lambdas: bool
) -> ServerPlan:
    """The plan with tables on disk, within `budget` bytes if that can be; what cannot be on disk is refused."""
    if options.mode == "async":
        raise BadInput("tables are on disk only in modes sync and pipe: choose one, or give more memory")
    if options.servers > 1 or on_lambdas:
        raise BadInput(
            "tables are on disk only on one server without Lambdas: choose that, or give more memory"
        )
    listing = RunListing.of(plan, on_lambdas=on_lambdas)
    found = on_disk(plan, scratch.path, budget, lambda tried: listing.saving(tried.savings))
    scratch.refuse_more_than_free(disk_bytes(found))
    return found


def told(plan: ServerPlan) -> str:
    """In words."""
    disk = plan.savings.disk
    assert disk is not None
    what = []
    if disk.tables:
        what.append("tables of rows" if disk.rows else "tables that edges read")
    if disk.constants:
        what.append("constant rows")
    cut = f", {disk.groups} groups of rows, {disk.partitions} partitions of sources" if disk.tables else ""
    return f"{' and '.join(what)} are on disk: {disk_bytes(plan) / 1e6:,.0f} MB in {disk.directory}{cut}"
