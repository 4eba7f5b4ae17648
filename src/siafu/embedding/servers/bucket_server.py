"""BucketServer: one server's part in an epoch: read the partitions of a state, train it, have them kept, say so.

Events in, instructions out, as the lock server.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from siafu.embedding.servers.lock_events import (
    Lease,
    PartitionMissing,
    ServerAsks,
    ServerPlace,
    StateTrained,
    TrainState,
)


class BucketEvent:
    """Event that a server hears, besides `TrainState`."""


@dataclass(frozen=True, slots=True)
class PartitionArrived(BucketEvent):
    """A partition has come, in the place where this lease wants it."""

    lease: Lease
    partition: int


@dataclass(frozen=True, slots=True)
class Computed(BucketEvent):
    """The state of a lease is trained in memory."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class PartitionKept(BucketEvent):
    """A keeper has written a partition."""

    lease: Lease
    partition: int
    keeper: ServerPlace


@dataclass(frozen=True, slots=True)
class Reminded(BucketEvent):
    """Nothing was heard for long."""


class BucketInstruction:
    """Instruction for a server's host."""


@dataclass(frozen=True, slots=True)
class ReadPartition(BucketInstruction):
    """Read a partition from its holder; said again, if the holder was lost."""

    lease: Lease
    partition: int
    version: int
    holder: int


@dataclass(frozen=True, slots=True)
class ComputeState(BucketInstruction):
    """Train the state: all its partitions are there."""

    lease: Lease
    state: int


@dataclass(frozen=True, slots=True)
class KeepPartition(BucketInstruction):
    """Have a keeper write the partition as it is now.

    base: the version that it was trained from, and that the keeper must not lose
    """

    lease: Lease
    partition: int
    base: int
    keeper: ServerPlace


@dataclass(frozen=True, slots=True)
class TellLock(BucketInstruction):
    """Say this to the lock server."""

    event: ServerAsks | StateTrained | PartitionMissing


class BucketServer:
    """A server's machine. It has one lease at a time; a newer one makes an older one void."""

    def __init__(self, place: ServerPlace) -> None:
        self._place = place
        self._order: TrainState | None = None
        self._asked: dict[int, int] = {}  # partitions on their way, and whom they were asked of
        self._step = "idle"
        self._kept: set[tuple[int, ServerPlace]] = set()

    def begin(self) -> list[BucketInstruction]:
        """The first thing that a server says."""
        return [TellLock(ServerAsks(self._place))]

    def handle(self, event: BucketEvent | TrainState) -> list[BucketInstruction]:
        """Take an event."""
        match event:
            case TrainState():
                return list(self._take(event))
            case PartitionArrived(lease, partition) if self._is_at("read", lease):
                self._asked.pop(partition, None)
                return list(self._compute_if_read())
            case Computed(lease) if self._is_at("compute", lease):
                self._step, self._kept = "keep", set()
                return list(self._keep())
            case PartitionKept(lease, partition, keeper) if self._is_at("keep", lease):
                self._kept.add((partition, keeper))
                return list(self._tell_if_kept())
            case Reminded():
                return [TellLock(ServerAsks(self._place))]
            case _:
                return []  # of an earlier lease, or said twice

    def _is_at(self, step: str, lease: Lease) -> bool:
        return self._step == step and self._order is not None and self._order.lease == lease

    def _take(self, order: TrainState) -> Iterator[BucketInstruction]:
        known = self._order.lease if self._order is not None else 0
        if order.place != self._place or order.lease < known:
            return
        self._order = order
        if order.lease > known:
            self._step = "read"
            self._asked = {source.partition: -1 for source in order.sources}
        if self._step == "read":
            yield from self._read()
        elif self._step == "keep":
            yield from self._keep()
            yield from self._tell_if_kept()
        elif self._step == "told":
            yield from self._keep_again()

    def _read(self) -> Iterator[BucketInstruction]:
        assert self._order is not None
        for source in self._order.sources:
            if source.partition not in self._asked:
                continue
            if not source.holders:
                yield TellLock(PartitionMissing(self._place, self._order.lease, source.partition))
            else:
                nearest = self._place[0] if self._place[0] in source.holders else source.holders[0]
                self._asked[source.partition] = nearest
                yield ReadPartition(self._order.lease, source.partition, source.version, nearest)

    def _compute_if_read(self) -> Iterator[BucketInstruction]:
        assert self._order is not None
        if not self._asked:
            self._step = "compute"
            yield ComputeState(self._order.lease, self._order.state)

    def _keep(self) -> Iterator[BucketInstruction]:
        assert self._order is not None
        for source in self._order.sources:
            for keeper in source.keepers:
                if (source.partition, keeper) not in self._kept:
                    yield KeepPartition(self._order.lease, source.partition, source.version, keeper)

    def _keep_again(self) -> Iterator[BucketInstruction]:
        """It was told, and the lock server does not know it, or has lost a keeper since."""
        self._step = "keep"
        yield from self._keep()
        yield from self._tell_if_kept()

    def _tell_if_kept(self) -> Iterator[BucketInstruction]:
        assert self._order is not None
        wanted = {(source.partition, keeper) for source in self._order.sources for keeper in source.keepers}
        alive = all(source.keepers for source in self._order.sources)
        if alive and wanted <= self._kept:
            self._step = "told"
            kept = tuple((partition, *keeper) for partition, keeper in sorted(wanted))
            yield TellLock(StateTrained(self._place, self._order.lease, kept))
