"""Orders of buckets: in which order pairs of partitions are trained, so that few partitions are read from disk.

A bucket (i, j) holds the triples whose head is in partition i and whose tail in j. It can be trained while both are in the
buffer, which holds some partitions at a time. Orders are pure functions of their random numbers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

Buckets = list[tuple[int, int]]

_DRAWS = 3  # orders that are drawn to know their sizes


@dataclass(frozen=True, slots=True)
class BufferState:
    """Partitions in the buffer, and the buckets that are trained while they are."""

    resident: tuple[int, ...]
    buckets: Buckets


Order = Callable[[int, int, np.random.Generator], list[BufferState]]


def beta_order(partitions: int, buffer: int, random: np.random.Generator) -> list[BufferState]:
    """BETA, of Marius (OSDI'21): one place of the buffer goes through all partitions that are not in it, then the other places
    take new ones. A bucket is trained as soon as its partitions meet.
    """
    seen: set[tuple[int, int]] = set()
    found = []
    for resident in _beta_states(partitions, buffer, random):
        new = [(i, j) for i in resident for j in resident if (i, j) not in seen]
        seen.update(new)
        found.append(BufferState(resident, new))
    return found


def comet_order(partitions: int, buffer: int, random: np.random.Generator) -> list[BufferState]:
    """COMET, of MariusGNN (EuroSys'23): partitions are grouped at random, anew each epoch; two groups fill the buffer. A bucket is
    trained in a state drawn at random from those that hold its partitions, so that the order of triples is closer to a shuffle.
    """
    size = max(1, buffer // 2)
    shuffled = random.permutation(partitions).tolist()
    groups = [tuple(shuffled[k : k + size]) for k in range(0, partitions, size)]
    held = max(2, buffer // size)
    states = [
        tuple(partition for group in chosen for partition in groups[group])
        for chosen in _beta_states(len(groups), min(held, len(groups)), random)
    ]
    return drawn_buckets(states, random)


def drawn_buckets(states: list[tuple[int, ...]], random: np.random.Generator) -> list[BufferState]:
    """States with these partitions; each bucket is trained in one drawn at random from those that hold its partitions."""
    places: dict[tuple[int, int], list[int]] = {}
    for number, resident in enumerate(states):
        for i in resident:
            for j in resident:
                places.setdefault((i, j), []).append(number)
    drawn: list[Buckets] = [[] for _ in states]
    for bucket in sorted(places):
        drawn[int(random.choice(places[bucket]))].append(bucket)
    return [BufferState(resident, buckets) for resident, buckets in zip(states, drawn, strict=True)]


def random_order(partitions: int, buffer: int, random: np.random.Generator) -> list[BufferState]:
    """Buckets in random order, to compare with; the partition that was used longest ago leaves."""
    every = [(i, j) for i in range(partitions) for j in range(partitions)]
    resident = list(range(min(buffer, partitions)))
    found: list[BufferState] = []
    for place in random.permutation(len(every)):
        i, j = every[int(place)]
        changed = not found
        for wanted in dict.fromkeys((i, j)):
            if wanted in resident:
                resident.remove(wanted)
            else:
                resident.remove(next(each for each in resident if each not in (i, j)))
                changed = True
            resident.append(wanted)
        if changed:
            found.append(BufferState(tuple(sorted(resident)), []))
        found[-1].buckets.append((i, j))
    return found


ORDERS: dict[str, Order] = {"beta": beta_order, "comet": comet_order, "random": random_order}


def read_ahead(order: str, buffer: int) -> int:
    """Partitions that change from one state to the next, so that as many places let the disk work while a state is trained."""
    return max(1, buffer // 2) if order == "comet" else 1


@dataclass(frozen=True, slots=True)
class OrderSizes:
    """Sizes of an order's epochs, the largest of a few draws.

    buckets: that are trained in one state
    reads:   partitions that are read in an epoch, the first ones counted
    """

    buckets: int
    reads: int


@cache
def order_sizes(order: str, partitions: int, buffer: int) -> OrderSizes:
    """Sizes of an order with so many partitions, of which `buffer` are in memory."""
    drawn = [ORDERS[order](partitions, buffer, np.random.default_rng(seed)) for seed in range(_DRAWS)]
    return OrderSizes(
        max(len(state.buckets) for states in drawn for state in states),
        max(len(states[0].resident) + count_swaps(states) for states in drawn),
    )


def count_swaps(states: list[BufferState]) -> int:
    """Partitions that are read in place of others, the first buffer not counted."""
    return sum(len(set(after.resident) - set(before.resident)) for before, after in pairwise(states))


def _beta_states(partitions: int, buffer: int, random: np.random.Generator) -> Iterator[tuple[int, ...]]:
    """Contents of the buffer; each differs from the one before in one partition."""
    shuffled = random.permutation(partitions).tolist()
    held, others = shuffled[:buffer], shuffled[buffer:]
    yield tuple(held)
    while others:
        random.shuffle(held)
        random.shuffle(others)
        for k in range(len(others)):
            held[-1], others[k] = others[k], held[-1]
            yield tuple(held)
        random.shuffle(others)
        taken = min(buffer - 1, len(others))
        for k in range(taken):
            held[k] = others[k]
            yield tuple(held)
        others = others[taken:]
