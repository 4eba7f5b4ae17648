"""ServerPlan of embeddings: what a server is made from, as it goes to its process."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from siafu.base.errors import BadInput
from siafu.base.typed import typed
from siafu.embedding.disk.bucket_orders import BufferState, drawn_buckets
from siafu.embedding.embed_options import EmbedOptions


@dataclass(frozen=True, slots=True)
class EmbedPlan:
    """Where the triples are, and how they are trained.

    source:      the store's path, which every machine reaches
    fingerprint: of the store
    options:     as `config.json` keeps them
    scratch:     directory for partitions, on every machine; None: the system's for temporary files
    servers:     how many
    threads:     of each; None: its share of the cores
    """

    source: str
    fingerprint: int
    options: dict[str, Any]
    scratch: str | None
    servers: int
    threads: int | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, found: Any) -> "EmbedPlan":
        plan: EmbedPlan = typed(cls, found)
        return plan

    def embed_options(self) -> EmbedOptions:
        return EmbedOptions(**self.options)


def with_partitions(options: EmbedOptions) -> EmbedOptions:
    """The options of several servers with partitions and a buffer, where they are not given: two groups of two for each server.

    Every server has two groups in memory, and no group is at two servers.
    """
    partitions = options.partitions or 4 * options.servers
    if partitions < 2 * options.servers:
        raise BadInput(
            f"{options.servers} servers need {2 * options.servers} partitions at least, two each, and partitions is "
            f"{partitions}: ask for more, or for fewer servers"
        )
    buffer = options.buffer or 2 * (partitions // (2 * options.servers))
    if -(-partitions // (buffer // 2)) < 2 * options.servers:
        raise BadInput(
            f"buffer is {buffer}: {options.servers} servers have {partitions} partitions in memory together, "
            f"{2 * (partitions // (2 * options.servers))} each at most"
        )
    return replace(options, partitions=partitions, buffer=buffer)


def epoch_states(partitions: int, buffer: int, random: np.random.Generator) -> list[BufferState]:
    """The states of an epoch: each two groups of partitions once, in an order in which those side by side share none.

    Groups are drawn anew each epoch, and a bucket waits for a state drawn at random, as in COMET.
    """
    size = max(1, buffer // 2)
    shuffled = random.permutation(partitions).tolist()
    groups = [tuple(shuffled[k : k + size]) for k in range(0, partitions, size)]
    pairs = [groups[a] + groups[b] for a, b in _tournament(len(groups))]
    return drawn_buckets(pairs, random)


def _tournament(players: int) -> list[tuple[int, int]]:
    """All pairs, round by round: in a round everyone plays once."""
    ring: list[int | None] = [*range(players), *([None] if players % 2 else [])]
    found = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        for a, b in zip(ring[:half], reversed(ring[half:]), strict=True):
            if a is not None and b is not None:
                found.append((a, b))
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return found
