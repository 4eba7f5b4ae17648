"""Memory: the machine's total, the free part of it, and sizes like 1GB."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from siafu.base.errors import BadInput

LIMIT = "SIAFU_MEMORY_LIMIT"
"""The variable that says what counts as free, in place of what the system says: a size, or `off` for any amount."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_ROOT = Path("/")
_RESERVE = 20  # one part in so many of what is free is left to the system and to others
# Of a group of processes: its limit, what it holds, and what of that is files, which the system can drop.
_V2 = ("memory.max", "memory.current", ("inactive_file", "active_file"))
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))


def parse_size(text: str) -> int:
    """Bytes in '1GB', '512MiB', '2g' or '1000000'."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?i?)b?\s*", text.lower())
    if match is None or match[2] not in _UNITS:
        raise BadInput(f"{text!r} is not a size: write it like 1GB, 512MiB or 1000000")
    return int(float(match[1]) * _UNITS[match[2]])


def memory_bytes() -> tuple[int | None, int | None]:
    """Total and available memory of the machine; None: the system does not say."""
    meminfo = Path("/proc/meminfo")
    return proc_kilobytes(meminfo, "MemTotal"), proc_kilobytes(meminfo, "MemAvailable")


def machine_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_bytes(root: Path = _ROOT) -> int | None:
    """Memory that this process may still take: the machine's, or less where a container or a user has less.

    None: the system does not say, or `$SIAFU_MEMORY_LIMIT` says not to look.
    root: where /proc and /sys are
    """
    if asked := os.environ.get(LIMIT):
        try:
            return None if asked.strip().lower() == "off" else parse_size(asked)
        except BadInput as error:
            raise BadInput(f"{LIMIT} is wrong: {error}, or off") from error
    machine = proc_kilobytes(root / "proc/meminfo", "MemAvailable")
    found = [each for each in (machine, *_left_in_groups(root)) if each is not None]
    return min(found, default=None)


def own_bytes() -> int:
    """Memory of this process that no other shares and no file backs; 0 where the system does not tell."""
    try:
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def budget_bytes(memory: str | None, taken: int = 0) -> int | None:
    """Bytes that the whole process may take; None: any amount.

    memory: a size, as `--memory` gives it; None: what the process has taken, and what is free less a reserve
    taken:  bytes that the process holds already
    """
    if memory is not None:
        return parse_size(memory)
    free = free_bytes()
    if free is None:
        return None
    return taken + (free if os.environ.get(LIMIT) else less_reserve(free))


def less_reserve(free: int) -> int:
    """Bytes that a process may take of free memory: a part is left to the system and to others."""
    return free - free // _RESERVE


def refuse_more_than_budget(
    needed: int, what: str, remedy: str, *, memory: str | None = None, taken: int = 0
) -> None:
    """Refuse work that cannot fit, before the system kills the process.

    needed: bytes of the whole process
    what:   name of the work, for the error
    remedy: what to do about it
    memory: the size that `--memory` gives; None: what is free
    taken:  bytes of `needed` that the process holds already
    """
    budget = budget_bytes(memory, taken)
    if budget is None or needed <= budget:
        return
    if memory is not None:
        own = f" (the program itself takes {rounded_up(taken)})" if budget <= taken else ""
        raise BadInput(
            f"{what} needs {rounded_up(needed)} of memory, and memory is {memory}: give at least that{own}, or {remedy}"
        )
    raise BadInput(
        f"{what} needs at least {(needed - taken) / 1e9:,.2f} GB of memory, and {(budget - taken) / 1e9:,.2f} GB is free: "
        f"{remedy}, or have it tried all the same with {LIMIT}=off"
    )


def rounded_up(size: int) -> str:
    """A size as people write it, and not less: '1.3GB', '650MB'."""
    if size >= 10**9:
        return f"{-(-size // 10**8) / 10:.1f}GB"
    return f"{-(-size // 10**6)}MB"


def proc_kilobytes(path: Path, field: str) -> int | None:
    """A field of a file like /proc/meminfo, in bytes; None: it is not there."""
    try:
        for line in path.read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _left_in_groups(root: Path) -> Iterator[int | None]:
    """Bytes left in each control group of this process, and in those that contain them."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            mounted, files = root / "sys/fs/cgroup", _V2
        elif "memory" in controllers.split(","):
            mounted, files = root / "sys/fs/cgroup/memory", _V1
        else:
            continue
        # A container sees its own group as the root, and names it as the machine does: what is not there is skipped.
        names = [name for name in group.split("/") if name not in ("", "..")]
        for depth in range(len(names) + 1):
            yield _left(mounted.joinpath(*names[:depth]), *files)


def _left(group: Path, limit: str, held: str, droppable: tuple[str, ...]) -> int | None:
    most, taken = _number(group / limit), _number(group / held)
    if most is None or taken is None:
        return None
    return max(0, most - max(0, taken - _droppable(group / "memory.stat", droppable)))


def _droppable(stat: Path, names: tuple[str, ...]) -> int:
    try:
        fields = dict(line.split() for line in stat.read_text().splitlines() if line.count(" ") == 1)
        return sum(int(fields.get(name, 0)) for name in names)
    except (OSError, ValueError):
        return 0


def _number(path: Path) -> int | None:
    """None: there is no such file, or it says "max"."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
