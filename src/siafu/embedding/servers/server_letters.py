"""Letters between the driver and the servers of embeddings, and among servers. Vectors and changes of relations go beside them."""

import sys
from dataclasses import dataclass

from siafu.cluster.post.letters import admit_events
from siafu.embedding.servers.lock_events import (
    CopyPartition,
    Lease,
    PartitionCopied,
    PartitionMissing,
    ServerAsks,
    ServerPlace,
    StateTrained,
    TrainState,
)
from siafu.pipeline.events import Event


@dataclass(frozen=True, slots=True)
class StateToTrain(Event):
    """Driver → server: a state, with the relations as they are now.

    epoch:   of the run
    buckets: pairs of partitions whose triples it has
    """

    order: TrainState
    epoch: int
    buckets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PartitionToCopy(Event):
    """Driver → keeper: read a partition that you lack."""

    order: CopyPartition


@dataclass(frozen=True, slots=True)
class AskedForWork(Event):
    """Server → driver."""

    event: ServerAsks


@dataclass(frozen=True, slots=True)
class TrainingDone(Event):
    """Server → driver, with the last changes of the relations.

    number: of these changes, as that of RelationsChanged
    loss, triples, batches, staleness: of the state, as `EpochLosses`
    """

    event: StateTrained
    number: int
    loss: float
    triples: int
    batches: int
    staleness: int


@dataclass(frozen=True, slots=True)
class NobodyHolds(Event):
    """Server → driver."""

    event: PartitionMissing


@dataclass(frozen=True, slots=True)
class CopyDone(Event):
    """Keeper → driver."""

    event: PartitionCopied


@dataclass(frozen=True, slots=True)
class BytesWanted(Event):
    """Anyone → keeper: bytes of a partition, from `first` to `last`, whole pages. request: the asker's number for it"""

    request: int
    partition: int
    version: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class BytesSent(Event):
    """The answer to BytesWanted, with the bytes; found: whether that version is here."""

    request: int
    found: bool


@dataclass(frozen=True, slots=True)
class BytesToKeep(Event):
    """Anyone → keeper, with bytes: a part of a partition that was trained.

    base:  the version that it was trained from
    first: place of the bytes in the partition
    ends:  whether these are the last
    """

    keeper: ServerPlace
    lease: Lease
    partition: int
    base: int
    first: int
    ends: bool


@dataclass(frozen=True, slots=True)
class BytesKept(Event):
    """The answer to the last BytesToKeep of a partition."""

    keeper: ServerPlace
    lease: Lease
    partition: int


@dataclass(frozen=True, slots=True)
class RelationsChanged(Event):
    """Server → driver, with changes of the relations since the last such letter. number: counts up within a lease"""

    lease: Lease
    number: int


@dataclass(frozen=True, slots=True)
class RelationsNow(Event):
    """Driver → server, with the relations: the answer to RelationsChanged."""

    lease: Lease
    number: int


admit_events(sys.modules[__name__])
