"""Fitting: a run made to fit its budget, by measures and by tables on disk, before any array is allocated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from siafu.base.errors import BadInput
from siafu.base.memory import parse_size, refuse_more_than_budget, rounded_up
from siafu.server.disk_share import DiskCut
from siafu.server.memory.disk_choice import on_disk
from siafu.server.memory.disk_price import disk_seconds
from siafu.server.memory.listing import RunListing, disk_bytes
from siafu.server.memory.measures import Choice, choose, choose_if_needed
from siafu.server.memory.server_part import ServerPart
from siafu.server.plan import ServerPlan
from siafu.tables import ScratchDirectory


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
        disk = self.plan.savings.disk
        return [] if disk is None else [_told(disk, self.scratch)]

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
            needed, scratch = (rounded_up(each) for each in self.least)
            disk = f"a directory for {scratch} of tables on disk (scratch), with which {needed} would do, "
        elif self.scratch:
            what = f"{what} with {rounded_up(self.scratch)} of tables on disk"
        refuse_more_than_budget(
            listed.peak, what, f"choose {disk}{remedy}", memory=memory, taken=listed.taken
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
    reason = _not_on_disk(listing)
    if scratch is None:
        least = None if reason else _least_on_disk(listing)
        helps = least is not None and least[0] < choice.listed.peak
        return Fit(saved, choice, budget, least=least if helps else None)
    if reason:
        raise BadInput(f"{reason}: choose that, or give more memory")
    plan = _laid_out(listing, scratch.path, budget)
    size = disk_bytes(plan)
    scratch.refuse_more_than_free(size)
    return Fit(plan, choose(listing.again(plan), budget), budget, size)


def without_far_blocks(listing: RunListing, budget: int | None) -> RunListing:
    """The listing of a run without the blocks of edges that its advisor asks for, where it does not fit with them."""
    if listing.plan.advisor is None or budget is None or listing.listed.peak <= budget:
        return listing
    return listing.again(replace(listing.plan, advisor=None))


def fit_apart(
    plan: ServerPlan, parts: Sequence[ServerPart], memory: str, *, on_lambdas: bool
) -> tuple[ServerPlan, list[str]]:
    """The plan of servers that are processes of their own, each within `memory`, and the choice in words.

    All servers go through the same stages: they spare the same. The least is told of a server that cannot be within it. A
    server's process is taken to hold what this one does; each looks again when it knows.
    """
    budget = parse_size(memory)
    listings = [RunListing.of(plan, [part], on_lambdas=on_lambdas) for part in parts]
    choices = [choose_if_needed(each, budget) for each in listings]
    names = dict.fromkeys(each.name for choice in choices for each in choice.measures)
    savings = plan.savings
    for choice in choices:
        savings = savings | choice.savings
    for server, listing in enumerate(listings):
        needed = listing.saving(savings).peak
        if needed > budget:
            raise BadInput(
                f"graph server {server} needs {rounded_up(needed)} of memory, and memory is {memory}: give each at least that, "
                "ask for more servers, or choose narrower layers (hidden)"
            )
    seconds = max(choice.seconds for choice in choices)
    told = f"to fit into {rounded_up(budget)} each: {'; '.join(names)} (about {seconds:,.1f} s more an epoch)"
    return plan.saving(savings), [told] if names else []


def _not_on_disk(listing: RunListing) -> str:
    """The reason why no table can be on disk; empty: they can."""
    if listing.plan.options.mode == "async":
        return "tables are on disk only in modes sync and pipe"
    if len(listing.parts) > 1 or listing.on_lambdas:
        return "tables are on disk only on one server without Lambdas"
    return ""


def _least_on_disk(listing: RunListing) -> tuple[int, int]:
    """The least memory, and the disk that it takes."""
    plan = _laid_out(listing, Path(), 0)
    return listing.again(plan).listed.peak, disk_bytes(plan)


def _laid_out(listing: RunListing, directory: Path, budget: int) -> ServerPlan:
    """The plan with tables on disk."""
    return on_disk(
        listing.plan,
        directory,
        budget,
        lambda each: listing.saving(each.savings),
        lambda each: disk_seconds(listing, each),
    )


def _told(disk: DiskCut, scratch: int) -> str:
    """Tables on disk, in words."""
    what = [("tables of rows" if disk.rows else "tables that edges read")] if disk.tables else []
    if disk.constants:
        what.append("constant rows")
    cut = f", {disk.groups} groups of rows, {disk.partitions} partitions of sources" if disk.tables else ""
    return f"{' and '.join(what)} are on disk: {scratch / 1e6:,.0f} MB in {disk.directory}{cut}"
