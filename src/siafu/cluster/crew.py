"""Crew: the servers of a run as processes somewhere. The driver's interface to whatever places and starts them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from siafu.cluster.post.member import Member
from siafu.cluster.replacements.placement import MachineName
from siafu.cluster.stations.graph_station import Bounds, Share
from siafu.graph.partition.reads import Reads
from siafu.pipeline.ids import Address
from siafu.pipeline.setup import Setup


@dataclass(frozen=True, slots=True)
class Loss:
    """A server's process has ended.

    final: an error of its own ended it, which a replacement would meet again
    given: the user's input is wrong
    """

    server: Address
    life: int
    why: str
    final: bool = False
    given: bool = False


class Server(Protocol):
    """A server's process. A call returns when it is done; a call to a process that is gone raises `ServerLost`."""

    @property
    def member(self) -> Member: ...

    @property
    def where(self) -> str:
        """Its machine and process, for people."""

    @property
    def machine(self) -> MachineName:
        """Its machine, as `Crew.machines` names it."""

    def share(self) -> Share: ...

    def reads(self, bounds: Sequence[Bounds]) -> Reads: ...

    def join(self, setup: Setup, members: Sequence[Member]) -> None:
        """Be a server of the run from now on."""

    def stop(self) -> None:
        """End in good order."""

    def kill(self) -> None:
        """End the process at once; do nothing if it cannot be reached."""


class WarmSeat(Protocol):
    """A process with a server's part loaded and its kernels compiled, that waits to be the server."""

    @property
    def where(self) -> str:
        """Its machine and process, for people."""

    @property
    def machine(self) -> MachineName: ...

    @property
    def is_there(self) -> bool:
        """Whether its process runs, as far as is known."""

    def share(self) -> Share | None:
        """Sizes of a graph server's part; `BadInput` if its machine has no room for it; None: it is a weight server's."""

    def run_ahead(self, life: int, setup: Setup, members: Sequence[Member]) -> Member:
        """Let a graph server's copy be eager, in this life of its own; `ServerLost` if it is gone."""

    def take_in(self, life: int) -> Server:
        """Let it be the server in this life; `ServerLost` if it is gone."""

    def drop(self) -> None:
        """End the process."""


class ServerLost(Exception):
    """The process that was called is gone."""


class Crew(Protocol):
    """Starts processes, and notices when they end."""

    @property
    def machine(self) -> str:
        """The driver's machine, as servers reach it."""

    def employ(self, servers: Iterable[tuple[Address, int]]) -> Mapping[Address, Server]:
        """Start servers, each with the number of its life."""

    def replace(self, server: Address, life: int, *, elsewhere: bool) -> Server:
        """Start a server in place of a lost one; `ServerLost` if it is lost before it is ready.

        elsewhere: use another machine, if there is one: the old machine cannot be reached
        """

    def machines(self) -> Sequence[MachineName]:
        """Machines that servers can run on now."""

    def prepare(self, server: Address, machine: MachineName, *, aside: bool) -> WarmSeat:
        """Make a warm copy of a server on a machine; `ServerLost` if it is lost before it is ready.

        aside: beside a run that goes on, at a low priority
        """

    def losses(self) -> list[Loss]:
        """Servers that ended since the last call."""

    def close(self) -> None:
        """End all processes."""
