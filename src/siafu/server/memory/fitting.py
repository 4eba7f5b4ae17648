"""Fitting: a run made to fit its budget, by measures and by tables on disk, before any array is allocated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from siafu.base.errors import BadInput
from siafu.base.hardware.memory import parse_size, refuse_more_than_budget, rounded_up
from siafu.server.costs.overlap import overlapped
from siafu.server.gathers.registry import held_by_step
from siafu.server.memory.disk_choice import on_disk
from siafu.server.memory.disk_price import disk_seconds, largest_table, moving_seconds
from siafu.server.memory.listing import RunListing
from siafu.server.memory.measures import Choice, choose, choose_if_needed, more_seconds
from siafu.server.memory.memory_list import Lifetime
from siafu.server.memory.savings import Savings
from siafu.server.memory.server_part import ServerPart
from siafu.server.plan import ServerPlan
from siafu.tables import ScratchDirectory

_UNEVEN = 4 << 20
"""Bytes by which two processes of one command may differ before they have any data: what is told to be enough has them, too."""
_ROWS_TOLD = {
    (True, True): "tables of rows",
    (True, False): "tables that edges read",
    (False, True): "rows that stay at their vertices",
}  # by whether tables that edges read are on disk, and whether others are


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A plan as it fits its budget, or as near to it as it comes.

    plan:    with everything that it spares
    choice:  the measures that were taken, and the arrays then
    budget:  bytes that the process may take; None: any amount
    scratch: bytes of its tables on disk
    least:   memory and disk with which a plan would do that has no scratch directory yet; None: a disk would not help
    """

    plan: ServerPlan
    choice: Choice
    budget: int | None
    scratch: int = 0
    least: tuple[int, int] | None = None

    @property
    def fits(self) -> bool:
        return self.budget is None or self.choice.listed.peak <= self.budget

    def told(self) -> list[str]:
        """Decisions, in words; nothing where everything fits as it is."""
        found = []
        if self.choice.measures:
            found.append(f"to fit into {rounded_up(self.budget or 0)}: {self.choice}")
        return found + self.disk_told()

    def disk_told(self) -> list[str]:
        """Tables on disk, in words; nothing where all are in memory."""
        return [] if self.plan.savings.disk is None else [_told(self.plan, self.scratch)]

    def refuse_misfit(self, what: str, remedy: str, *, memory: str | None) -> None:
        """Refuse what does not fit, in one line, with the least that would do.

        what:   name of the work
        remedy: other things to do about it
        memory: the size that was asked for; None: what is free
        """
        if self.fits:
            return
        listed, disk = self.choice.listed, ""
        if self.least is not None:
            needed, scratch = self.least
            disk = f"a directory for {rounded_up(scratch)} of tables on disk (scratch), with which {_enough(needed)} would do, "
        elif self.scratch:
            what = f"{what} with {rounded_up(self.scratch)} of tables on disk"
        refuse_more_than_budget(
            listed.peak + _UNEVEN, what, f"choose {disk}{remedy}", memory=memory, taken=listed.taken
        )


def fit(listing: RunListing, budget: int | None, scratch: ScratchDirectory | None = None) -> Fit:
    """The cheapest way in which a run fits: as it is, with measures, with tables on disk.

    scratch: for tables on disk; None: all are in memory
    """
    listing = without_far_blocks(listing, budget)
    choice = choose_if_needed(listing, budget)
    saved = listing.plan.saving(choice.savings)
    found = Fit(saved, choice, budget)
    if found.fits or budget is None or saved.savings.disk is not None:
        return found
    reason = _not_on_disk(listing.plan, on_lambdas=listing.on_lambdas)
    if scratch is None:
        least = None if reason else _least_on_disk(listing.plan, [listing])
        helps = least is not None and least[0] < choice.listed.peak
        return Fit(saved, choice, budget, least=least if helps else None)
    if reason:
        raise BadInput(f"{reason}: choose that, or give more memory")
    plan = _laid_out(listing.plan, [listing], scratch.path, budget, scratch.free)
    size = listing.disk_bytes(plan)
    scratch.refuse_more_than_free(size)
    return Fit(plan, choose(listing.again(plan), budget), budget, size)


def without_far_blocks(listing: RunListing, budget: int | None) -> RunListing:
    """The listing of a run without the blocks of edges that its advisor asks for, where it does not fit with them."""
    if listing.plan.advisor is None or budget is None or listing.listed.peak <= budget:
        return listing
    return listing.again(replace(listing.plan, advisor=None))


def fit_apart(
    plan: ServerPlan,
    parts: Sequence[ServerPart],
    memory: str,
    *,
    on_lambdas: bool,
    scratch: Path | None = None,
) -> tuple[ServerPlan, list[str]]:
    """The plan of servers that are processes of their own, each within `memory`, and the choice in words.

    All servers go through the same stages: they spare the same. The least is told of a server that cannot be within it. A
    server's process is taken to hold what this one does; each looks again when it knows.

    scratch: a directory for tables on disk, which every server's machine has; None: all are in memory
    """
    budget = parse_size(memory)
    listings = [RunListing.of(plan, [part], on_lambdas=on_lambdas) for part in parts]
    found = fit_servers(listings, budget, scratch)
    if not found.fits:
        least = None if scratch is not None else least_of_servers(listings)
        disk = "" if least is None else _disk_would_do(*least)
        _refuse_apart(listings, found.plan.savings, memory, disk)
    begin = f"to fit into {rounded_up(budget)} each:"
    if found.plan.savings.disk is not None:
        told = _told(found.plan, found.scratch)
        return found.plan, [f"{begin} {told} at most, on each server's disk"]
    more = f"{'; '.join(found.measures)} (about {found.seconds:,.1f} s more an epoch)"
    return found.plan, [f"{begin} {more}"] if found.measures else []


@dataclass(frozen=True, slots=True, eq=False)
class ServersFit:
    """Servers in processes of their own as they fit a budget, or as near to it as they come; all spare the same.

    plan:     with everything that they spare
    peak:     bytes of the server that needs most; copy: of a warm copy of it, which has no rows of epochs
    budget:   bytes that each may take
    measures: names of what is spared; nothing where all fit as they are, or have tables on disk
    seconds:  that an epoch computes longer by it
    disk_seconds: of the disk in an epoch, with its share of an evaluation: tables, and edges that do not stay in memory
    scratch:  bytes of the largest server's tables on disk; free: bytes that a disk has; None: that is not known
    """

    plan: ServerPlan
    peak: int
    copy: int
    budget: int
    measures: tuple[str, ...] = ()
    seconds: float = 0.0
    disk_seconds: float = 0.0
    scratch: int = 0
    free: int | None = None

    def epoch(self, seconds: float) -> float:
        """Seconds of an epoch that would take so many if nothing were spared: the disk is busy beside it."""
        return overlapped(seconds + self.seconds, self.disk_seconds)

    @property
    def fits(self) -> bool:
        return self.peak <= self.budget and (self.free is None or self.scratch <= self.free)


def fit_servers(
    listings: Sequence[RunListing], budget: int, scratch: Path | None = None, free: int | None = None
) -> ServersFit:
    """The cheapest way in which all servers fit: as they are, with measures, with tables on disk.

    listings: one for each server, all of one plan
    scratch:  a directory for tables on disk, which every server's machine has; None: all are in memory
    free:     bytes that a server's disk has left; None: that is not known here
    """
    plan = listings[0].plan
    choices = [choose_if_needed(each, budget) for each in listings]
    names = dict.fromkeys(each.name for choice in choices for each in choice.measures)
    savings = plan.savings
    for choice in choices:
        savings = savings | choice.savings
    seconds = max(choice.seconds for choice in choices)
    found = _servers_fit(listings, plan.saving(savings), budget, tuple(names), seconds)
    if found.fits or scratch is None or _not_on_disk(plan, on_lambdas=listings[0].on_lambdas):
        return found
    laid_out = _laid_out(plan, listings, scratch, budget, free)
    seconds = max(more_seconds(each, laid_out.savings) for each in listings)
    return replace(
        _servers_fit(listings, laid_out, budget, (), seconds),
        scratch=max(each.disk_bytes(laid_out) for each in listings),
        free=free,
    )


def _servers_fit(
    listings: Sequence[RunListing], plan: ServerPlan, budget: int, names: tuple[str, ...], seconds: float
) -> ServersFit:
    lists = [each.saving(plan.savings) for each in listings]
    copy = max(each.bytes_of(Lifetime.RUN, Lifetime.SERVERS) for each in lists)
    moving = max(moving_seconds(each, plan) for each in listings)
    return ServersFit(plan, max(each.peak for each in lists), copy, budget, names, seconds, moving)


def least_of_servers(listings: Sequence[RunListing]) -> tuple[int, int] | None:
    """The least memory of each server, and the disk that it takes; None: no table can be on disk."""
    plan = listings[0].plan
    if _not_on_disk(plan, on_lambdas=listings[0].on_lambdas):
        return None
    return _least_on_disk(plan, listings)


def _refuse_apart(listings: Sequence[RunListing], savings: Savings, memory: str, disk: str) -> None:
    """Refuse servers of which one needs more than `memory`; disk: what a disk would do about it."""
    for server, listing in enumerate(listings):
        needed = listing.saving(savings).peak
        if needed > parse_size(memory):
            raise BadInput(
                f"graph server {server} needs {_enough(needed)} of memory, and memory is {memory}: give each at least that, "
                f"{disk}ask for more servers, or choose narrower layers (hidden)"
            )


def _disk_would_do(memory: int, disk: int) -> str:
    return f"choose a directory for {rounded_up(disk)} of tables on disk of each (scratch), with which {_enough(memory)} would do, "


def _enough(needed: int) -> str:
    """The memory that is told to be enough."""
    return rounded_up(needed + _UNEVEN)


def _not_on_disk(plan: ServerPlan, *, on_lambdas: bool) -> str:
    """The reason why no table can be on disk; empty: they can."""
    if plan.options.mode == "async":
        return "tables are on disk only in modes sync and pipe"
    if on_lambdas:
        return "tables are on disk only without Lambdas"
    return ""


def _least_on_disk(plan: ServerPlan, listings: Sequence[RunListing]) -> tuple[int, int]:
    """The least memory, and the disk that it takes; listings: one for each process."""
    laid_out = _laid_out(plan, listings, Path(), 0)
    return (
        max(each.again(laid_out).listed.peak for each in listings),
        max(each.disk_bytes(laid_out) for each in listings),
    )


def _laid_out(
    plan: ServerPlan,
    listings: Sequence[RunListing],
    directory: Path,
    budget: int,
    free: int | None = None,
) -> ServerPlan:
    """The plan with tables on disk.

    listings: one for each process
    free:     bytes that a process's disk has left; None: that is not known here
    """
    return on_disk(
        plan,
        directory,
        budget,
        lambda each: max((one.saving(each.savings) for one in listings), key=lambda found: found.peak),
        lambda each: max(disk_seconds(one, each) for one in listings),
        lambda each: max(largest_table(one, each) for one in listings),
        lambda each: free is None or max(one.disk_bytes(each) for one in listings) <= free,
    )


def _told(plan: ServerPlan, scratch: int) -> str:
    """Tables on disk, in words."""
    disk = plan.savings.disk
    assert disk is not None
    what = [_ROWS_TOLD[disk.tables, disk.rows]] if disk.tables or disk.rows else []
    if disk.constants:
        what.append("constant rows")
    cut = f", {disk.groups} groups of rows, {disk.partitions} partitions of sources" if disk.tables else ""
    copied = ", edges in that order" if disk.buckets else ""
    held = ", ".join(f"G{depth + 1}" for depth in sorted(disk.held))
    copied += f", rows that {held} reads in memory" if held else ""
    kept = ", tables of gathers by columns in memory" if disk.tables and _some_stay(plan) else ""
    return f"{' and '.join(what)} are on disk: {scratch / 1e6:,.0f} MB in {disk.directory}{cut}{copied}{kept}"


def _some_stay(plan: ServerPlan) -> bool:
    """Whether rows that edges read are in memory for some gather, which cannot read them from disk."""
    return any(
        not any(
            each.on_disk for each in held_by_step(step, step.site.width, plan.dtype.itemsize, training=True)
        )
        for program in plan.programs.values()
        for group in program.gathers
        for step in group
    )
