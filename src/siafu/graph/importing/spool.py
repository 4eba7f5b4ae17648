"""Spools: blocks of arrays kept on disk, to be read again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.graph.csr import IntArray
from siafu.graph.importing.readers.blocks import Names, VertexBlock
from siafu.graph.sorting.scratch import Scratch

Arrays = tuple[Any, ...]  # arrays, or None


class Spool:
    """Keeps blocks of columns in a scratch file, in order. A column may be None."""

    def __init__(self, directory: Path) -> None:
        self._scratch = Scratch(directory)
        self._blocks: list[list[tuple[int, np.dtype[Any], tuple[int, ...]] | None]] = []

    def add(self, *columns: NDArray[Any] | None) -> None:
        self._blocks.append(
            [
                None if values is None else (self._scratch.append(values), values.dtype, values.shape)
                for values in columns
            ]
        )

    def __iter__(self) -> Iterator[Arrays]:
        for block in self._blocks:
            yield tuple(None if entry is None else self._read(*entry) for entry in block)

    def _read(self, begin: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        out = np.empty(shape, dtype)
        self._scratch.read_into(out, begin)
        return out

    def close(self) -> None:
        self._scratch.close()


class SpooledIds:
    """Edges and vertices by integer ids, kept on disk until the range of the ids is known."""

    def __init__(self, directory: Path) -> None:
        self._edges = Spool(directory)
        self._vertices = Spool(directory)
        self.lowest, self.highest = 0, -1
        self._mentions = 0

    def add_edges(self, src: IntArray, dst: IntArray, *carried: NDArray[Any] | None) -> None:
        """carried: weights, features and types, as far as edges have them"""
        self._edges.add(self._seen(src), self._seen(dst), *carried)

    def add_vertices(self, block: VertexBlock) -> None:
        assert not isinstance(block.ids, Names)
        self._vertices.add(self._seen(block.ids), block.labels, block.split, block.features)

    def edges(self) -> Iterator[Arrays]:
        return iter(self._edges)

    def vertices(self) -> Iterator[VertexBlock]:
        for ids, labels, split, features in self._vertices:
            assert ids is not None and features is not None
            yield VertexBlock(ids.astype(np.int64), labels, split, features)

    def distinct(self) -> int:
        """Number of different ids, if none is negative. Takes a bit of memory for each number up to the highest."""
        seen = np.zeros((self.highest >> 3) + 1, np.uint8)
        count = 0
        for src, dst, *_ in self._edges:
            count += _mark(src, seen) + _mark(dst, seen)
        for ids, *_ in self._vertices:
            count += _mark(ids, seen)
        return count

    def is_dense(self, memory: int) -> bool:
        """Whether the ids are not negative and at least half of the numbers up to the highest are ids."""
        if self.lowest < 0 or self.highest >= 2 * self._mentions or self.highest >> 3 > memory // 2:
            return False
        return self.highest < 2 * self.distinct()

    def _seen(self, ids: IntArray) -> IntArray:
        lowest, highest = int(ids.min(initial=0)), int(ids.max(initial=-1))
        self.lowest, self.highest = min(self.lowest, lowest), max(self.highest, highest)
        self._mentions += len(ids)
        return ids.astype(np.int32) if lowest >= -(2**31) and highest < 2**31 else ids


@kernel
def _mark(ids: IntArray, seen: NDArray[np.uint8]) -> int:
    """Set each id's bit; how many were not set before."""
    new = 0
    for i in range(len(ids)):
        bit = np.uint8(1 << (ids[i] & 7))
        at = ids[i] >> 3
        new += (seen[at] & bit) == 0
        seen[at] |= bit
    return new
