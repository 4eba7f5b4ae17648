"""ServersTrainer: the driver of several servers that learn embeddings: it hands out states, and adds up what relations became."""

import time
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from siafu.base.errors import SiafuError
from siafu.cluster.driven_cluster import DrivenCluster, DrivenCrew
from siafu.embedding.disk.bucket_orders import BufferState
from siafu.embedding.disk.partition_buffer import layout_of
from siafu.embedding.disk.partitioned_trainer import DiskCounts, PartitionedTrainer
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_trainer import Pause, never
from siafu.embedding.embeddings import first_relations
from siafu.embedding.servers import server_letters as letters
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
    PartitionLost,
    TrainState,
)
from siafu.embedding.servers.lock_server import LockServer
from siafu.embedding.servers.partition_keeper import keepers_of
from siafu.embedding.servers.relation_changes import RelationLedger, relation_tables
from siafu.embedding.servers.remote_partitions import RemotePartitions
from siafu.embedding.servers.server_plan import epoch_states
from siafu.embedding.steps.epoch import EpochLosses
from siafu.embedding.steps.negatives import generator
from siafu.embedding.steps.row_updates import RowOptimizer
from siafu.graph.triples import Triples
from siafu.runtime.letter import Letter

_BUCKETS = 5  # key of the random numbers
_TURN_SECONDS = 0.2


class ServersTrainer(PartitionedTrainer):
    """Learns embeddings on several servers. An epoch does not rest within: `position` is always 0.

    states_again: states that were trained again, since a server was lost
    """

    def __init__(self, triples: Triples, options: EmbedOptions, crew: DrivenCrew) -> None:
        super().__init__(triples, options)
        layout = layout_of(triples.num_entities, options)
        relations = first_relations(
            self._score, triples.num_relations, options.dim, options.seed, reciprocal=options.reciprocal
        )
        self.relations = RowOptimizer.of(options.optimizer, relations, options.lr)
        self.states_again = self._moved = self._batches = 0
        self._ledger = RelationLedger(self.relations)
        self._lock = LockServer(options.servers, keepers_of(layout.partitions, options.servers))
        self._states: list[BufferState] = []
        self._told: dict[Lease, letters.TrainingDone] = {}
        self._ended, self._look = True, 0.0
        self._cluster = DrivenCluster(crew, options.servers)
        self.partitions = self._remote = RemotePartitions(
            layout, self._lock, self._cluster, options.servers, self._pump
        )

    @property
    def steps(self) -> dict[str, int]:
        return {"entities": self._batches, "relations": self._batches}

    def set_steps(self, steps: dict[str, int]) -> None:
        self._batches = steps["relations"]

    def run_epoch(self, pause: Pause = never) -> EpochLosses | None:
        """Have all states of an epoch trained."""
        options = self.options
        assert options.partitions is not None
        assert options.buffer is not None
        random = generator(options.seed, _BUCKETS, self.epoch)
        self._states = epoch_states(options.partitions, options.buffer, random)
        self._ended = False
        self._tell(EpochBegins(tuple(state.resident for state in self._states)))
        self._pump(lambda: self._ended)
        losses, self.losses = self.losses, EpochLosses()
        self.epoch += 1
        return losses

    def write_entities(self, kinds: list[NDArray[Any]]) -> None:
        step = self._remote.layout.partitions
        for partition in range(step):
            for kind, table in enumerate(kinds):
                self._remote.write(partition, kind, table[partition::step])

    def counts(self) -> DiskCounts:
        remote = self._remote
        return DiskCounts(
            self._moved, remote.bytes_read, remote.bytes_written, remote.seconds, remote.seconds
        )

    def close(self) -> None:
        self._cluster.close()

    def _pump(self, done: Callable[[], bool]) -> None:
        """Hear letters, and replace servers that are lost, until something is so."""
        while not done():
            came = self._cluster.next(_TURN_SECONDS)
            if came is not None:
                self._hear(*came)
            if time.monotonic() < self._look:
                continue
            self._look = time.monotonic() + _TURN_SECONDS
            lost = self._cluster.losses()
            for server in lost:
                self._tell(KeeperGone(server))
            for server in lost:
                self._tell(KeeperReplaced((server, self._cluster.replace(server))))

    def _hear(self, sender: int, letter: Letter) -> None:
        match letter.event:
            case letters.AskedForWork(event) | letters.NobodyHolds(event) | letters.CopyDone(event):
                self._tell(event)
            case letters.TrainingDone() as done:
                self._ledger.add(done.event.lease, done.number, letter.tensors)
                self._told[done.event.lease] = done
                self._tell(done.event)
            case letters.RelationsChanged(lease, number):
                self._ledger.add(lease, number, letter.tensors)
                now = letters.RelationsNow(lease, number)
                self._cluster.send(sender, self._with_relations(now))
            case letters.BytesSent() | letters.BytesKept():
                self._remote.hear(letter)

    def _tell(self, event: LockEvent) -> None:
        for instruction in self._lock.handle(event):
            self._obey(instruction)

    def _obey(self, instruction: LockInstruction) -> None:
        match instruction:
            case TrainState() as order:
                self._ledger.begin(order.lease)
                buckets = tuple(self._states[order.state].buckets)
                work = letters.StateToTrain(order, self.epoch, buckets)
                self._cluster.send(order.place[0], self._with_relations(work))
            case CopyPartition() as copy:
                self._cluster.send(copy.place[0], Letter(letters.PartitionToCopy(copy)))
            case AcceptLease(lease):
                self._ledger.accept(lease)
                self._count(self._told.pop(lease))
            case AbandonLease(lease):
                self._ledger.abandon(lease)
                self._told.pop(lease, None)
                self.states_again += 1
            case PartitionLost(partition):
                raise SiafuError(
                    f"both servers that kept partition {partition} were lost at once: go on with --resume "
                    "from the last checkpoint"
                )
            case EpochEnds():
                self._ended = True

    def _with_relations(self, event: letters.StateToTrain | letters.RelationsNow) -> Letter:
        tables = relation_tables(self.relations)
        return Letter(event, {name: table.copy() for name, table in tables.items()})

    def _count(self, done: letters.TrainingDone) -> None:
        self.losses.total += done.loss
        self.losses.triples += done.triples
        self.losses.batches += done.batches
        self.losses.staleness = max(self.losses.staleness, done.staleness)
        self._batches += done.batches
        self._moved += len({partition for partition, _, _ in done.event.kept})
        self._cluster.well(done.event.place[0])
