"""How a run that does not fit memory is laid out with tables on disk."""

from collections.abc import Callable
from pathlib import Path

from siafu.server.disk_share import DiskCut
from siafu.server.memory.memory_list import MemoryList
from siafu.server.plan import ServerPlan
from siafu.server.savings import Savings

_FEW_GROUPS = (2, 4)
_GROUPS = (2, 4, 8, 16, 32, 64)
_PARTITIONS_A_GROUP = 2


def on_disk(
    plan: ServerPlan, directory: Path, budget: int, listed: Callable[[ServerPlan], MemoryList]
) -> ServerPlan:
    """The plan with tables on disk: those that edges read, and if that is not enough rows that stay at their vertices.

    Groups are as few as the budget allows, since each reads the sources once; the most, if none fits.

    listed: makes the list of a plan's arrays
    """
    gathers = frozenset(range(max(len(each.gathers) for each in plan.programs.values())))
    phases = frozenset(range(max(len(each.phases) for each in plan.programs.values())))
    cuts = [
        *(DiskCut(directory, groups, _PARTITIONS_A_GROUP * groups) for groups in _FEW_GROUPS),
        *(DiskCut(directory, groups, _PARTITIONS_A_GROUP * groups, rows=True) for groups in _GROUPS),
    ]
    for cut in cuts:
        found = plan.saving(Savings(fused=gathers, remade=phases, shared=True, disk=cut))
        if listed(found).peak <= budget:
            break
    return found
