"""DrivenCluster: servers that all do what the driver says, as it sees them: letters, signs of life, losses, replacements."""

import queue
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from siafu.base.errors import BadInput, SiafuError
from siafu.cluster.crew import Loss, ServerLost
from siafu.cluster.logs import Logs
from siafu.cluster.post.member import Member
from siafu.cluster.post.post import WirePost
from siafu.cluster.post.requests import Alive, LogLine, Replaced, ServerFailed, ServerUnreachable
from siafu.cluster.replacements.losses import MOST_LOSSES
from siafu.pipeline.ids import RUN, Address, ServerId
from siafu.runtime.letter import Letter

_PULSE_SECONDS = 1.0
_SILENT_SECONDS = 20.0  # a server that is not heard of for so long is lost
_FIRST_LIFE = 1


def server_address(server: int) -> Address:
    """The address of a server, by its number."""
    return Address("graph", ServerId(server))


class DrivenServer(Protocol):
    """A server's process, as `cluster.crew.Server` without a graph."""

    @property
    def member(self) -> Member: ...

    @property
    def where(self) -> str: ...

    def join(self, setup: None, members: Sequence[Member]) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class DrivenCrew(Protocol):
    """Starts processes and notices when they end, as `cluster.crew.Crew`."""

    @property
    def machine(self) -> str: ...

    def employ(self, servers: Iterable[tuple[Address, int]]) -> Mapping[Address, DrivenServer]: ...

    def replace(self, server: Address, life: int, *, elsewhere: bool) -> DrivenServer: ...

    def losses(self) -> list[Loss]: ...

    def close(self) -> None: ...


class DrivenCluster:
    """The servers of a run. One thread calls; another tells servers that the driver is there.

    lives: of each server, by its number
    lost:  servers lost in all
    """

    def __init__(self, crew: DrivenCrew, servers: int, log: Path | None = None) -> None:
        """log: a directory for the servers' logs; None: they are dropped"""
        self._crew, self._logs = crew, Logs(log)
        self.lives = dict.fromkeys(range(servers), _FIRST_LIFE)
        self.lost = 0
        self._in_a_row: Counter[int] = Counter()
        self._inbox: queue.SimpleQueue[tuple[Address, Letter] | BaseException] = queue.SimpleQueue()
        self._over = threading.Event()
        self._post = WirePost(RUN, 0, crew.machine, self._hear, self._inbox.put)
        self._servers: dict[Address, DrivenServer] = {}
        try:
            first = [(server_address(server), life) for server, life in self.lives.items()]
            self._servers = dict(crew.employ(first))
            self._post.meet(each.member for each in self._servers.values())
            self._post.start()
            for each in self._servers.values():
                each.join(None, self._members())
        except ServerLost as lost:
            self.close()
            raise SiafuError(f"a server was lost before it began: {lost}") from lost
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._pulse, name="siafu-pulse", daemon=True).start()

    def send(self, server: int, letter: Letter) -> None:
        self._post.send(server_address(server), letter)

    def next(self, seconds: float) -> tuple[int, Letter] | None:
        """The next letter of a server, by its number; None: none came."""
        try:
            came = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(came, BaseException):
            raise came
        sender, letter = came
        match letter.event:
            case ServerFailed() as failed:
                raise (BadInput if failed.given else SiafuError)(failed.why.removeprefix("Diverged: "))
            case LogLine(server, text):
                self._logs.write(server, text)
                return None
            case ServerUnreachable():
                return None
        return sender.index, letter

    def losses(self) -> dict[int, str]:
        """Servers that were lost since the last call, and why. An error of their own is raised: others would meet it, too."""
        found: dict[int, str] = {}
        for loss in self._crew.losses():
            if loss.final:
                raise (BadInput if loss.given else SiafuError)(loss.why)
            if loss.life == self.lives[loss.server.index]:
                found[int(loss.server.index)] = loss.why
        for address in self._servers:
            if self._post.silence(address) > _SILENT_SECONDS:
                found.setdefault(int(address.index), f"it was not heard of for {_SILENT_SECONDS:.0f} s")
        for server, why in found.items():
            self.lost += 1
            self._logs.write(server_address(server), f"lost: {why}")
            self._in_a_row[server] += 1
            self._post.part(server_address(server))
            if self._in_a_row[server] > MOST_LOSSES:
                raise SiafuError(
                    f"server {server} was lost {MOST_LOSSES} times in a row, the last time because {why}: "
                    "go on with --resume when it is mended"
                )
        return found

    def replace(self, server: int) -> int:
        """Start a process in place of a lost one; its life."""
        address = server_address(server)
        with suppress(OSError):
            self._servers[address].kill()
        self.lives[server] += 1
        try:
            fresh = self._crew.replace(address, self.lives[server], elsewhere=False)
            self._servers[address] = fresh
            self._post.meet([fresh.member])
            for other in self._servers:
                if other != address:  # first, so that none refuses it
                    self._post.send(other, Letter(Replaced(fresh.member)))
            fresh.join(None, self._members())
        except ServerLost as lost:
            raise SiafuError(f"server {server} was lost, and so was its replacement: {lost}") from lost
        return self.lives[server]

    def well(self, server: int) -> None:
        """A server has done its work: earlier losses are forgiven."""
        self._in_a_row.pop(server, None)

    def close(self) -> None:
        """End all processes."""
        self._over.set()
        for each in self._servers.values():
            each.stop()
        self._crew.close()
        self._post.stop()

    def _members(self) -> list[Member]:
        return [self._post.member, *(each.member for each in self._servers.values())]

    def _hear(self, sender: Address, letter: Letter) -> None:
        self._inbox.put((sender, letter))

    def _pulse(self) -> None:
        alive = Letter(Alive())
        while not self._over.wait(_PULSE_SECONDS):
            for address in list(self._servers):
                self._post.send(address, alive)
