"""PartitionKeeper: partitions on one server's disk, each in up to two versions."""

import numpy as np
from numpy.typing import NDArray

from siafu.embedding.disk.partition_buffer import PartitionLayout
from siafu.embedding.servers.kept_versions import PLACES, KeptVersions
from siafu.tables import ScratchDirectory, page_buffer

PIECE = 8 << 20
"""Bytes of a partition that travel in one letter, at most."""


class PartitionKeeper:
    """Bytes of partitions in a scratch file: all kinds of one after the other. Calls come from one thread at a time."""

    def __init__(
        self, layout: PartitionLayout, partitions: tuple[int, ...], scratch: ScratchDirectory
    ) -> None:
        self.layout, self.versions = layout, KeptVersions(partitions)
        self._numbers = {partition: number for number, partition in enumerate(partitions)}
        self._file = scratch.file(PLACES * len(partitions) * layout.kinds * layout.bytes)

    def read(self, partition: int, version: int, first: int, last: int) -> NDArray[np.uint8] | None:
        """Bytes of a version; None: it is not here."""
        place = self.versions.find(partition, version)
        if place is None or not 0 <= first < last <= self.layout.kinds * self.layout.bytes:
            return None
        memory = page_buffer(last - first)[: last - first]
        self._file.read_into(memory, self._at(partition, place) + first)
        return memory

    def write(self, partition: int, place: int, first: int, data: NDArray[np.uint8]) -> None:
        """Write a part of a version, which is complete after `versions.fill`."""
        memory = page_buffer(len(data))[: len(data)]
        memory[:] = data
        self._file.write(memory, self._at(partition, place) + first)

    def close(self) -> None:
        self._file.close()

    def _at(self, partition: int, place: int) -> int:
        return (PLACES * self._numbers[partition] + place) * self.layout.kinds * self.layout.bytes


def pieces(layout: PartitionLayout, kinds: int | None = None) -> list[tuple[int, int]]:
    """First and last bytes of the letters in which a partition travels; none spans two kinds. kinds: the first so many"""
    return [
        (kind * layout.bytes + first, kind * layout.bytes + min(first + PIECE, layout.bytes))
        for kind in range(layout.kinds if kinds is None else kinds)
        for first in range(0, layout.bytes, PIECE)
    ]


def keepers_of(partitions: int, servers: int) -> list[tuple[int, ...]]:
    """For each partition the two servers that keep it."""
    return [(each % servers, (each + 1) % servers) for each in range(partitions)]
