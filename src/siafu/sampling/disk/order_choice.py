"""The choice of an order of batches: by the bytes of features that an epoch reads from disk with either."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from siafu.sampling.batches import epoch_batches
from siafu.sampling.disk.feature_order import GROUPS_HELD, LEAST_GROUPS, EpochOrder, FeatureOrder
from siafu.sampling.read_vertices import ReadVertices
from siafu.sampling.sample import Sample
from siafu.sampling.servers.sample_layout import spread

if TYPE_CHECKING:
    from siafu.sampling.sampled_plan import SampledPlan

MOST_GROUPS = 64
"""With more, too little is in memory for an order to help."""
_DRAWN = 4  # batches of either order that are counted
_KEY = 23  # of the random numbers


@dataclass(frozen=True, slots=True)
class OrderBytes:
    """Bytes of features that an epoch reads from disk, by some of its batches.

    ordered: with the order: all groups, and rows that are in none of those in memory
    random:  with batches in random order, and as much of the features in memory, chosen at random and kept: all other rows that batches read
    batches: of the epoch
    """

    ordered: int
    random: int
    batches: int

    def told(self, groups: int) -> str:
        return (
            f"features are read from disk in {groups} groups, {GROUPS_HELD} of them in memory at a time: about "
            f"{self.ordered / 1e6:,.1f} MB an epoch; batches in random order would read {self.random / 1e6:,.1f} MB"
        )


def groups_for(features: int, memory: int) -> int | None:
    """Groups that features of so many bytes are cut into, so that those that are held fit in `memory`; None: it is too little."""
    groups = max(LEAST_GROUPS, -(-GROUPS_HELD * features // max(1, memory)))
    return groups if groups <= MOST_GROUPS else None


def order_bytes(parts: "SampledPlan", order: FeatureOrder) -> OrderBytes:
    """Bytes of the first epoch in both orders."""
    vertices, seed = parts.plan.splits["train"].numpy(), parts.plan.options.seed
    ordered = order.epoch(vertices, parts.batch, seed, 0)
    count, row = len(ordered.batches), parts.row_bytes
    kept = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, _KEY])))
    held = kept.permutation(order.partitions)[: round(order.partitions * GROUPS_HELD / order.groups)]
    shuffled = epoch_batches(vertices, parts.batch, seed, 0)
    outside = [_outside(reads, order, held) for reads in _reads(parts, spread(shuffled, _DRAWN))]
    numbers = np.unique(np.linspace(0, count - 1, min(_DRAWN, count), dtype=np.int64)).tolist()
    inside = _reads(parts, [ordered.batches[number] for number in numbers])
    missing = [
        _outside(reads, order, _resident(ordered, number))
        for reads, number in zip(inside, numbers, strict=True)
    ]
    groups = sum(
        order.group_rows(group)
        for group, users in zip(ordered.groups, ordered.users().tolist(), strict=True)
        if users
    )
    return OrderBytes(
        row * (groups + round(count * float(np.mean(missing)))),
        row * round(count * float(np.mean(outside))),
        count,
    )


def _reads(parts: "SampledPlan", batches: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Vertices whose features each batch reads."""
    sampler, reads = parts.sampler(), ReadVertices(parts.plan.graph.num_vertices)
    samples: list[Sample] = [sampler.sample(each, 0, number) for number, each in enumerate(batches)]
    return [
        each.vertices if each.drawn is None else reads.of(each.vertices, each.drawn.indices)[0]
        for each in samples
    ]


def _resident(ordered: EpochOrder, number: int) -> NDArray[np.int64]:
    state = int(ordered.states[number])
    return np.concatenate(ordered.groups[state : state + 2])


def _outside(vertices: NDArray[np.int64], order: FeatureOrder, partitions: NDArray[np.int64]) -> int:
    """Vertices that are in none of some partitions."""
    held = np.zeros(order.partitions, np.bool_)
    held[partitions] = True
    return int(np.count_nonzero(~held[vertices // order.partition_rows]))
