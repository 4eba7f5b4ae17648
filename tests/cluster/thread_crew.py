"""ThreadCrew: servers that a driver drives as threads of this process, which talk as processes do."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from siafu.cluster.crew import Loss
from siafu.cluster.post.member import Member
from siafu.pipeline.ids import Address

MakeStation = Callable[[Address, int, str], Any]
"""Makes a server's station, of its address, its life and its machine."""


class ThreadServer:
    """A server; see `DrivenServer`."""

    where = "a thread"

    def __init__(self, address: Address, life: int, machine: str, make: MakeStation) -> None:
        self.address, self.life, self.dead = address, life, False
        self.station = make(address, life, machine)

    @property
    def member(self) -> Member:
        return self.station.post.member

    def join(self, setup: None, members: Sequence[Member]) -> None:
        self.station.join(None, members)

    def stop(self) -> None:
        self.station.close()

    def kill(self) -> None:
        """Say nothing any more."""
        self.dead = True
        self.station.post.send = lambda to, letter: None  # type: ignore[method-assign]
        self.station.post.stop()


@dataclass
class ThreadCrew:
    """See `DrivenCrew`. make: a station; before: called with every server before it joins; apart: servers talk over TCP, as machines do"""

    make: MakeStation
    before: Callable[[ThreadServer], None] = lambda server: None
    apart: bool = False
    machine: str = "127.0.0.1"
    servers: dict[Address, ThreadServer] = field(default_factory=dict)
    _noticed: set[tuple[Address, int]] = field(default_factory=set)

    def employ(self, servers: Iterable[tuple[Address, int]]) -> dict[Address, ThreadServer]:
        for address, life in servers:
            self._start(address, life)
        return dict(self.servers)

    def replace(self, server: Address, life: int, *, elsewhere: bool) -> ThreadServer:
        return self._start(server, life)

    def losses(self) -> list[Loss]:
        dead = [each for each in self.servers.values() if each.dead]
        news = [each for each in dead if (each.address, each.life) not in self._noticed]
        self._noticed |= {(each.address, each.life) for each in news}
        return [Loss(each.address, each.life, "it was killed") for each in news]

    def close(self) -> None:
        """All were stopped."""

    def _start(self, address: Address, life: int) -> ThreadServer:
        machine = f"127.0.{life}.{2 + address.index}" if self.apart else self.machine
        fresh = self.servers[address] = ThreadServer(address, life, machine, self.make)
        self.before(fresh)
        return fresh
