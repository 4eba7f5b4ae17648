"""Crew: the servers of a run as processes somewhere. What the driver needs of whatever places and starts them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from siafu.cluster.graph_station import Bounds, Share
from siafu.cluster.member import Member
from siafu.graph.partition.reads import Reads
from siafu.pipeline.ids import Address
from siafu.pipeline.setup import Setup


@dataclass(frozen=True, slots=True)
class Loss:
    """A server's process has ended.

    final: it ended by an error of its own, which another would meet again
    given: it is what the user gave that is wrong
    """

    server: Address
    life: int
    why: str
    final: bool = False
    given: bool = False


class Server(Protocol):
    """One process. A call returns when it is done; one to a process that is gone raises `ServerLost`."""

    @property
    def member(self) -> Member: ...

    @property
    def where(self) -> str:
        """For people: its machine and process."""

    def share(self) -> Share: ...

    def reads(self, bounds: Sequence[Bounds]) -> Reads: ...

    def join(self, setup: Setup, members: Sequence[Member]) -> None:
        """Be a server of the run from now on."""

    def stop(self) -> None:
        """End in good order."""

    def kill(self) -> None:
        """End at once, or if it cannot be reached, do nothing."""


class ServerLost(Exception):
    """A process is gone that was just called."""


class Crew(Protocol):
    """Starts processes, and notices when they end."""

    @property
    def machine(self) -> str:
        """The driver's machine, as servers reach it."""

    def employ(self, servers: Iterable[tuple[Address, int]]) -> dict[Address, Server]:
        """Start servers: which, and which life of each."""

    def replace(self, server: Address, life: int, *, elsewhere: bool) -> Server:
        """Start one in place of a lost one; one that is lost before it is there raises `ServerLost`.

        elsewhere: on another machine than where it was, if there is one: that cannot be reached
        """

    def losses(self) -> list[Loss]:
        """Those that ended since the last call."""

    def close(self) -> None:
        """End all processes."""
