"""Records bucketed by key on disk, and sorted a bucket at a time: the one way we handle more than memory holds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.jit import kernel
from siafu.base.threads import run_all, thread_count
from siafu.graph.sorting.scratch import Scratch

R = TypeVar("R")
SortKeys = NDArray[Any]  # uint64, or uint32 where the bits that are left fit
Columns = list[NDArray[Any]]

_BUCKET_BITS = 8
_MOST_BUCKET_BITS = 10  # more write streams than that fall out of the caches
_DIGIT_BITS = 11


class Spill:
    """Records (an unsigned key and columns of numbers) in buckets by the key's highest bits, in a scratch file.

    key_bits: keys are below 2**key_bits; a bucket's records keep only the bits below the bucket's own
    dtypes:   of the columns that travel with the key; one like (np.float32, (3,)) makes rows of three
    memory:   bytes that adding may take

    Records of one key, and of one bucket, stay in the order they were added in.
    """

    def __init__(
        self,
        directory: Path,
        key_bits: int,
        dtypes: Sequence[DTypeLike] = (),
        *,
        memory: int,
        bucket_bits: int | None = None,
    ) -> None:
        self.bucket_bits = _bucket_bits(key_bits) if bucket_bits is None else bucket_bits
        self.low_bits = key_bits - self.bucket_bits
        low = np.dtype(np.uint32 if self.low_bits <= 32 else np.uint64)
        self.dtypes: list[np.dtype[Any]] = [low, *(np.dtype(dtype) for dtype in dtypes)]
        self.record_bytes = sum(dtype.itemsize for dtype in self.dtypes)
        self.sizes = np.zeros(1 << self.bucket_bits, np.int64)
        self._directory = directory
        self._scratch = Scratch(directory)
        self._runs: list[tuple[NDArray[np.int64], list[int]]] = []
        staged_bytes = 8 + sum(dtype.itemsize for dtype in self.dtypes[1:]) + self.record_bytes
        self._capacity = max(1 << 8, min(1 << 23, memory // staged_bytes))
        self._staged = 0
        self._stage: Columns = []
        self._ordered = np.empty(0, np.uint8)  # a staged column, by bucket

    def __len__(self) -> int:
        """Number of records."""
        return int(self.sizes.sum()) + self._staged

    def add(self, keys: SortKeys, *columns: NDArray[Any]) -> None:
        """Add records, any number at a time."""

        def fill(start: int, stop: int, *staged: NDArray[Any]) -> None:
            for into, values in zip(staged, (keys, *columns), strict=True):
                into[:] = values[start:stop]

        self.stage(len(keys), fill)

    def stage(self, count: int, fill: Callable[..., None]) -> None:
        """Add `count` records that `fill(first, last, keys, *columns)` puts into the arrays it is given."""
        if not self._stage:
            staged = [np.dtype(np.uint64), *self.dtypes[1:]]
            self._stage = [np.empty(self._capacity, dtype) for dtype in staged]
            self._ordered = np.empty(self._capacity * max(dtype.itemsize for dtype in self.dtypes), np.uint8)
        start = 0
        while start < count:
            if self._staged == self._capacity:
                self._write_run()
            stop = min(count, start + self._capacity - self._staged)
            end = self._staged + stop - start
            fill(start, stop, *(into[self._staged : end] for into in self._stage))
            start, self._staged = stop, end

    def flush(self) -> None:
        """Write what is staged and give its memory back; the buckets can be read after this."""
        self._write_run()
        self._stage = []
        self._ordered = np.empty(0, np.uint8)

    def _write_run(self) -> None:
        if self._staged == 0:
            return
        keys, *columns = (values[: self._staged] for values in self._stage)
        bounds = np.zeros(len(self.sizes) + 1, np.int64)
        _count_digits(keys, self.low_bits, bounds)
        begins = []
        for number, (values, dtype) in enumerate(zip((keys, *columns), self.dtypes, strict=True)):
            size = len(keys) * dtype.itemsize
            out = self._ordered[:size].view(dtype.base).reshape(len(keys), *dtype.shape)
            low = np.uint64((1 << self.low_bits) - 1) if number == 0 else None
            _scatter(keys, self.low_bits, bounds.copy(), values, low, out)
            begins.append(self._scratch.append(out))
        self.sizes += np.diff(bounds)
        self._runs.append((bounds, begins))
        self._staged = 0

    def read(self, bucket: int) -> Columns:
        """All of a bucket: the low bits of its keys, and the columns."""
        out = [np.empty(int(self.sizes[bucket]), dtype) for dtype in self.dtypes]
        at = 0
        for bounds, begins in self._runs:
            first, last = int(bounds[bucket]), int(bounds[bucket + 1])
            for values, dtype, begin in zip(out, self.dtypes, begins, strict=True):
                self._scratch.read_into(values[at : at + last - first], begin + first * dtype.itemsize)
            at += last - first
        return out

    def pieces(self, bucket: int, most: int) -> Iterator[Columns]:
        """A bucket's records in order, at most `most` at a time."""
        for bounds, begins in self._runs:
            for first in range(int(bounds[bucket]), int(bounds[bucket + 1]), most):
                count = min(most, int(bounds[bucket + 1]) - first)
                yield [
                    self._scratch.read(dtype, count, begin + first * dtype.itemsize)
                    for dtype, begin in zip(self.dtypes, begins, strict=True)
                ]

    def split(self, bucket: int, memory: int) -> "Spill":
        """A bucket's records, bucketed by the bits that are left of their keys."""
        child = Spill(self._directory, self.low_bits, self.dtypes[1:], memory=memory // 2)
        for piece in self.pieces(bucket, max(1 << 8, memory // 4 // self.record_bytes)):
            child.add(*piece)
        child.flush()
        return child

    def close(self) -> None:
        self._scratch.close()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A bucket that fits memory, or whose records all have one key. `first_key` is the lowest that it may hold."""

    spill: Spill
    bucket: int
    first_key: int

    @property
    def count(self) -> int:
        return int(self.spill.sizes[self.bucket])

    @property
    def low_bits(self) -> int:
        return self.spill.low_bits

    def read_sorted(self) -> Columns:
        """The low bits of the keys, ascending, and their columns; records of one key stay in order."""
        return sort_records(self.spill.read(self.bucket), self.low_bits)


def leaves(spill: Spill, fits: Callable[[Leaf], bool], memory: int, first_key: int = 0) -> Iterator[Leaf]:
    """The buckets with records, by ascending key; one that does not fit is split again, unless it is one key."""
    spill.flush()
    for bucket in np.flatnonzero(spill.sizes):
        leaf = Leaf(spill, int(bucket), first_key + (int(bucket) << spill.low_bits))
        if spill.low_bits == 0 or fits(leaf):
            yield leaf
        else:
            child = spill.split(leaf.bucket, memory)
            yield from leaves(child, fits, memory, leaf.first_key)


def run_leaves(
    work: Callable[[Leaf], R], found: Iterator[Leaf], size: Callable[[Leaf], int], memory: int
) -> Iterator[R]:
    """`work` on every leaf, in order, in as many threads as the leaves' `size` in memory allows."""
    batch: list[Leaf] = []
    taken = 0
    for leaf in found:
        needed = size(leaf)
        if batch and (taken + needed > memory or len(batch) == 4 * thread_count()):
            yield from run_all(work, batch)
            batch, taken = [], 0
        batch.append(leaf)
        taken += needed
    yield from run_all(work, batch)


def sort_records(columns: Columns, bits: int) -> Columns:
    """Stable sort by the first column, whose values are below 2**bits: a radix sort from the lowest digit up."""
    digits = max(1, -(-bits // _DIGIT_BITS))
    width = -(-bits // digits)
    spare = [np.empty_like(values) for values in columns]
    for shift in range(0, bits, max(1, width)):
        starts = np.zeros((1 << width) + 1, np.int64)
        if _count_digits(columns[0], shift, starts):
            continue
        for values, into in zip(columns, spare, strict=True):
            _scatter(columns[0], shift, starts.copy(), values, None, into)
        columns, spare = spare, columns
    return columns


def _bucket_bits(key_bits: int) -> int:
    """Number of bits that choose the bucket: as many as leave 32 for the rest, if a few more suffice; else the default."""
    for bits in range(_BUCKET_BITS, _MOST_BUCKET_BITS + 1):
        if key_bits - bits == 32:
            return bits
    return min(key_bits, _BUCKET_BITS)


@kernel
def _count_digits(keys: SortKeys, shift: int, starts: NDArray[np.int64]) -> bool:
    """Count records by digit, the bits from `shift` up, into where each digit starts. True: all have one digit.

    starts: [a power of two, and 1 more] zeros
    """
    mask = np.uint64(len(starts) - 2)
    for i in range(len(keys)):
        starts[((np.uint64(keys[i]) >> np.uint64(shift)) & mask) + np.uint64(1)] += 1
    alone = False
    for d in range(len(starts) - 1):
        alone = alone or starts[d + 1] == len(keys)
        starts[d + 1] += starts[d]
    return alone


@kernel
def _scatter(
    keys: SortKeys,
    shift: int,
    cursor: NDArray[np.int64],
    values: NDArray[Any],
    kept_bits: Any,
    out: NDArray[Any],
) -> None:
    """Put each record's value where its digit's records go; of the values only `kept_bits`, unless None."""
    mask = np.uint64(len(cursor) - 2)
    for i in range(len(keys)):
        digit = (np.uint64(keys[i]) >> np.uint64(shift)) & mask
        at = cursor[digit]
        cursor[digit] = at + 1
        out[at] = values[i] if kept_bits is None else values[i] & kept_bits
