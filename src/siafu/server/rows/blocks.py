"""Blocks of rows: what a tensor phase computes at a time, and the chunks of blocks that gathers make rows for."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from siafu.kernels import near_cache_bytes

_LEAST_ROWS = 1024  # of a block: fewer, and the calls cost more than the cache saves


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Labels of a server's vertices, for those that the last phase computes.

    rows:   [n] own rows, ascending; None: all own rows
    y:      what they should be
    splits: [n] booleans by split: whether a row is of it
    """

    rows: Tensor | None
    y: Tensor
    splits: dict[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some rows of an interval that a tensor phase computes together: few enough to stay in a core's cache.

    first, last: own rows
    inside:      the same rows, counted from the interval's first
    picked:      own rows that the last phase computes of them; None: all
    y, splits:   of these, as in `Labels`
    """

    first: int
    last: int
    inside: slice
    picked: Tensor | None
    y: Tensor
    splits: dict[str, Tensor]

    @property
    def labelled(self) -> Tensor | None:
        """The rows that the last phase computes, counted from `first`; None: all. Made when it is asked for: kept, it
        would be a number for each row and phase."""
        return None if self.picked is None else self.picked - self.first


def block_rows(widths: Iterable[int], itemsize: int, cache: int | None = None) -> int:
    """Rows of a block.

    widths: numbers in a row of each table that its phase reads or makes
    cache:  bytes of a core's own; None: this machine's
    """
    near = near_cache_bytes() if cache is None else cache
    return max(_LEAST_ROWS, near // (max([1, *widths]) * itemsize))


def blocks_of(first: int, last: int, size: int, labels: Labels) -> list[Block]:
    """An interval cut in blocks of about `size` rows; one if it is empty."""
    count = max(1, round((last - first) / size))
    bounds = [first + (last - first) * k // count for k in range(count + 1)]
    return [_block(lo, hi, first, labels) for lo, hi in itertools.pairwise(bounds)]


def largest_block(lengths: Collection[int], rows: int, size: int) -> int:
    """Rows of the largest block that `blocks_of` makes of some intervals.

    lengths: of the intervals; (): they are not known, but that none has more than `rows`
    """
    if lengths:
        return max(-(-length // max(1, round(length / size))) for length in lengths)
    return min(rows, size + size // 2)


def _block(first: int, last: int, start: int, labels: Labels) -> Block:
    if labels.rows is None:
        lo, hi, picked = first, last, None
    else:
        lo, hi = (int(k) for k in torch.searchsorted(labels.rows, torch.tensor([first, last])))
        picked = labels.rows[lo:hi]
    splits = {split: mask[lo:hi] for split, mask in labels.splits.items()}
    return Block(first, last, slice(first - start, last - start), picked, labels.y[lo:hi], splits)


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Blocks of an interval whose rows are gathered together: first, last are own rows."""

    first: int
    last: int
    blocks: Sequence[Block]

    @property
    def inside(self) -> slice:
        """Its rows, counted from the interval's first."""
        return slice(self.blocks[0].inside.start, self.blocks[-1].inside.stop)


def chunks_of(blocks: Sequence[Block], rows: int | None) -> list[Chunk]:
    """Neighbouring blocks together, up to about so many rows; None: all."""
    found: list[list[Block]] = []
    for block in blocks:
        full = not found or (rows is not None and block.last - found[-1][0].first > rows)
        if full:
            found.append([])
        found[-1].append(block)
    return [Chunk(each[0].first, each[-1].last, each) for each in found]
