"""Placement: on which machines the servers of a run are, and their warm copies."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from siafu.pipeline.ids import Address

MachineName = str
"""The name of a machine, as whoever starts processes knows it."""


@dataclass(frozen=True, slots=True)
class Seats:
    """Machines of servers.

    primary: the machine that a server runs on
    warm:    the machines with a copy of it that is loaded and waits, the one to take first in front
    """

    primary: Mapping[Address, MachineName] = field(default_factory=dict)
    warm: Mapping[Address, tuple[MachineName, ...]] = field(default_factory=dict)


def seats(
    servers: Sequence[Address], machines: Sequence[MachineName], now: Seats = Seats(), copies: int = 1
) -> Seats:
    """Where servers and their warm copies should be, with as few moves as that takes.

    No machine has more servers than its share, rounded up. A copy is on another machine than its server and than other
    copies of it, as far as there are machines. Copies of the servers of one machine are spread over all others, so that they
    share its work when it is lost; machines without servers come first.

    machines: those that can be used; at least one
    now:      where servers and copies are; machines that are gone may be in it
    copies:   how many there should be of each server
    """
    primary = _primaries(servers, machines, now)
    return Seats(primary, warm_machines(primary, machines, now, copies))


def _primaries(
    servers: Sequence[Address], machines: Sequence[MachineName], now: Seats
) -> dict[Address, MachineName]:
    most = -(-len(servers) // len(machines))
    crowd: Counter[MachineName] = Counter()
    found: dict[Address, MachineName] = {}
    for server in servers:
        machine = now.primary.get(server)
        if machine is not None and machine in machines and crowd[machine] < most:
            found[server] = machine
            crowd[machine] += 1
    for server in servers:
        if server not in found:
            ready = now.warm.get(server, ())
            found[server] = min(
                machines, key=lambda each: (crowd[each] >= most, _place(each, ready), crowd[each])
            )
            crowd[found[server]] += 1
    return {server: found[server] for server in servers}


def warm_machines(
    primary: Mapping[Address, MachineName], machines: Sequence[MachineName], now: Seats, copies: int
) -> dict[Address, tuple[MachineName, ...]]:
    """Where warm copies of servers should be that are where they are; see `seats`."""
    crowd, warm = Counter(primary.values()), Counter[MachineName]()
    together: Counter[tuple[MachineName, MachineName]] = Counter()
    found: dict[Address, tuple[MachineName, ...]] = dict.fromkeys(primary, ())
    for _ in range(min(copies, len(machines) - 1)):
        for server, home in primary.items():
            ready = now.warm.get(server, ())
            chosen = min(
                (each for each in machines if each != home and each not in found[server]),
                key=lambda each: (together[home, each], _place(each, ready), crowd[each], warm[each]),
            )
            found[server] += (chosen,)
            warm[chosen] += 1
            together[home, chosen] += 1
    return found


def _place(machine: MachineName, ready: Sequence[MachineName]) -> int:
    """How early a machine comes among those where a copy is ready; the others are last."""
    return ready.index(machine) if machine in ready else len(ready)
