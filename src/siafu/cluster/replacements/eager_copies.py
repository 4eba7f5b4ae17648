"""EagerCopies: warm copies that run their servers' forward tasks beforehand: who they are, and who knows of them."""

import threading
from typing import Protocol

from siafu.cluster.crew import WarmSeat
from siafu.cluster.post.member import Member
from siafu.pipeline.ids import Address
from siafu.pipeline.setup import Setup


class CopyRun(Protocol):
    """The run that eager copies are of."""

    def members(self) -> list[Member]:
        """The driver, all servers and all eager copies."""

    def copy_came(self, member: Member) -> None:
        """Make a copy and all others known to each other, and to the run's machine."""

    def copy_left(self, member: Member) -> None:
        """Have everyone forget a copy."""


class EagerCopies:
    """Eager copies of graph servers, one of each at most; any thread may call.

    setup: the run's; None: copies are not eager
    """

    def __init__(self, run: CopyRun) -> None:
        self.setup: Setup | None = None
        self._run = run
        self._there: dict[Address, tuple[WarmSeat, Member]] = {}
        self._lives: dict[Address, int] = {}
        self._lock = threading.Lock()

    @property
    def members(self) -> list[Member]:
        with self._lock:
            return [member for _, member in self._there.values()]

    def start(self, server: Address, seat: WarmSeat) -> bool:
        """Let a warm copy of a graph server be eager, unless another of it is; whether that is news. `ServerLost` if it is gone."""
        copy = Address("copy", server.index)
        with self._lock:
            if self.setup is None or copy in self._there:
                return False
            life = self._lives[copy] = self._lives.get(copy, 0) + 1
        member = seat.run_ahead(life, self.setup, self._run.members())
        with self._lock:
            self._there[copy] = seat, member
        self._run.copy_came(member)
        return True

    def end(self, seat: WarmSeat) -> None:
        """A warm copy is gone, or about to take its server's place: it is eager no more, if it was."""
        with self._lock:
            found = [copy for copy, (there, _) in self._there.items() if there is seat]
            gone = [self._there.pop(copy)[1] for copy in found]
        for member in gone:
            self._run.copy_left(member)

    def seat(self, copy: Address, life: int | None) -> WarmSeat | None:
        """The warm copy that is eager at an address, in that life, or in any; None: none is."""
        with self._lock:
            seat, member = self._there.get(copy, (None, None))
            return seat if member is not None and life in (None, member.life) else None
