"""How a run that does not fit memory is laid out with tables on disk."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from siafu.server.disk_share import DiskCut
from siafu.server.fusion import alike
from siafu.server.memory.memory_list import MemoryList
from siafu.server.plan import ServerPlan
from siafu.server.rows.constants_on_disk import can_be_on_disk
from siafu.server.savings import Savings

_FEW_GROUPS = (2, 4)
_GROUPS = (2, 4, 8, 16, 32, 64)
_PARTITIONS_A_GROUP = 2
_FOLDED = (1, 2, 4, 8, 16, 32, 64)  # groups of rows that constants are gathered in


def on_disk(
    plan: ServerPlan,
    directory: Path,
    budget: int,
    listed: Callable[[ServerPlan], MemoryList],
    price: Callable[[ServerPlan], float],
) -> ServerPlan:
    """The plan with tables on disk, the cheapest that fits, of equals the first; that which takes least, if none does.

    listed: makes the list of a plan's arrays
    price:  seconds that a plan's tables on disk take
    """
    tried = [(each, listed(each).peak) for each in (plan.saving(way) for way in _ways(plan, directory))]
    fitting = [each for each, peak in tried if peak <= budget]
    if fitting:
        return min(fitting, key=price)
    return min(tried, key=lambda each: each[1])[0] if tried else plan


def _ways(plan: ServerPlan, directory: Path) -> Iterator[Savings]:
    """Ways to lay a run out, of equal prices the better first; none where an evaluation cannot use the training's tables."""
    programs = list(plan.programs.values())
    if not all(alike(programs[0], each) for each in programs):
        return
    gathers = frozenset(range(max(len(each.gathers) for each in plan.programs.values())))
    phases = frozenset(range(max(len(each.phases) for each in plan.programs.values())))
    streamed = all(can_be_on_disk(each, plan.graph) for each in plan.programs.values())
    if streamed:
        # Constants alone: they are read through twice an epoch, whatever is read of a table.
        for folded in _FOLDED:
            cut = DiskCut(directory, 1, 1, constants=folded, tables=False)
            yield Savings(fused=gathers, in_place=True, shared=True, disk=cut)
            yield Savings(fused=gathers, remade=phases, in_place=True, shared=True, disk=cut)
    tables = [
        *(DiskCut(directory, groups, _PARTITIONS_A_GROUP * groups) for groups in _FEW_GROUPS),
        *(DiskCut(directory, groups, _PARTITIONS_A_GROUP * groups, rows=True) for groups in _GROUPS),
    ]
    for cut in tables:
        yield Savings(fused=gathers, remade=phases, shared=True, disk=cut)
    if streamed:
        for cut in tables:
            for folded in _FOLDED:
                both = replace(cut, constants=folded)
                yield Savings(fused=gathers, remade=phases, shared=True, disk=both)
