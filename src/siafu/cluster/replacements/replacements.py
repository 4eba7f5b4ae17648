"""ServerReplacements: servers of a cluster that are lost, or move, and those that take their places."""

import queue
import threading
from contextlib import suppress
from typing import Any

from siafu.base.errors import BadInput, SiafuError
from siafu.cluster.crew import Crew, Loss, Server, ServerLost
from siafu.cluster.logs import Logs
from siafu.cluster.post.member import Member
from siafu.cluster.post.post import WirePost
from siafu.cluster.post.requests import Departed, Replaced
from siafu.cluster.replacements.eager_copies import EagerCopies
from siafu.cluster.replacements.losses import MOST_LOSSES, Losses, LostServer
from siafu.cluster.replacements.seats import WarmSeats
from siafu.cluster.stations.graph_station import Bounds
from siafu.pipeline.events import CheckpointAsked, CopyGone, CopyMade, HandOverAsked, ServerGone
from siafu.pipeline.ids import RUN, Address, Epoch, Life
from siafu.pipeline.setup import Setup
from siafu.runtime.happenings import Happening
from siafu.runtime.hosts.run_host import RunHost
from siafu.runtime.letter import Letter


class ServerReplacements:
    """Replaces the servers of a run; see `runtime.hosts.run_host.ServerRecovery`. `ClusterRuntime` has the rest.

    servers: all that there are now
    seats:   warm copies of them
    copies:  those of the warm copies that are eager
    """

    servers: dict[Address, Server]
    seats: WarmSeats
    copies: EagerCopies
    _crew: Crew
    _post: WirePost
    _logs: Logs
    _losses: Losses
    _happened: "queue.SimpleQueue[Happening | BaseException | None]"
    _lock: threading.RLock
    _leaving: dict[Address, str]
    _run: RunHost | None
    _setup: Setup
    _bounds: list[Bounds]
    _over: bool

    # What the run wants

    @property
    def loss_counters(self) -> dict[str, Any]:
        return self._losses.counters

    def replace(self, server: Address) -> None:
        if not self._losses.is_gone(server):
            self._losses.move(server)
            self._post.part(server)
            self._leaving.pop(server, None)
        threading.Thread(target=self._replace, args=(server,), name="siafu-replace", daemon=True).start()

    def rewound(self, recorded: Epoch, epochs: Epoch) -> None:
        self._losses.rewind(recorded, epochs)

    def resumed(self, recorded: Epoch) -> None:
        self._losses.rewind(recorded, recorded, again=False)

    def proceeding(self) -> None:
        """All servers are there and go on."""
        assert self._run is not None
        began_again = self._losses.began_again
        if (rewound := self._losses.recovered()) is not None:
            self._happened.put(rewound)
            if began_again:
                self._run.mark()

    def recorded(self) -> None:
        self._losses.epoch_ended()

    def saved(self) -> None:
        leaving, self._leaving = self._leaving, {}
        for server, why in leaving.items():
            self._lose(server, self._losses.life(server), why, elsewhere=True)

    def life(self, server: Address) -> int:
        return self._losses.life(server)

    # Losses

    def _note_loss(self, loss: Loss) -> None:
        with self._lock:
            if self._is_over or loss.life != self._losses.life(loss.server):
                return
        if loss.final:
            self._happened.put(
                BadInput(loss.why) if loss.given else SiafuError(f"{loss.server} failed: {loss.why}")
            )
        else:
            self._lose(loss.server, loss.life, loss.why, elsewhere=False)

    def _lose(self, server: Address, life: int, why: str, *, elsewhere: bool) -> None:
        """A server is lost: the run says what is done again, and who replaces it."""
        with self._lock:
            if self._is_over or not self._losses.lose(server, life, why, elsewhere=elsewhere):
                return
            self._post.part(server)
            self._logs.write(server, f"lost: {why}")
            if self._losses.too_many(server):
                self._happened.put(self._hopeless(server, why))
                return
            self._leaving.pop(server, None)
            assert self._run is not None
            self._run.forget_reports()
            self._run.deliver(ServerGone(server, Life(life)))

    def _hopeless(self, server: Address, why: str) -> SiafuError:
        return SiafuError(
            f"{server} was lost {MOST_LOSSES + 1} times without an epoch in between, last: {why}; "
            "see its log in the run's directory, and go on with --resume"
        )

    def _expect_to_lose(self, server: Address, why: str) -> None:
        """A server will be taken away soon: move it to another machine at an epoch's end, so that nothing is lost.

        Where epochs do not close, or there is no other machine, a checkpoint is saved, and then it is replaced.
        """
        with self._lock:
            if self._is_over or self._losses.is_gone(server):
                return
            self._logs.write(server, why)
            machine = self.servers[server].machine
        if self._setup.resumes and self.seats.leave(machine):
            return
        with self._lock:
            self._leaving[server] = why
            assert self._run is not None
            self._run.deliver(CheckpointAsked())

    def _machines(self) -> dict[Address, str] | None:
        """The machines of all servers; None: some are being replaced, or the run is over."""
        with self._lock:
            if self._is_over or any(self._losses.is_gone(each) for each in self.servers):
                return None
            return {address: server.machine for address, server in self.servers.items()}

    def _ask_to_hand_over(self, server: Address) -> None:
        """Let another take a server's place at the end of the epoch."""
        with self._lock:
            if not self._is_over:
                assert self._run is not None
                self._run.deliver(HandOverAsked(server))

    def _replace(self, server: Address) -> None:
        """Start a replacement; the rest of the run waits for it. In a thread of its own."""
        with self._lock:
            gone, old = self._losses.gone(server), self.servers[server]
        try:
            old.kill()
            warm = self._warm(server, gone, old.machine)
            fresh = warm or self._crew.replace(server, gone.life, elsewhere=gone.elsewhere)
            self._introduce(server, fresh, checked=warm is not None)
        except ServerLost as lost:
            with self._lock:
                self._losses.back(server)
                self._lose(server, gone.life, str(lost), elsewhere=False)
        except BaseException as error:
            self._happened.put(error)

    def _warm(self, server: Address, gone: LostServer, old: str) -> Server | None:
        """A warm copy in a lost server's place; None: there is none, or all of them are gone, too."""
        while (seat := self.seats.take(server, not_on=old if gone.elsewhere else None)) is not None:
            self.copies.end(seat)
            with suppress(ServerLost):
                fresh = seat.take_in(gone.life)
                gone.warm = True
                return fresh
            seat.drop()
        return None

    def _introduce(self, server: Address, fresh: Server, *, checked: bool) -> None:
        """Make the replacement and the others known to each other; the others first, so that none refuses it.

        checked: its part of the graph is known to be that of the lost one
        """
        if server.role == "graph" and not checked and fresh.share().bounds != self._bounds[server.index]:
            raise SiafuError(f"{server} was lost, and the store is another by now: go on with --resume")
        with self._lock:
            self.servers[server] = fresh
            self._announce(fresh.member)
        fresh.join(self._setup, self.members())
        with self._lock:
            again = self._losses.back(server)
        if again is not None:
            raise ServerLost(again)

    def _announce(self, member: Member) -> None:
        """Tell all others. A server that is being replaced gets the letter when it begins."""
        self._post.meet([member])
        self._tell_others(member.address, Letter(Replaced(member)))

    def _tell_others(self, about: Address, letter: Letter) -> None:
        """Send a letter about a member to all servers and eager copies but that one."""
        for address in [*self.servers, *(each.address for each in self.copies.members)]:
            if address != about:
                self._post.send(address, letter)

    # Eager copies

    def members(self) -> list[Member]:
        """The driver, all servers and all eager copies."""
        with self._lock:
            return [
                self._post.member,
                *(each.member for each in self.servers.values()),
                *self.copies.members,
            ]

    def copy_came(self, member: Member) -> None:
        """Make an eager copy and all others known to each other, and to the run's machine."""
        with self._lock:
            if self._is_over:
                return
            self._announce(member)
            # Some may have come since it was told who there is.
            for other in self.members():
                if other.address not in (RUN, member.address):
                    self._post.send(member.address, Letter(Replaced(other)))
            assert self._run is not None
            self._run.deliver(CopyMade(member.address, Life(member.life)))

    def copy_left(self, member: Member) -> None:
        """Have everyone forget an eager copy."""
        with self._lock:
            self._post.forget(member.address, member.life)
            self._tell_others(member.address, Letter(Departed(member.address, member.life)))
            if not self._is_over:
                assert self._run is not None
                self._run.deliver(CopyGone(member.address, Life(member.life)))

    def _lose_copy(self, copy: Address, life: int | None, why: str) -> None:
        """An eager copy cannot be reached, or has failed: end it. Another is made in its place.

        life: None: whichever it is in
        """
        seat = self.copies.seat(copy, life)
        if seat is not None:
            self._logs.write(copy, f"lost: {why}")
            self.copies.end(seat)
            with suppress(ServerLost):
                seat.drop()

    @property
    def _is_over(self) -> bool:
        return self._over or (self._run is not None and self._run.over)
