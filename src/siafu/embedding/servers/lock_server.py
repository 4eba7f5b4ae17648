"""LockServer: which server trains which state. Events in, instructions out: no socket, no clock, no random number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from siafu.embedding.servers.lock_events import (
    AbandonLease,
    AcceptLease,
    CopyPartition,
    EpochBegins,
    EpochEnds,
    KeeperGone,
    KeeperReplaced,
    Lease,
    LockEvent,
    LockInstruction,
    PartitionCopied,
    PartitionLost,
    PartitionMissing,
    ServerAsks,
    ServerPlace,
    Source,
    StateTrained,
    TrainState,
)


@dataclass(slots=True)
class _Held:
    """A partition: its version, who has it, and who should."""

    version: int
    holders: set[int]
    keepers: tuple[int, ...]


class LockServer:
    """Hands out states so that no two that share a partition are trained at a time.

    A state is trained when all its partitions are kept in their new version, in one step: the partitions of a server that is
    lost before that stand as they stood, and its state is handed out again. No other state is.

    keepers: for each partition, the servers on whose disks it lies
    """

    def __init__(self, servers: int, keepers: Sequence[tuple[int, ...]]) -> None:
        self._lives: dict[int, int] = dict.fromkeys(range(servers), 1)
        self._gone: set[int] = set()
        self._held = [_Held(0, set(each), each) for each in keepers]
        self._states: tuple[tuple[int, ...], ...] = ()
        self._waiting: list[int] = []  # states, in the order in which they are handed out
        self._leases: dict[int, tuple[Lease, int]] = {}  # by server: its lease and the state
        self._idle: list[int] = []
        self._copying: dict[
            tuple[int, int], int
        ] = {}  # (keeper, partition): the version that it was told to read
        self._last = Lease(0)
        self._running = False

    def handle(self, event: LockEvent) -> list[LockInstruction]:
        """Take an event."""
        match event:
            case EpochBegins(states):
                self._states, self._waiting, self._running = states, list(range(len(states))), True
                told: Iterator[LockInstruction] = iter(())
            case ServerAsks(place):
                told = self._asks(place) if self._lives_at(place) else iter(())
            case StateTrained():
                told = self._trained(event)
            case PartitionCopied():
                told = self._copied(event)
            case PartitionMissing(place, lease, partition):
                told = self._missing(place, lease, partition)
            case KeeperGone(server):
                told = self._lose(server)
            case KeeperReplaced(place):
                told = self._replace(place)
            case _:
                raise TypeError(f"not an event of the lock server: {event}")
        return [*told, *self._repair(), *self._hand_out(), *self._end()]

    def place_of(self, partition: int) -> tuple[int, tuple[int, ...]]:
        """A partition's version, and the servers that have it."""
        held = self._held[partition]
        return held.version, tuple(sorted(held.holders))

    def next_lease(self) -> Lease:
        """A lease of nobody's: for who writes all partitions before an epoch."""
        self._last = Lease(self._last + 1)
        return self._last

    def rewrite(self, partition: int, lease: Lease) -> None:
        """Its keepers have been given a partition anew, between epochs, by the holder of this lease."""
        held = self._held[partition]
        held.version, held.holders = lease, {keeper for keeper in held.keepers if keeper not in self._gone}

    def _lives_at(self, place: ServerPlace) -> bool:
        return place[0] not in self._gone and self._lives[place[0]] == place[1]

    def _asks(self, place: ServerPlace) -> Iterator[LockInstruction]:
        server = place[0]
        if server in self._leases:
            yield self._order(server)
        elif server not in self._idle:
            self._idle.append(server)
        for (keeper, partition), version in self._copying.items():
            if keeper == server and self._held[partition].holders:
                yield self._copy(keeper, partition, version)

    def _trained(self, done: StateTrained) -> Iterator[LockInstruction]:
        server = done.place[0]
        lease, state = self._leases.get(server, (None, -1))
        if lease != done.lease or not self._lives_at(done.place):
            return  # said twice, or by one that was lost
        holders: dict[int, set[int]] = {partition: set() for partition in self._states[state]}
        for partition, keeper, life in done.kept:
            if self._lives_at((keeper, life)):
                holders[partition].add(keeper)
        if not all(holders.values()):
            yield self._order(server)  # a keeper was lost after it had said yes: keep it again
            return
        del self._leases[server]
        for partition, found in holders.items():
            self._held[partition].version, self._held[partition].holders = done.lease, found
            for keeper in self._held[partition].keepers:
                self._copying.pop((keeper, partition), None)
        self._idle.append(server)
        yield AcceptLease(done.lease)

    def _copied(self, copied: PartitionCopied) -> Iterator[LockInstruction]:
        server, partition = copied.place[0], copied.partition
        if not self._lives_at(copied.place) or (server, partition) not in self._copying:
            return
        del self._copying[server, partition]
        if copied.version == self._held[partition].version:
            self._held[partition].holders.add(server)
        yield from ()

    def _missing(self, place: ServerPlace, lease: Lease, partition: int) -> Iterator[LockInstruction]:
        held = self._leases.get(place[0], (None, -1))[0]
        if self._lives_at(place) and held == lease and not self._held[partition].holders:
            yield PartitionLost(partition)

    def _lose(self, server: int) -> Iterator[LockInstruction]:
        if server in self._gone:
            return
        self._gone.add(server)
        self._idle = [each for each in self._idle if each != server]
        self._copying = {pair: version for pair, version in self._copying.items() if pair[0] != server}
        for held in self._held:
            held.holders.discard(server)
        if server in self._leases:
            lease, state = self._leases.pop(server)
            self._waiting.insert(0, state)
            yield AbandonLease(lease)
        locked = self._locked
        for partition, held in enumerate(self._held):
            if not held.holders and partition not in locked:
                yield PartitionLost(partition)
        for other in self._leases:
            yield self._order(other)
        for (keeper, partition), version in self._copying.items():
            if self._held[partition].holders:
                yield self._copy(keeper, partition, version)

    def _replace(self, place: ServerPlace) -> Iterator[LockInstruction]:
        server, life = place
        if server not in self._gone or life <= self._lives[server]:
            return
        self._gone.discard(server)
        self._lives[server] = life
        for other in self._leases:
            yield self._order(other)

    @property
    def _locked(self) -> set[int]:
        return {partition for _, state in self._leases.values() for partition in self._states[state]}

    def _repair(self) -> Iterator[LockInstruction]:
        """Have keepers read what they lack."""
        for partition, held in enumerate(self._held):
            for keeper in held.keepers:
                lacks = keeper not in held.holders and keeper not in self._gone
                if lacks and held.holders and (keeper, partition) not in self._copying:
                    self._copying[keeper, partition] = held.version
                    yield self._copy(keeper, partition, held.version)

    def _hand_out(self) -> Iterator[LockInstruction]:
        locked = self._locked
        for server in list(self._idle):
            state = next(
                (
                    each
                    for each in self._waiting
                    if locked.isdisjoint(self._states[each])
                    and all(self._held[p].holders for p in self._states[each])
                ),
                None,
            )
            if state is None:
                return
            self._idle.remove(server)
            self._waiting.remove(state)
            self._leases[server] = self.next_lease(), state
            locked.update(self._states[state])
            yield self._order(server)

    def _copy(self, keeper: int, partition: int, version: int) -> CopyPartition:
        place, holder = (keeper, self._lives[keeper]), min(self._held[partition].holders)
        leases = (lease for lease, state in self._leases.values() if partition in self._states[state])
        return CopyPartition(place, partition, version, holder, next(leases, Lease(0)))

    def _order(self, server: int) -> TrainState:
        lease, state = self._leases[server]
        sources = tuple(self._source(partition) for partition in self._states[state])
        return TrainState((server, self._lives[server]), lease, state, sources)

    def _source(self, partition: int) -> Source:
        held = self._held[partition]
        alive = tuple((keeper, self._lives[keeper]) for keeper in held.keepers if keeper not in self._gone)
        return Source(partition, held.version, tuple(sorted(held.holders)), alive)

    def _end(self) -> Iterator[LockInstruction]:
        if self._running and not self._waiting and not self._leases:
            self._running = False
            yield EpochEnds()
