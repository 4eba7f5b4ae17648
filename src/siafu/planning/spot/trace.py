"""Trace: machines that a cloud gave and took back, and when."""

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput

_LARGEST = 64 << 20
_MOST_MACHINES = 100_000
_MS = 1000


@dataclass(frozen=True, slots=True)
class Change:
    """A machine comes, or is taken away.

    seconds: since the trace began
    """

    seconds: float
    machine: str
    comes: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """Changes in the order of their time.

    seconds: from the first to the last look at the machines
    """

    name: str
    changes: tuple[Change, ...]
    seconds: float

    @property
    def losses(self) -> int:
        return sum(not each.comes for each in self.changes)

    @property
    def machine_hours(self) -> float:
        """Hours of all machines together while they were there."""
        total, there, before = 0.0, 0, 0.0
        for each in self.changes:
            total += there * (each.seconds - before)
            there, before = there + (1 if each.comes else -1), each.seconds
        return (total + there * (self.seconds - before)) / 3600

    @property
    def rate(self) -> float:
        """Losses in an hour of one machine."""
        return self.losses / self.machine_hours

    @property
    def most(self) -> int:
        """The most machines that were there at once."""
        there = most = 0
        for each in self.changes:
            there += 1 if each.comes else -1
            most = max(most, there)
        return most


def read_trace(path: str | Path) -> Trace:
    """Read a trace from a file.

    CSV: lines `MILLISECONDS,add|remove,MACHINE`. JSON: `{"metadata": {"gap_seconds": G}, "data": [N, …]}`: how many
    machines there were, every G seconds; which of them are taken away is drawn, always alike.
    """
    path = Path(path)
    if path.suffix.lower() not in (".csv", ".json"):
        raise BadInput(f"{path} is no trace: give a .csv of changes or a .json of counts (docs/spot.md)")
    try:
        if path.stat().st_size > _LARGEST:
            raise BadInput(f"{path} has more than {_LARGEST >> 20} MiB, and no trace is that large")
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read the trace {path}: {error}") from None
    try:
        found = _of_changes(path.stem, text) if path.suffix.lower() == ".csv" else _of_counts(path.stem, text)
    except ValueError as error:
        raise BadInput(f"the trace {path} is damaged: {error}") from None
    if not found.losses:
        raise BadInput(f"in the trace {path} no machine is lost: nothing to learn from it")
    return found


def _of_changes(name: str, text: str) -> Trace:
    changes: list[Change] = []
    there: set[str] = set()
    before = 0.0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 3 or parts[1] not in ("add", "remove") or not parts[0].isdigit():
            raise ValueError(f"line {number} is not MILLISECONDS,add|remove,MACHINE: {line[:60]!r}")
        seconds, machine, comes = int(parts[0]) / _MS, parts[2], parts[1] == "add"
        if seconds < before:
            raise ValueError(f"line {number} is earlier than the one before")
        if comes == (machine in there):
            raise ValueError(f"line {number}: {machine} {'is there already' if comes else 'is not there'}")
        there.symmetric_difference_update({machine})
        changes.append(Change(seconds, machine, comes))
        before = seconds
    return Trace(name, tuple(changes), before)


def _of_counts(name: str, text: str) -> Trace:
    try:
        form = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    gap, counts = _fields(form)
    source, changes = random.Random(0), list[Change]()
    there: list[str] = []
    born = 0
    for step, count in enumerate(counts):
        while len(there) > count:
            changes.append(Change(step * gap, there.pop(source.randrange(len(there))), False))
        while len(there) < count:
            born += 1
            there.append(f"machine {born}")
            changes.append(Change(step * gap, there[-1], True))
    return Trace(name, tuple(changes), gap * len(counts))


def _fields(form: Any) -> tuple[float, list[int]]:
    if not isinstance(form, dict) or not isinstance(form.get("metadata"), dict):
        raise ValueError('it has no "metadata"')
    gap, counts = form["metadata"].get("gap_seconds"), form.get("data")
    if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0 < gap < 1e9:
        raise ValueError('its "gap_seconds" is no number above 0')
    if not isinstance(counts, list) or not counts:
        raise ValueError('its "data" is no list of counts')
    for place, count in enumerate(counts):
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST_MACHINES:
            raise ValueError(f'"data" has {count!r} at place {place}, which is no number of machines')
    return float(gap), counts


def from_trace(trace: Trace, offset: float) -> Iterator[Change]:
    """Changes without end, from a moment of a trace on; after its end it begins anew.

    Where it begins anew, as many machines stay as were there at its beginning.
    """
    there: dict[str, str] = {}
    born, base = 0, -offset

    def come(machine: str, seconds: float) -> Change:
        nonlocal born
        born += 1
        there[machine] = f"{machine}, {born}"
        return Change(seconds, there[machine], True)

    waiting: list[Change] = []
    for each in trace.changes:
        if each.seconds > offset:
            break
        if each.comes:
            waiting.append(come(each.machine, 0.0))
        else:
            gone = there.pop(each.machine)
            waiting = [every for every in waiting if every.machine != gone]
    yield from waiting
    after = offset
    while True:
        for each in trace.changes:
            if each.seconds <= after:
                continue
            if each.comes:
                yield come(each.machine, base + each.seconds)
            else:
                yield Change(base + each.seconds, there.pop(each.machine), False)
        base, after = base + trace.seconds, 0.0
        first = [each.machine for each in trace.changes if each.seconds <= 0.0 and each.comes]
        stay = dict(zip(first, there.values(), strict=False))
        for machine in list(there.values())[len(stay) :]:
            yield Change(base, machine, False)
        there = stay
        for name in first[len(stay) :]:
            yield come(name, base)


def held(changes: Iterable[Change], machines: int) -> Iterator[Change]:
    """The changes of the machines that a training holds: as many as it wants, as soon as there are, the first to come first.

    machines: that it wants
    """
    spare: dict[str, None] = {}
    holding: set[str] = set()
    for each in changes:
        if each.comes:
            spare[each.machine] = None
        elif each.machine in holding:
            holding.remove(each.machine)
            yield each
        else:
            del spare[each.machine]
        while spare and len(holding) < machines:
            machine = next(iter(spare))
            del spare[machine]
            holding.add(machine)
            yield Change(each.seconds, machine, True)


def compressed(changes: Iterable[Change], times: float) -> Iterator[Change]:
    """The same changes, so many times faster."""
    for each in changes:
        yield Change(each.seconds / times, each.machine, each.comes)


def from_rate(
    rate: float, machines: int, replacement_seconds: float, source: random.Random
) -> Iterator[Change]:
    """Changes without end: each of so many machines is lost at random, and another comes a while later.

    rate: losses in an hour of one machine
    """
    waiting = [(0.0, f"machine {number}", True) for number in range(machines)]
    born = machines
    while True:
        waiting.sort(key=lambda each: each[0])
        seconds, machine, comes = waiting.pop(0)
        yield Change(seconds, machine, comes)
        if comes:
            waiting.append((seconds + source.expovariate(rate / 3600), machine, False))
        else:
            born += 1
            waiting.append((seconds + replacement_seconds, f"machine {born}", True))
