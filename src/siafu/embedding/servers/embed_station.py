"""EmbedStation: a server of embeddings as a process: it keeps partitions on its disk, and trains the states that it is given."""

import queue
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import SiafuError
from siafu.cluster.driven_cluster import server_address
from siafu.cluster.post.member import Member
from siafu.cluster.stations.station import Station
from siafu.embedding.disk.partition_buffer import layout_of
from siafu.embedding.embeddings import first_entities
from siafu.embedding.servers import server_letters as letters
from siafu.embedding.servers.bucket_server import (
    BucketInstruction,
    BucketServer,
    Computed,
    ComputeState,
    KeepPartition,
    PartitionArrived,
    PartitionKept,
    ReadPartition,
    TellLock,
)
from siafu.embedding.servers.lock_events import (
    CopyPartition,
    Lease,
    PartitionCopied,
    PartitionMissing,
    ServerAsks,
    ServerPlace,
    StateTrained,
)
from siafu.embedding.servers.partition_keeper import PartitionKeeper, keepers_of, pieces
from siafu.embedding.servers.server_plan import EmbedPlan
from siafu.embedding.servers.state_trainer import StateTrainer
from siafu.embedding.steps.epoch import EpochLosses
from siafu.embedding.steps.float_bits import as_kind
from siafu.embedding.steps.scores import SCORES
from siafu.graph.triples import triples_at
from siafu.pipeline.events import Event
from siafu.pipeline.ids import RUN, Address
from siafu.runtime.letter import Letter
from siafu.tables import ScratchDirectory


@dataclass(slots=True)
class _Reading:
    """A partition on its way, a piece at a time.

    lease: that it is trained under; None: it is copied, to this place on disk
    """

    partition: int
    version: int
    holder: int
    left: list[tuple[int, int]]
    lease: Lease | None
    place: int = -1


class EmbedStation(Station):
    """A server. Letters are heard in the post's thread, states are trained in one of its own."""

    def __init__(self, address: Address, life: int, machine: str, plan: EmbedPlan, **options: float) -> None:
        super().__init__(address, life, machine, **options)
        triples = triples_at(plan.source)
        if triples.fingerprint != plan.fingerprint:
            raise SiafuError(f"{plan.source} is another store on this machine: copy it again")
        asked = plan.embed_options()
        scratch = Path(plan.scratch or gettempdir())
        self.place: ServerPlace = (address.index, life)
        self._layout = layout_of(triples.num_entities, asked)
        kept = keepers_of(self._layout.partitions, plan.servers)
        own = tuple(partition for partition, keepers in enumerate(kept) if address.index in keepers)
        self._keeper = PartitionKeeper(self._layout, own, ScratchDirectory(scratch))
        if life == 1:
            self._keep_first_rows(own, asked)
        self._trainer = StateTrainer(triples, asked, self._layout, scratch)
        self._machine = BucketServer(self.place)
        self._order: letters.StateToTrain | None = None
        self._losses = EpochLosses()
        self._exchanges = 0
        self._answered = threading.Event()
        self._requests: dict[int, _Reading] = {}
        self._next_request = 0
        self._writing: dict[tuple[int, int], int] = {}  # (partition, lease): the place that it is written to
        self._lock = threading.RLock()
        self._work: queue.SimpleQueue[ComputeState | None] = queue.SimpleQueue()
        self.events = 0

    def _keep_first_rows(self, partitions: tuple[int, ...], asked: Any) -> None:
        """Write the first vectors; what the optimizer keeps is zeros, as the file is."""
        score, layout = SCORES[asked.score], self._layout
        for span in layout.spans():
            drawn = first_entities(score, span.begin, span.end, layout.dim, asked.seed)
            rows = np.zeros((span.last - span.first, layout.dim), layout.dtype)
            for partition in partitions:
                own = drawn[partition :: layout.partitions]
                rows[: len(own)], rows[len(own) :] = as_kind(own, layout.dtype), 0
                self._keeper.write(partition, 0, span.first * layout.width, rows.reshape(-1).view(np.uint8))
        for partition in partitions:
            self._keeper.versions.fill(partition, 0, 0)

    def join(self, setup: None, members: Iterable[Member]) -> None:
        """Be a server of the run from now on."""
        self.start(self, members)  # type: ignore[arg-type]
        threading.Thread(target=self._train_all, name="siafu-train", daemon=True).start()
        with self._lock:
            self._obey(self._machine.begin())

    def close(self) -> None:
        self._work.put(None)
        super().close()
        self._keeper.close()

    def waiting(self) -> list[str]:
        """Nothing that a person could use: the driver knows its lease."""
        return []

    def hear(self, sender: Address, letter: Letter) -> None:
        """Take a letter, in the post's thread."""
        with self._lock:
            self.events += 1
            match letter.event:
                case letters.StateToTrain() as order:
                    self._take(order, letter)
                case letters.PartitionToCopy(order):
                    self._copy(order)
                case letters.BytesWanted() as wanted:
                    found = self._keeper.read(wanted.partition, wanted.version, wanted.first, wanted.last)
                    sent = {} if found is None else {"bytes": found}
                    answer = letters.BytesSent(wanted.request, found is not None)
                    self.post.send(sender, Letter(answer, sent))
                case letters.BytesSent(request, found):
                    self._arrive(request, letter.tensors["bytes"] if found else None)
                case letters.BytesToKeep() as part:
                    self._keep(sender, part, letter.tensors["bytes"])
                case letters.BytesKept(keeper, lease, partition):
                    self._obey(self._machine.handle(PartitionKept(lease, partition, keeper)))
                case letters.RelationsNow(lease, number):
                    if (
                        self._order is not None
                        and self._order.order.lease == lease
                        and number == self._exchanges
                    ):
                        self._trainer.relations.refresh(letter.tensors)
                        self._answered.set()

    # As a server that trains

    def _take(self, order: letters.StateToTrain, letter: Letter) -> None:
        fresh = self._order is None or self._order.order.lease < order.order.lease
        if order.order.place != self.place:
            return  # it was for one that is lost
        if fresh:
            self._order, self._exchanges = order, 0
            self._trainer.make_room(tuple(source.partition for source in order.order.sources))
            self._trainer.relations.reset(letter.tensors)
        self._obey(self._machine.handle(order.order))

    def _obey(self, instructions: list[BucketInstruction]) -> None:
        for each in instructions:
            match each:
                case TellLock(event):
                    self._tell_lock(event)
                case ReadPartition():
                    self._read(each)
                case ComputeState():
                    self._work.put(each)
                case KeepPartition():
                    self._send_to_keeper(each)

    def _tell_lock(self, event: ServerAsks | StateTrained | PartitionMissing) -> None:
        if isinstance(event, StateTrained):
            losses, changes = self._losses, self._trainer.relations.changes()
            self._trainer.trained(event.lease)
            self._exchanges += 1
            done = letters.TrainingDone(
                event,
                self._exchanges,
                losses.total,
                losses.triples,
                losses.batches,
                losses.staleness,
            )
            self.post.send(RUN, Letter(done, changes))
            return
        kind = letters.AskedForWork if isinstance(event, ServerAsks) else letters.NobodyHolds
        self.tell(kind(event))  # type: ignore[arg-type]

    def tell(self, event: Event) -> None:
        """Say something to the driver."""
        self.post.send(RUN, Letter(event))

    def _read(self, wanted: ReadPartition) -> None:
        self._forget_reading(wanted.partition, wanted.lease)
        if self._trainer.has(wanted.partition, wanted.version):
            self._obey(self._machine.handle(PartitionArrived(wanted.lease, wanted.partition)))
            return
        self._trainer.expect(wanted.partition, wanted.version)
        left = pieces(self._layout)
        self._ask(_Reading(wanted.partition, wanted.version, wanted.holder, left, wanted.lease))

    def _forget_reading(self, partition: int, lease: Lease | None) -> None:
        """A partition is read again, from another: what the first sends is void."""
        self._requests = {
            number: each
            for number, each in self._requests.items()
            if (each.partition, each.lease) != (partition, lease)
        }

    def _ask(self, reading: _Reading) -> None:
        """Ask for the next piece; from this server's own disk all of them are there at once."""
        while reading.left and reading.holder == self.place[0]:
            first, last = reading.left[0]
            data = self._keeper.read(reading.partition, reading.version, first, last)
            if not self._store_piece(reading, data):
                return
        if reading.left:
            self._next_request += 1
            self._requests[self._next_request] = reading
            first, last = reading.left[0]
            asked = letters.BytesWanted(self._next_request, reading.partition, reading.version, first, last)
            self.post.send(server_address(reading.holder), Letter(asked))

    def _arrive(self, request: int, data: NDArray[np.uint8] | None) -> None:
        reading = self._requests.pop(request, None)
        if reading is not None and self._store_piece(reading, data):
            self._ask(reading)

    def _store_piece(self, reading: _Reading, data: NDArray[np.uint8] | None) -> bool:
        """Take a piece; whether to go on."""
        if data is None:
            if reading.lease is None:
                self._say_copied(reading.partition, -1)
            return False
        first, _ = reading.left.pop(0)
        if reading.lease is None:
            self._keeper.write(reading.partition, reading.place, first, data)
            if not reading.left:
                self._keeper.versions.fill(reading.partition, reading.place, reading.version)
                self._say_copied(reading.partition, reading.version)
        elif self._trainer.fill(reading.partition, first, data):
            self._obey(self._machine.handle(PartitionArrived(reading.lease, reading.partition)))
        return bool(reading.left)

    def _train_all(self) -> None:
        """The training thread."""
        try:
            while (work := self._work.get()) is not None:
                order = self._order
                assert order is not None
                buckets = list(order.buckets)
                self._answered.set()
                losses = self._trainer.train(
                    buckets, order.epoch, work.state, lambda: self._exchange(work.lease)
                )
                self._answered.wait()
                with self._lock:
                    self._losses = losses
                    self._obey(self._machine.handle(Computed(work.lease)))
        except BaseException as error:  # handed to the driver
            self.fail(error)

    def _exchange(self, lease: Lease) -> None:
        """Send what changed in the relations, and take what others changed when it comes. A late answer is not waited for."""
        if not self._answered.is_set():
            return
        self._answered.clear()
        with self._lock:
            self._exchanges += 1
            changed = letters.RelationsChanged(lease, self._exchanges)
            self.post.send(RUN, Letter(changed, self._trainer.relations.changes()))

    def _send_to_keeper(self, keep: KeepPartition) -> None:
        parts = pieces(self._layout)
        for first, last in parts:
            data = self._trainer.bytes_of(keep.partition, first, last)
            part = letters.BytesToKeep(
                keep.keeper,
                keep.lease,
                keep.partition,
                keep.base,
                first,
                last == parts[-1][1],
            )
            if keep.keeper == self.place:
                self._keep(self.address, part, data)
            else:
                self.post.send(server_address(keep.keeper[0]), Letter(part, {"bytes": data}))

    # As a keeper

    def _keep(self, sender: Address, part: letters.BytesToKeep, data: NDArray[np.uint8]) -> None:
        versions, key = self._keeper.versions, (part.partition, part.lease)
        if part.keeper != self.place:
            return
        there = versions.find(part.partition, part.lease) is not None
        if not there:
            if part.first == 0:
                place = versions.place_for_trained(part.partition, part.lease, part.base)
                if place is None:
                    return  # of a lease that is over
                self._forget_reading(part.partition, None)
                self._forget_writing(part.partition, Lease(0))
                self._writing[key] = place
            if key not in self._writing:
                return
            self._keeper.write(part.partition, self._writing[key], part.first, data)
            if part.ends:
                versions.fill(part.partition, self._writing.pop(key), part.lease)
        if part.ends:
            kept = letters.BytesKept(self.place, part.lease, part.partition)
            if sender == self.address:
                self._obey(self._machine.handle(PartitionKept(part.lease, part.partition, self.place)))
            else:
                self.post.send(sender, Letter(kept))

    def _forget_writing(self, partition: int, besides: Lease) -> None:
        self._writing = {
            (each, lease): place
            for (each, lease), place in self._writing.items()
            if each != partition or lease == besides
        }

    def _copy(self, order: CopyPartition) -> None:
        if order.place != self.place:
            return
        self._forget_writing(order.partition, order.lease)
        if (order.partition, order.lease) in self._writing:
            return  # a newer version comes; the lock server asks again if it does not
        self._forget_reading(order.partition, None)
        if self._keeper.versions.find(order.partition, order.version) is not None:
            self._say_copied(order.partition, order.version)
            return
        place = self._keeper.versions.place_for_copy(order.partition, order.version)
        if place is None:
            self._say_copied(order.partition, -1)
            return
        left = pieces(self._layout)
        self._ask(_Reading(order.partition, order.version, order.holder, left, None, place))

    def _say_copied(self, partition: int, version: int) -> None:
        self.tell(letters.CopyDone(PartitionCopied(self.place, partition, version)))
