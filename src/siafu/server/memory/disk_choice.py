"""How a run that does not fit memory is laid out with tables on disk."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from siafu.server.fusion import alike
from siafu.server.memory.disk_share import CONSTANT_PARTITIONS, DiskCut
from siafu.server.memory.memory_list import MemoryList
from siafu.server.memory.savings import Savings
from siafu.server.plan import ServerPlan
from siafu.server.rows.constants_on_disk import can_be_on_disk

_FEW_GROUPS = (2, 4)
_GROUPS = (2, 4, 8, 16, 32, 64)
_PARTITIONS_A_GROUP = 2
_HELD = 3  # gathers at most whose rows stay in memory while others' are on disk
_FOLDED = (1, 2, 4, 8, 16, 32, 64)  # groups of rows that constants are gathered in
LEAST_READ = 1 << 20
"""Bytes of a partition: below, reading it takes no less time, and hardly any memory is spared."""


def on_disk(
    plan: ServerPlan,
    directory: Path,
    budget: int,
    listed: Callable[[ServerPlan], MemoryList],
    price: Callable[[ServerPlan], float],
    table_bytes: Callable[[ServerPlan], int],
    has_disk: Callable[[ServerPlan], bool],
) -> ServerPlan:
    """The plan with tables on disk, the cheapest that fits, of equals the first; that which takes least, if none does.

    listed: makes the list of a plan's arrays
    price:  seconds that a plan's tables on disk take
    table_bytes: of the largest table that edges read
    has_disk: whether the disk has room for a plan's files; of those that fit, one that has it is taken
    """
    ways = (plan.saving(way) for way in _ways(plan, directory, table_bytes))
    tried = [(each, listed(each).peak) for each in ways]
    fitting = [each for each, peak in tried if peak <= budget]
    if fitting:
        bucketed = [each for each in map(_in_buckets, fitting) if listed(each).peak <= budget]
        by_price = sorted((*fitting, *bucketed), key=price)
        cheapest = next(each for each in by_price if each not in bucketed)
        best = next(filter(has_disk, by_price), cheapest)  # where none has room, the run is refused
        return min(_with_slots(best, lambda each: listed(each).peak <= budget), key=price)
    return min(tried, key=lambda each: each[1])[0] if tried else plan


def _with_slots(plan: ServerPlan, fits: Callable[[ServerPlan], bool]) -> list[ServerPlan]:
    """The same, with as many partitions in memory as fit, and with half of these more.

    Of each partition that stays, a gather reads one less for every group; but edges then have less room in the system's cache.
    """
    cut = plan.savings.disk
    if cut is None or not cut.tables:
        return [plan]
    low, high = cut.slots, cut.partitions  # it fits with `low`; more than `high` change nothing
    while low < high:
        middle = (low + high + 1) // 2
        if fits(_in_slots(plan, cut, middle)):
            low = middle
        else:
            high = middle - 1
    return [plan, _in_slots(plan, cut, (cut.slots + low) // 2), _in_slots(plan, cut, low)]


def _in_slots(plan: ServerPlan, cut: DiskCut, slots: int) -> ServerPlan:
    return plan.saving(replace(plan.savings, disk=replace(cut, slots=slots)))


def _in_buckets(plan: ServerPlan) -> ServerPlan:
    """The same with a copy of the edges in the order in which gathers walk them."""
    assert plan.savings.disk is not None
    return plan.saving(replace(plan.savings, disk=replace(plan.savings.disk, buckets=True)))


def _ways(plan: ServerPlan, directory: Path, table_bytes: Callable[[ServerPlan], int]) -> Iterator[Savings]:
    """Ways to lay a run out, of equal prices the better first; none where an evaluation cannot use the training's tables."""
    programs = list(plan.programs.values())
    if not all(alike(programs[0], each) for each in programs):
        return
    gathers = frozenset(range(max(len(each.gathers) for each in plan.programs.values())))
    phases = frozenset(range(max(len(each.phases) for each in plan.programs.values())))
    streamed = all(can_be_on_disk(each, plan.graph, plan.partition.parts) for each in plan.programs.values())
    every = Savings(fused=gathers, shared=True, disk=DiskCut(directory, 1, 1))
    groups, folded_in = (
        [count for count in counts if count == counts[0] or size >= parts * count * LEAST_READ]
        for counts, parts, size in (
            (_GROUPS, _PARTITIONS_A_GROUP, table_bytes(plan.saving(every))),
            (_FOLDED, CONSTANT_PARTITIONS, 0 if plan.graph.x is None else plan.graph.x.nbytes),
        )
    )
    if streamed:
        # Constants alone: they are read through twice an epoch, whatever is read of a table.
        for folded in folded_in:
            cut = DiskCut(directory, 1, 1, constants=folded, tables=False)
            yield Savings(fused=gathers, in_place=True, shared=True, disk=cut)
            yield Savings(fused=gathers, remade=phases, in_place=True, shared=True, disk=cut)
    # Rows that stay at their vertices are written and read in order; rows that edges read stay in memory.
    rows = DiskCut(directory, 1, 1, rows=True, tables=False)
    for cut in (rows, *(replace(rows, constants=folded) for folded in folded_in if streamed)):
        yield Savings(fused=gathers, in_place=True, shared=True, disk=cut)
        yield Savings(fused=gathers, remade=phases, in_place=True, shared=True, disk=cut)
    tables = [
        *(DiskCut(directory, count, _PARTITIONS_A_GROUP * count) for count in groups if count in _FEW_GROUPS),
        *(DiskCut(directory, count, _PARTITIONS_A_GROUP * count, rows=True) for count in groups),
    ]
    tables += [replace(cut, held=held) for cut in tables if cut.rows for held in _some_held(plan)]
    cuts = [*tables, *(replace(cut, constants=folded) for cut in tables for folded in folded_in if streamed)]
    for cut in cuts:
        in_place = bool(cut.held)
        yield Savings(fused=gathers, remade=phases, in_place=in_place, shared=True, disk=cut)
        if cut.rows:  # what is kept is on disk, too: it is written and read once, where a gather again reads a table many times
            yield Savings(fused=gathers, in_place=in_place, shared=True, disk=cut)


def _some_held(plan: ServerPlan) -> list[frozenset[int]]:
    """Gathers whose rows stay in memory while others' are on disk: one, two, … of the narrowest."""
    program = next(iter(plan.programs.values()))
    widths = [sum(step.site.width for step in group) for group in program.gathers]
    narrow = sorted(range(len(widths)), key=lambda depth: widths[depth])
    return [frozenset(narrow[:count]) for count in range(1, min(_HELD, len(narrow) - 1) + 1)]
