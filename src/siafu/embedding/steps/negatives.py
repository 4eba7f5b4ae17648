"""Negatives: entities drawn to stand in place of the right ones."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


def generator(*key: int) -> np.random.Generator:
    """Random numbers that depend on nothing but the key: whoever asks, and in whichever order, gets the same."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


class Negatives(Protocol):
    """Where the negatives of a batch come from."""

    def draw(self, random: np.random.Generator, chunks: int, count: int) -> NDArray[np.int64]:
        """[2, chunks, count] rows, for each side and chunk."""
        ...


class EveryEntity:
    """All entities, in place of a draw."""

    def draw(self, random: np.random.Generator, chunks: int, count: int) -> NDArray[np.int64]:
        """[2, chunks, count]: `count` is the number of entities."""
        return np.broadcast_to(np.arange(count), (2, chunks, count))


@dataclass(frozen=True, slots=True)
class NegativeSampler:
    """Draws entities uniformly, or as often as training triples name them.

    num_rows:     how many rows there are to draw from: from 0 up, or in `ranges`
    degree_share: share that is drawn as the head or tail of a random training triple
    ends:         [N, 2] heads and tails to draw from
    ranges:       first row and length of each range of rows; None: all from 0 up
    """

    num_rows: int
    degree_share: float = 0.0
    ends: NDArray[Any] | None = None
    ranges: tuple[tuple[int, int], ...] | None = None

    def draw(self, random: np.random.Generator, chunks: int, count: int) -> NDArray[np.int64]:
        """[2, chunks, count] rows, for each side and chunk."""
        by_degree = round(self.degree_share * count) if self.ends is not None and len(self.ends) else 0
        drawn = np.empty((2, chunks, count), np.int64)
        drawn[:, :, by_degree:] = self._rows(
            random.integers(0, self.num_rows, (2, chunks, count - by_degree))
        )
        if by_degree and self.ends is not None:
            picked = random.integers(0, len(self.ends), (2, chunks, by_degree))
            # The head's side gets heads, the tail's side tails: what could stand there.
            drawn[0, :, :by_degree] = self.ends[picked[0], 1]
            drawn[1, :, :by_degree] = self.ends[picked[1], 0]
        return drawn

    def _rows(self, drawn: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.ranges is None:
            return drawn
        starts, lengths = (np.array(column) for column in zip(*self.ranges, strict=True))
        ends = np.cumsum(lengths)
        at = np.searchsorted(ends, drawn, side="right")
        found: NDArray[np.int64] = drawn - (ends - lengths)[at] + starts[at]
        return found


@dataclass(frozen=True, slots=True)
class SharedDraw:
    """Draws a share of the negatives from some rows, and the rest from others."""

    own: NegativeSampler
    others: NegativeSampler
    share: float

    def draw(self, random: np.random.Generator, chunks: int, count: int) -> NDArray[np.int64]:
        """[2, chunks, count] rows, for each side and chunk."""
        own = round(self.share * count)
        parts = [self.own.draw(random, chunks, own), self.others.draw(random, chunks, count - own)]
        return np.concatenate(parts, axis=2)


@dataclass(frozen=True, slots=True)
class ChunkNegatives:
    """Draws the negatives of each chunk of a batch from a source of its own."""

    sources: list[Negatives]

    def draw(self, random: np.random.Generator, chunks: int, count: int) -> NDArray[np.int64]:
        """[2, chunks, count] rows, for each side and chunk."""
        return np.concatenate([source.draw(random, 1, count) for source in self.sources[:chunks]], axis=1)
