"""WarmSeats: keeps warm copies of a run's servers where `placement` wants them, and has servers moved."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from siafu.base.errors import SiafuError
from siafu.cluster.crew import Crew, Server, ServerLost, WarmSeat
from siafu.cluster.replacements.eager_copies import EagerCopies
from siafu.cluster.replacements.placement import MachineName, Seats, seats, warm_machines
from siafu.cluster.stations.graph_station import Bounds, Share
from siafu.pipeline.ids import Address

_LOOK_SECONDS = 1.0

Where = Mapping[Address, MachineName]


class WarmSeats:
    """Warm copies of the servers of a run; any thread may call.

    In a thread of its own it looks at the machines that there are: copies that are missing are made, one after the other;
    where a machine has more servers than its share, or is about to be taken away, a copy is made elsewhere and the run is asked to hand
    the server over.

    copies:    how many each server has; 0: one is made for a move alone
    may_move:  whether the run can hand a server over
    where:     gives the machines of all servers; None: some are being replaced
    hand_over: asks the run to let another take a server's place at the end of the epoch
    eager:     lets copies of graph servers be eager, where the run has such
    note:      writes a line to a server's log
    """

    def __init__(
        self,
        crew: Crew,
        copies: int,
        where: Callable[[], Where | None],
        hand_over: Callable[[Address], None],
        note: Callable[[Address, str], None],
        eager: EagerCopies | None = None,
    ) -> None:
        self.may_move = True
        self._eager = eager
        self._crew, self._copies, self._where = crew, copies, where
        self._hand_over, self._note = hand_over, note
        self._seats: dict[Address, list[WarmSeat]] = {}
        self._cold: dict[tuple[Address, MachineName], str] = {}
        self._leaving: set[MachineName] = set()
        self._moves: dict[Address, MachineName] = {}
        self._bounds: dict[Address, Bounds] = {}
        self._lock = threading.Lock()
        self._closing, self._whole = threading.Event(), threading.Event()
        self._taken = 0

    def begin(self, servers: Mapping[Address, Server], shares: Mapping[Address, Share]) -> list[str]:
        """Make the first copies, before the run begins; returns where they are and what they take, in words.

        shares: of the graph servers, whose rows are still to come
        """
        self._bounds = {address: share.bounds for address, share in shares.items()}
        if not self._copies:
            return []
        machines = self._crew.machines()
        if len(machines) < 2:
            return ["no warm copies: there is one machine, and a lost server starts cold"]
        where = {address: server.machine for address, server in servers.items()}
        wanted = [
            (address, machine)
            for placed in self._placed(where, machines)
            for address, found in placed.warm.items()
            for machine in found
        ]
        coming = dict.fromkeys(machines, 0)
        needed = {address: max(0, each.peak_bytes - each.taken_bytes) for address, each in shares.items()}
        for address, bytes_ in needed.items():
            coming[where[address]] += bytes_
        if self._eager is not None and self._eager.setup is not None:
            # Each takes its rows from the beginning; other copies need theirs only if they take over.
            for address, machine in wanted:
                coming[machine] += needed.get(address, 0)
            wanted_besides = [(*each, coming[each[1]] - needed.get(each[0], 0)) for each in wanted]
        else:
            wanted_besides = [(*each, coming.get(each[1], 0)) for each in wanted]
        with ThreadPoolExecutor(len(wanted)) as pool:
            return [*pool.map(lambda each: self._first(*each), wanted_besides)]

    def start(self) -> None:
        """Begin to look after the copies."""
        threading.Thread(target=self._run, name="siafu-seats", daemon=True).start()

    def take(self, server: Address, *, not_on: MachineName | None = None) -> WarmSeat | None:
        """A warm copy that is to take a server's place; None: there is none.

        not_on: a machine that cannot be reached
        """
        with self._lock:
            self._taken += 1
            self._whole.clear()
            wanted = self._moves.pop(server, None)
            found = [each for each in self._seats.get(server, []) if each.machine != not_on and each.is_there]
            if not found:
                return None
            chosen = next((each for each in found if each.machine == wanted), found[0])
            self._seats[server].remove(chosen)
            return chosen

    def wait(self, seconds: float) -> bool:
        """Wait until all copies are where they should be, and no server is about to move; whether they are in time."""
        return self._whole.wait(seconds)

    def leave(self, machine: MachineName) -> bool:
        """A machine will be taken away: have its servers moved. False: there is no other."""
        with self._lock:
            self._leaving.add(machine)
            leaving = set(self._leaving)
        return any(each not in leaving for each in self._crew.machines())

    def close(self) -> None:
        """End all copies."""
        self._closing.set()
        with self._lock:
            found, self._seats = [each for copies in self._seats.values() for each in copies], {}
        for seat in found:
            seat.drop()

    # Before the run

    def _first(self, server: Address, machine: MachineName, coming: int) -> str:
        """Make a copy and tell of it; coming: bytes that servers of that machine will take yet."""
        seat, why = self._make(server, machine, coming, aside=False)
        if seat is None:
            return f"{server} has no warm copy: {why}; lost, it starts cold"
        share = seat.share()
        if share is None:
            return f"warm copy of {server} on {seat.where}"
        return (
            f"warm copy of {server} on {seat.where}: {share.taken_bytes / 1e6:,.0f} MB, "
            f"{share.peak_bytes / 1e6:,.0f} MB at the peak if it takes over"
        )

    # In the thread

    def _run(self) -> None:
        self._let_run_ahead()
        while not self._closing.wait(_LOOK_SECONDS):
            try:
                self._look()
            except (SiafuError, ServerLost) as error:
                for server in self._moves:
                    self._note(server, f"no other machine takes it: {error}")

    def _look(self) -> None:
        """Make copies that are missing, end those that are not wanted, and have servers moved."""
        where = self._where()
        if where is None:
            return
        with self._lock:
            leaving, taken = set(self._leaving), self._taken
        machines = [each for each in self._crew.machines() if each not in leaving]
        if not machines:
            return
        self._drop_lost()
        missing = False
        for placed in self._placed(where, machines):
            for server, found in placed.warm.items():
                for machine in found:
                    missing |= not self._ensure(server, machine)
            for server, machine in placed.primary.items():
                moves = self.may_move and (self._copies or where[server] in leaving)
                if moves and machine != where[server]:
                    self._move(server, machine)
            self._drop_unwanted(placed)
        self._let_run_ahead()
        with self._lock:
            if not (missing or self._moves or taken != self._taken):
                self._whole.set()

    def _let_run_ahead(self) -> None:
        """Let one copy of each graph server be eager, where the run has eager copies."""
        if self._eager is None:
            return
        with self._lock:
            first = {server: found[0] for server, found in self._seats.items() if found}
        for server, seat in first.items():
            if server.role == "graph":
                try:
                    self._eager.start(server, seat)
                except (SiafuError, ServerLost) as error:
                    self._note(server, f"its warm copy is not eager: {error}")

    def _placed(self, where: Where, machines: Sequence[MachineName]) -> list[Seats]:
        """Where graph servers and weight servers should be, and copies of them as they are placed now.

        Each role is placed as if the other were not there.
        """
        with self._lock:
            warm = {server: tuple(each.machine for each in found) for server, found in self._seats.items()}
        now, found = Seats(where, warm), []
        for role in ("graph", "weight"):
            own = {each: machine for each, machine in where.items() if each.role == role}
            target = seats([*own], machines, now, self._copies).primary
            found.append(Seats(target, warm_machines(own, machines, now, self._copies)))
        return found

    def _ensure(self, server: Address, machine: MachineName) -> bool:
        """Make a copy on a machine, unless there is one; whether there is."""
        with self._lock:
            if any(each.machine == machine for each in self._seats.get(server, [])):
                return True
        if (server, machine) in self._cold:
            return False
        seat, why = self._make(server, machine)
        self._note(
            server, f"no warm copy on {machine}: {why}" if seat is None else f"warm copy on {seat.where}"
        )
        return seat is not None

    def _make(
        self, server: Address, machine: MachineName, coming: int = 0, *, aside: bool = True
    ) -> tuple[WarmSeat | None, str]:
        """A copy that is ready, or why there is none. One that a machine has no memory for is not tried again."""
        seat: WarmSeat | None = None
        try:
            seat = self._crew.prepare(server, machine, aside=aside)
            self._check(server, seat.share(), coming)
            self._keep(server, seat)
        except ServerLost as lost:
            return None, str(lost)
        except SiafuError as error:
            self._cold[server, machine] = str(error)
            if seat is not None:
                seat.drop()
            return None, str(error)
        return seat, ""

    def _check(self, server: Address, share: Share | None, coming: int) -> None:
        """Refuse a copy that has another part of the graph, or whose machine would have no memory for its rows.

        coming: bytes that other servers of the machine will take yet
        """
        if share is None:
            return
        if share.bounds != self._bounds[server]:
            raise SiafuError("the store is another by now")
        needed = max(0, share.peak_bytes - share.taken_bytes)
        if share.free_bytes is not None and needed + coming > share.free_bytes:
            raise SiafuError(
                f"its machine has {share.free_bytes / 1e9:,.2f} GB free, its servers take {coming / 1e9:,.2f} GB yet, and the "
                f"copy would take {needed / 1e9:,.2f} GB if it took over"
            )

    def _keep(self, server: Address, seat: WarmSeat) -> None:
        with self._lock:
            if not self._closing.is_set():
                self._seats.setdefault(server, []).append(seat)
                return
        seat.drop()
        raise ServerLost("the run is over")

    def _move(self, server: Address, machine: MachineName) -> None:
        """Have a server moved, one at a time from each machine."""
        with self._lock:
            if server in self._moves:
                return
        if self._ensure(server, machine):
            with self._lock:
                self._moves[server] = machine
            self._hand_over(server)

    def _drop_lost(self) -> None:
        """Forget copies whose processes have ended."""
        with self._lock:
            gone = [each for found in self._seats.values() for each in found if not each.is_there]
            self._seats = {
                server: [each for each in found if all(each is not other for other in gone)]
                for server, found in self._seats.items()
            }
        for seat in gone:
            self._end_eager(seat)

    def _end_eager(self, seat: WarmSeat) -> None:
        if self._eager is not None:
            self._eager.end(seat)

    def _drop_unwanted(self, placed: Seats) -> None:
        """End copies that are where none should be, but for those that a server will move to."""
        dropped = []
        with self._lock:
            for server, wanted in placed.warm.items():
                stay = {*wanted, self._moves.get(server)}
                found = self._seats.get(server, [])
                dropped += [each for each in found if each.machine not in stay]
                self._seats[server] = [each for each in found if each.machine in stay]
        for seat in dropped:
            self._end_eager(seat)
            with suppress(ServerLost):
                seat.drop()
