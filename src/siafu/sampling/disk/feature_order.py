"""FeatureOrder: an order of the training vertices in which those that follow each other have features in a few parts of the file."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_ORDER = 22  # key of the random numbers, among those that other rooms draw
_PARTITIONS = 8  # of a group
LEAST_GROUPS = 4
"""Fewer groups would all be in memory: two are in use, and one is read."""
GROUPS_HELD = 3


@dataclass(frozen=True, slots=True, eq=False)
class EpochOrder:
    """Batches of an epoch.

    batches: the vertices of each
    states:  [len(batches)] of which state each is: groups s and s + 1 are in memory in state s
    groups:  the partitions of each group, in the order in which they are read
    """

    batches: list[NDArray[np.int64]]
    states: NDArray[np.int64]
    groups: list[NDArray[np.int64]]

    def users(self) -> NDArray[np.int64]:
        """How many batches each group is in memory for; a group without one is not read."""
        found = np.zeros(len(self.groups), np.int64)
        np.add.at(found, self.states, 1)
        np.add.at(found, self.states + 1, 1)
        return found

    def first_users(self) -> NDArray[np.int64]:
        """The first batch that each group is in memory for; -1: there is none."""
        found = np.full(len(self.groups), -1, np.int64)
        for number in range(len(self.states) - 1, -1, -1):
            found[self.states[number] : self.states[number] + 2] = number
        return found


@dataclass(frozen=True, slots=True)
class FeatureOrder:
    """COMET, of MariusGNN (EuroSys'23), for training vertices: partitions of the file are grouped at random, anew each epoch. Two groups are in
    memory; the older of them is replaced by the next. A vertex is trained while its group is in memory, in one of the two states at random.

    A partition is a range of vertices. Each is read once an epoch, if it has a training vertex or stands beside one that does.

    vertices: of the graph
    groups:   how many an epoch has
    """

    vertices: int
    groups: int

    @property
    def partition_rows(self) -> int:
        """Vertices of a partition; the last may have fewer."""
        return -(-self.vertices // (_PARTITIONS * self.groups))

    @property
    def partitions(self) -> int:
        return -(-self.vertices // self.partition_rows)

    def rows_of(self, partition: int) -> slice:
        """The vertices of a partition."""
        first = partition * self.partition_rows
        return slice(first, min(first + self.partition_rows, self.vertices))

    def group_rows(self, group: NDArray[np.int64]) -> int:
        """Vertices of some partitions together."""
        return sum(rows.stop - rows.start for rows in map(self.rows_of, group.tolist()))

    @property
    def most_rows(self) -> int:
        """Vertices of all groups that are held at a time, at most."""
        return GROUPS_HELD * -(-self.partitions // self.groups) * self.partition_rows

    def epoch(self, vertices: NDArray[np.int64], size: int, seed: int, epoch: int) -> EpochOrder:
        """The vertices in batches of `size`, the last perhaps smaller: each in one, in an order that seed and epoch decide."""
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, _ORDER, epoch])))
        groups = np.array_split(random.permutation(self.partitions), self.groups)
        group_of = np.empty(self.partitions, np.int64)
        for number, group in enumerate(groups):
            group_of[group] = number
        shuffled = vertices[random.permutation(len(vertices))]
        group = group_of[shuffled // self.partition_rows]
        later = random.integers(0, 2, len(shuffled))
        state = np.clip(group - later, 0, self.groups - 2)
        places = np.argsort(state, kind="stable")
        firsts = range(0, len(shuffled), size)
        batches = [shuffled[places[first : first + size]] for first in firsts]
        return EpochOrder(batches, state[places[list(firsts)]], groups)
