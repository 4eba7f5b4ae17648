"""RemotePartitions: partitions on servers' disks, as the driver reads them to rank, and writes them to resume."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.cluster.driven_cluster import DrivenCluster
from siafu.embedding.disk.partition_buffer import PartitionLayout
from siafu.embedding.servers import server_letters as letters
from siafu.embedding.servers.lock_events import Lease
from siafu.embedding.servers.lock_server import LockServer
from siafu.embedding.servers.partition_keeper import keepers_of, pieces
from siafu.embedding.steps.float_bits import as_kind, widened
from siafu.runtime.letter import Letter

Pump = Callable[[Callable[[], bool]], None]
"""Hears letters until something is so."""


class RemotePartitions:
    """Reads and writes partitions over the wire.

    pump: hears letters, which come to `hear`
    """

    def __init__(
        self, layout: PartitionLayout, lock: LockServer, cluster: DrivenCluster, servers: int, pump: Pump
    ) -> None:
        self.layout = layout
        self.bytes_read = self.bytes_written = 0
        self.seconds = 0.0
        self._lock, self._cluster, self._pump = lock, cluster, pump
        self._keepers = keepers_of(layout.partitions, servers)
        self._request = 0
        self._answers: dict[int, NDArray[np.uint8] | None] = {}
        self._kept: set[tuple[int, int]] = set()
        self._unwritten: list[NDArray[np.uint8]] = []

    def hear(self, letter: Letter) -> None:
        """Take an answer of a keeper."""
        match letter.event:
            case letters.BytesSent(request, found):
                self._answers[request] = np.array(letter.tensors["bytes"]) if found else None
            case letters.BytesKept(keeper, _, partition):
                self._kept.add((partition, keeper[0]))

    def read(self, partition: int, kind: int) -> NDArray[np.float32]:
        """Rows of one kind of a partition."""
        return self.read_range(partition, kind, 0, self.layout.rows)[: self.layout.count(partition)]

    def read_range(self, partition: int, kind: int, first: int, last: int) -> NDArray[np.float32]:
        """Some of them; first and last are multiples of `layout.step`."""
        began, width = time.perf_counter(), self.layout.width
        out = np.empty((last - first) * width, np.uint8)
        start = kind * self.layout.bytes + first * width
        for begin, end in pieces(self.layout):
            begin, end = max(begin, start), min(end, start + len(out))
            if begin < end:
                out[begin - start : end - start] = self._piece(partition, begin, end)
        self.seconds += time.perf_counter() - began
        self.bytes_read += len(out)
        return widened(out.view(self.layout.dtype).reshape(-1, self.layout.dim))

    def _piece(self, partition: int, first: int, last: int) -> NDArray[np.uint8]:
        while True:
            version, holders = self._lock.place_of(partition)
            found = self._ask(holders[self._request % len(holders)], partition, version, first, last)
            if found is not None:
                return found

    def _ask(
        self, holder: int, partition: int, version: int, first: int, last: int
    ) -> NDArray[np.uint8] | None:
        """Bytes from a holder; None: it is lost, or has another version by now."""
        self._request += 1
        request, life = self._request, self._cluster.lives[holder]
        wanted = letters.BytesWanted(request, partition, version, first, last)
        self._cluster.send(holder, Letter(wanted))
        self._pump(lambda: request in self._answers or self._cluster.lives[holder] != life)
        return self._answers.pop(request, None)

    def write(self, partition: int, kind: int, rows: NDArray[Any]) -> None:
        """Write rows of one kind; kinds come in order, and the partition is written with its last."""
        memory = np.zeros((self.layout.rows, self.layout.dim), self.layout.dtype)
        memory[: len(rows)] = as_kind(rows, self.layout.dtype)
        self._unwritten.append(memory.reshape(-1).view(np.uint8))
        if kind < self.layout.kinds - 1:
            return
        lease, base = self._lock.next_lease(), self._lock.place_of(partition)[0]
        data = np.concatenate(self._unwritten)
        self._unwritten = []
        for keeper in self._keepers[partition]:
            self._send(partition, (keeper, self._cluster.lives[keeper]), lease, base, data)
        wanted = {(partition, keeper) for keeper in self._keepers[partition]}
        self._pump(lambda: wanted <= self._kept)
        self._kept -= wanted
        self._lock.rewrite(partition, lease)

    def _send(
        self, partition: int, keeper: tuple[int, int], lease: Lease, base: int, data: NDArray[np.uint8]
    ) -> None:
        for first, last in pieces(self.layout):
            part = letters.BytesToKeep(keeper, lease, partition, base, first, last == len(data))
            self._cluster.send(keeper[0], Letter(part, {"bytes": data[first:last]}))
        self.bytes_written += len(data)
