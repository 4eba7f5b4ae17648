"""ServedCluster: batches that servers of a cluster prepare and compute, as the driver sees them."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor

from siafu.cluster.driven_cluster import DrivenCluster, DrivenCrew
from siafu.runtime.letter import Letter
from siafu.sampling.batch_loader import Planned
from siafu.sampling.sampled_model import BatchResult
from siafu.sampling.servers import share_letters as letters
from siafu.sampling.servers.moved import Moved
from siafu.sampling.servers.served_batch import added_up
from siafu.sampling.servers.share_letters import BatchPlace, ShareComputed

_TURN_SECONDS = 0.2


@dataclass(slots=True)
class AwayBatch:
    """A batch that servers have. num_vertices, edges: of its sample, once it is computed; size: its training vertices"""

    epoch: int
    number: int
    size: int
    num_vertices: int = 0
    edges: int = 0
    read_bytes: int = 0


@dataclass(slots=True)
class _Computing:
    """The batch that is computed: the weights that it is computed with, and the shares that have come, by server."""

    batch: AwayBatch
    weights: Mapping[str, Tensor]
    told: dict[int, tuple[ShareComputed, dict[str, Tensor]]] = field(default_factory=dict)


class ServedCluster:
    """Stands for the loader and for the model of a run in one process (`BatchLoader`, `ServedModel`), with the same bits.

    Weights and the optimizer are the driver's. A batch counts when all its shares have come. When a server is lost, another replaces it,
    and batches that are under way are begun again, in another round, with the same weights: nothing is lost, and nothing counts twice.

    learnt: names of the weights that are learnt; servers know the others
    ahead:  batches that are prepared before they are computed, at most
    moved:  bytes that travelled for the batches so far
    """

    def __init__(
        self, crew: DrivenCrew, servers: int, learnt: frozenset[str], *, ahead: int, log: Path | None = None
    ) -> None:
        self._servers, self._learnt, self._ahead = servers, sorted(learnt), ahead
        self.moved = Moved()
        self._round = 0
        self._prepared: deque[AwayBatch] = deque()
        self._computing: _Computing | None = None
        self._replaced: list[str] = []
        self._slowest = 0.0
        self._cluster = DrivenCluster(crew, servers, log)

    def batches(self, planned: Iterator[Planned]) -> Iterator[AwayBatch]:
        """The batches, in the order in which they are planned; some more are prepared meanwhile."""
        while True:
            for epoch, number, vertices in islice(planned, self._ahead - len(self._prepared)):
                self._prepared.append(AwayBatch(epoch, number, len(vertices)))
                self._prepare(self._prepared[-1])
            if not self._prepared:
                return
            yield self._prepared[0]

    def run(self, batch: AwayBatch, weights: Mapping[str, Tensor], seed: int) -> BatchResult:
        """Loss and gradients of a batch: those of all shares added up, in the order of the servers."""
        sent = {name: weights[name].detach() for name in self._learnt}
        computing = self._computing = _Computing(batch, sent)
        self._ask(computing)
        shares = min(self._servers, batch.size)
        look = time.monotonic() + _TURN_SECONDS
        while len(computing.told) < shares:
            came = self._cluster.next(_TURN_SECONDS)
            if came is not None:
                self._hear(*came, computing)
            if time.monotonic() > look:
                look = time.monotonic() + _TURN_SECONDS
                self._replace_lost()
        self._computing = None
        self._prepared.remove(batch)
        told = [computing.told[server] for server in range(shares)]
        batch.num_vertices, batch.edges = told[0][0].vertices, told[0][0].edges
        gradients = added_up(each for _, each in told)
        received = sum(each.nbytes for _, found in told for each in found.values())
        self.moved += Moved(
            structure=sum(each.structure for each, _ in told),
            features=sum(each.features for each, _ in told),
            weights=shares * sum(each.nbytes for each in sent.values()) + received,
        )
        loss, terms = (sum(getattr(each, name) for each, _ in told) for name in ("loss_sum", "loss_terms"))
        return BatchResult(loss, terms, gradients, {})

    def replaced(self) -> list[str]:
        """Servers that were lost and replaced since the last call, in words."""
        found, self._replaced = self._replaced, []
        return found

    def counters(self) -> dict[str, Any]:
        """Losses, if there were any."""
        if not self._cluster.lost:
            return {}
        return {"servers_lost": self._cluster.lost, "epochs_lost": 0, "recovery_seconds": self._slowest}

    def close(self) -> None:
        """End all servers."""
        self._cluster.close()

    def _place(self, batch: AwayBatch) -> BatchPlace:
        return BatchPlace(self._round, batch.epoch, batch.number)

    def _prepare(self, batch: AwayBatch) -> None:
        self._cluster.send(batch.number % self._servers, Letter(letters.PrepareBatch(self._place(batch))))

    def _ask(self, computing: _Computing) -> None:
        order = letters.ComputeShare(self._place(computing.batch))
        for server in range(min(self._servers, computing.batch.size)):
            self._cluster.send(server, Letter(order, computing.weights))

    def _hear(self, server: int, letter: Letter, computing: _Computing) -> None:
        if isinstance(letter.event, ShareComputed) and letter.event.batch == self._place(computing.batch):
            computing.told[server] = letter.event, letter.owned()
            self._cluster.well(server)

    def _replace_lost(self) -> None:
        lost, began = self._cluster.losses(), time.monotonic()
        if not lost:
            return
        for server in lost:
            self._cluster.replace(server)
        self._round += 1
        if self._computing is not None:
            self._computing.told = {}
        for batch in self._prepared:
            self._prepare(batch)
        if self._computing is not None:
            self._ask(self._computing)
        seconds = time.monotonic() - began
        self._slowest = max(self._slowest, seconds)
        self._replaced += [
            f"graph server {server} was lost ({why}) and replaced in {seconds:.1f} s"
            for server, why in lost.items()
        ]
