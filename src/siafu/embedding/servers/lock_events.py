"""Events and instructions of the machines that share out the states of an epoch.

A *state* is a set of partitions and the buckets that are trained while one server has them. A *lease* is one server's permission to train
one state: leases count up from 1, and no two are alike. A partition's *version* is the lease that wrote it; 0: its first vectors. Every
partition lies on the disks of its *keepers*; those that have its version are its *holders*.

Messages may be lost, come late or come twice. Whoever waits asks again: every event may be handled again.
"""

from dataclasses import dataclass
from typing import NewType

Lease = NewType("Lease", int)
ServerPlace = tuple[int, int]
"""A server and its life: which of those that were this server, one after the other."""


class LockEvent:
    """Event that the lock server hears."""


@dataclass(frozen=True, slots=True)
class EpochBegins(LockEvent):
    """states: for each state its partitions"""

    states: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ServerAsks(LockEvent):
    """A server is there, and trains whatever is given to it. Said again where nothing was heard for long."""

    place: ServerPlace


@dataclass(frozen=True, slots=True)
class StateTrained(LockEvent):
    """A state is trained, and its partitions are kept.

    kept: (partition, keeper, the keeper's life)
    """

    place: ServerPlace
    lease: Lease
    kept: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class PartitionMissing(LockEvent):
    """A server has not read a partition of its state yet, and was told that nobody holds it."""

    place: ServerPlace
    lease: Lease
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionCopied(LockEvent):
    """A keeper has a partition that it lacked; version: which, or -1: its source had another by then."""

    place: ServerPlace
    partition: int
    version: int


@dataclass(frozen=True, slots=True)
class KeeperGone(LockEvent):
    """A server's process is lost, and its disk."""

    server: int


@dataclass(frozen=True, slots=True)
class KeeperReplaced(LockEvent):
    """An empty process has taken a lost one's place."""

    place: ServerPlace


@dataclass(frozen=True, slots=True)
class Source:
    """A partition of a state.

    holders: servers to read it from
    keepers: where to write it when it is trained
    """

    partition: int
    version: int
    holders: tuple[int, ...]
    keepers: tuple[ServerPlace, ...]


class LockInstruction:
    """What the lock server's host is to do."""


@dataclass(frozen=True, slots=True)
class TrainState(LockInstruction):
    """Server: train a state. Said again with the same lease, it tells which holders and keepers there are now."""

    place: ServerPlace
    lease: Lease
    state: int
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class CopyPartition(LockInstruction):
    """Keeper: read a partition that you lack.

    lease: under which it is trained now; 0: none. What others were writing of it is void.
    """

    place: ServerPlace
    partition: int
    version: int
    holder: int
    lease: Lease


@dataclass(frozen=True, slots=True)
class AcceptLease(LockInstruction):
    """A lease's state is trained: what it sent counts."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class AbandonLease(LockInstruction):
    """A lease's server is lost: what it sent does not count."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class EpochEnds(LockInstruction):
    """All states are trained."""


@dataclass(frozen=True, slots=True)
class PartitionLost(LockInstruction):
    """All that held a partition are lost."""

    partition: int
