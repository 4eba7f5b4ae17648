"""SampleStation: a server of mini-batches as a process: it draws some batches, and computes its share of all."""

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.hardware.memory import own_bytes, refuse_more_than_budget
from siafu.cluster.driven_cluster import server_address
from siafu.cluster.post.member import Member
from siafu.cluster.stations.station import Station
from siafu.graph.partition import Partition
from siafu.pipeline.ids import RUN, Address
from siafu.runtime.letter import Letter
from siafu.runtime.one_thread import use_one_thread
from siafu.sampling.batch_memory import share_memory
from siafu.sampling.sampled_model import SampledBatch
from siafu.sampling.sampled_plan import SampledPlan
from siafu.sampling.servers import share_letters as letters
from siafu.sampling.servers.sent_share import ReceivedShare, ShareReader, as_bytes, sent_arrays
from siafu.sampling.servers.server_loads import shares_of
from siafu.sampling.servers.share_letters import BatchPlace
from siafu.sampling.table_load import TableLoad
from siafu.server.gathers.by_columns.column_space import slices_of


@dataclass(slots=True, eq=False)
class _Share:
    """A share on its way to be computed.

    drawn:    as it came
    received: with its table of features, which is filled as rows arrive
    waits:    rows of the table that each other server was asked for
    ready:    the batch; None: rows are missing
    """

    drawn: letters.ShareDrawn
    structure: int = 0
    features: int = 0
    received: ReceivedShare | None = None
    table: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    waits: dict[Address, NDArray[np.bool_]] = field(default_factory=dict)
    ready: SampledBatch | None = None


class SampleStation(Station):
    """A server. Letters are heard in the post's thread, and obeyed in threads of its own, none of which waits for another server.

    It keeps nothing that a run would miss: weights come with every batch.
    """

    def __init__(
        self,
        address: Address,
        life: int,
        machine: str,
        parts: SampledPlan,
        partition: Partition,
        threads: int,
        memory: str | None = None,
        **options: float,
    ) -> None:
        """Ready to join.

        partition: which server has the features of a vertex
        threads:   that draw and load
        memory:    a size that its process may take; None: what is free on its machine
        """
        taken = own_bytes()
        refuse_more_than_budget(
            taken
            + share_memory(parts.plan, parts.fanouts, parts.batch, parts.first_input, parts.servers, threads),
            f"{address} of sampled training",
            "smaller batches (batch), smaller fanouts or more servers",
            memory=memory,
            taken=taken,
        )
        super().__init__(address, life, machine, **options)
        self.events = 0
        self._parts, self._owner, self._server = parts, partition.owner, int(address.index)
        graph = parts.plan.graph
        self._stored = parts.plan.features.stored
        self._sampler, self._load = parts.sampler(), TableLoad(parts)
        leaves = parts.first_input == "gathered"
        self._reader = ShareReader(graph.num_vertices, graph.indices.dtype, leaves=leaves)
        self._batches = lru_cache(2)(parts.batches)  # an epoch ends while batches of the next are drawn
        self._round = 0
        self._shares: dict[BatchPlace, _Share] = {}
        self._weights: dict[BatchPlace, dict[str, Any]] = {}
        self._lock = threading.RLock()
        self._pool = ThreadPoolExecutor(threads, "siafu-sample", initializer=use_one_thread)
        self._serving = ThreadPoolExecutor(1, "siafu-rows")
        self._work: queue.SimpleQueue[tuple[_Share, dict[str, Any]] | None] = queue.SimpleQueue()

    def join(self, setup: None, members: Iterable[Member]) -> None:
        """Be a server of the run from now on."""
        self.start(self, members)  # type: ignore[arg-type]
        threading.Thread(target=self._compute_all, name="siafu-compute", daemon=True).start()

    def close(self) -> None:
        self._work.put(None)
        super().close()
        for each in (self._pool, self._serving):
            each.shutdown(wait=False, cancel_futures=True)

    def waiting(self) -> list[str]:
        """Shares that are not computed, in words."""
        with self._lock:
            return [
                f"share of batch {batch.number + 1} of epoch {batch.epoch + 1} for rows of {', '.join(map(str, share.waits))}"
                for batch, share in self._shares.items()
                if share.waits
            ]

    def hear(self, sender: Address, letter: Letter) -> None:
        """Take a letter, in the post's thread."""
        event = letter.event
        assert isinstance(event, letters.BatchEvent)
        batch = event.batch
        with self._lock:
            self.events += 1
            if batch.round < self._round:
                return
            if batch.round > self._round:  # a server was lost: nothing that is under way is needed
                self._round = batch.round
                self._shares, self._weights = {}, {}
            match event:
                case letters.PrepareBatch():
                    self._do(self._pool, partial(self._draw, batch))
                case letters.ShareDrawn():
                    arrays = {name: np.array(each) for name, each in letter.tensors.items()}
                    share = _Share(event, structure=sum(each.nbytes for each in arrays.values()))
                    self._do(self._pool, partial(self._take, batch, share, arrays))
                case letters.RowsWanted():
                    ids = np.array(letter.tensors["ids"])
                    self._do(self._serving, partial(self._serve, sender, batch, ids))
                case letters.RowsSent():
                    rows = np.array(letter.tensors["rows"])
                    self._do(self._pool, partial(self._fill, batch, sender, rows))
                case letters.ComputeShare():
                    self._weights[batch] = letter.owned()
                    self._compute_if_ready(batch)

    def _do(self, pool: ThreadPoolExecutor, work: Callable[[], None]) -> None:
        """Have something done by another thread; an error ends the server."""

        def surely() -> None:
            try:
                work()
            except BaseException as error:  # handed to the driver
                self.fail(error)

        if not self._failing:
            pool.submit(surely)

    def _draw(self, batch: BatchPlace) -> None:
        """Draw a batch, and send every server its share."""
        vertices = self._batches(batch.epoch)[batch.number]
        sample = self._sampler.sample(vertices, batch.epoch, batch.number)
        counts = len(sample.vertices), sample.num_edges
        for server, share in shares_of(sample, len(vertices), self._parts.servers):
            drawn = letters.ShareDrawn(batch, share.sample.sizes, *counts)
            arrays = sent_arrays(share.sample, places=self._parts.reads_places)
            if server == self._server:
                self._take(batch, _Share(drawn), arrays)
            else:
                self.post.send(server_address(server), Letter(drawn, arrays))

    def _take(self, batch: BatchPlace, share: _Share, arrays: dict[str, NDArray[Any]]) -> None:
        """Read a share's own features, and ask others for theirs."""
        share.received = self._reader.read(arrays, share.drawn.sizes)
        reads = share.received.reads
        owners = self._owner[reads]
        share.table = np.empty((len(reads), self._stored.shape[1]), self._stored.dtype)
        mine = owners == self._server
        share.table[mine] = np.take(self._stored, reads[mine], axis=0)
        asked = {}
        for owner in np.unique(owners[~mine]).tolist():
            share.waits[server_address(owner)] = of_owner = owners == owner
            asked[owner] = reads[of_owner]
            share.features += asked[owner].nbytes
        with self._lock:
            if batch.round != self._round:
                return
            self._shares[batch] = share
        for owner, ids in asked.items():
            self.post.send(server_address(owner), Letter(letters.RowsWanted(batch), {"ids": ids}))
        if not asked:
            self._finish(batch, share)

    def _serve(self, asker: Address, batch: BatchPlace, ids: NDArray[np.int64]) -> None:
        rows = as_bytes(np.take(self._stored, ids, axis=0))
        self.post.send(asker, Letter(letters.RowsSent(batch), {"rows": rows}))

    def _fill(self, batch: BatchPlace, owner: Address, rows: NDArray[np.uint8]) -> None:
        """Features that another server owns have come."""
        with self._lock:
            share = self._shares.get(batch)
            if share is None:
                return
            share.table[share.waits.pop(owner)] = rows.view(share.table.dtype).reshape(
                -1, share.table.shape[1]
            )
            share.features += rows.nbytes
            if share.waits:
                return
        self._finish(batch, share)

    def _finish(self, batch: BatchPlace, share: _Share) -> None:
        """All features are there: make the batch that the model is run on."""
        received = share.received
        assert received is not None
        share.ready = self._load.of(received.sample, share.table, received.rows, batch.epoch, batch.number)
        share.table = np.empty(0)
        with self._lock:
            self._compute_if_ready(batch)

    def _compute_if_ready(self, batch: BatchPlace) -> None:
        share = self._shares.get(batch)
        if share is not None and share.ready is not None and batch in self._weights:
            self._work.put((self._shares.pop(batch), self._weights.pop(batch)))

    def _compute_all(self) -> None:
        """The computing thread."""
        use_one_thread()
        try:
            while (work := self._work.get()) is not None:
                self._compute(*work)
        except BaseException as error:  # handed to the driver
            self.fail(error)

    def _compute(self, share: _Share, weights: dict[str, Any]) -> None:
        parts, batch, drawn = self._parts, share.ready, share.drawn
        assert batch is not None
        vertices = self._batches(batch.epoch)[batch.number]
        cuts = slices_of(len(vertices), parts.servers)
        terms = [parts.model.terms_of(parts.y[vertices[cut]]) for cut in cuts if cut.stop > cut.start]
        seed = parts.plan.options.seed
        result = parts.model.run(batch, {**parts.plan.weights, **weights}, seed, over=sum(terms))
        told = letters.ShareComputed(
            drawn.batch,
            result.loss_sum,
            result.loss_terms,
            drawn.vertices,
            drawn.edges,
            share.structure,
            share.features,
        )
        self.post.send(RUN, Letter(told, result.gradients))
