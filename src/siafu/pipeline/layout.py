"""Layout: which graph server owns which intervals, and whose rows each of them reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from siafu.base.errors import SiafuError
from siafu.pipeline.ids import Direction, IntervalId, ServerId
from siafu.pipeline.schedule import Stage


@dataclass(frozen=True)
class Layout:
    """The intervals of every graph server and the edges between intervals.

    intervals: how many each server has; their numbers go server by server
    reads:     for each direction and interval, the intervals whose rows its gather reads, local and remote.
               `forward` along the in-edges, `backward` along the out-edges
    """

    intervals: tuple[int, ...]
    reads: Mapping[Direction, tuple[frozenset[IntervalId], ...]]

    def __post_init__(self) -> None:
        if not self.intervals or min(self.intervals) < 1:
            raise SiafuError(f"every graph server needs an interval, but they have {self.intervals}")
        for direction, reads in self.reads.items():
            if len(reads) != self.num_intervals:
                raise SiafuError(f"{len(reads)} sets of {direction} reads for {self.num_intervals} intervals")

    @cached_property
    def num_intervals(self) -> int:
        return sum(self.intervals)

    @property
    def num_servers(self) -> int:
        return len(self.intervals)

    @cached_property
    def owner(self) -> tuple[ServerId, ...]:
        """The server of every interval."""
        return tuple(ServerId(server) for server, count in enumerate(self.intervals) for _ in range(count))

    def owned(self, server: ServerId) -> tuple[IntervalId, ...]:
        """The intervals of `server`."""
        first = sum(self.intervals[:server])
        return tuple(IntervalId(number) for number in range(first, first + self.intervals[server]))

    def sources(self, server: ServerId, direction: Direction) -> tuple[IntervalId, ...]:
        """The intervals whose rows gathers of `server` read, in the order in which they add them: its own before others'."""
        own = self.owned(server)
        read = frozenset().union(*(self.reads[direction][reader] for reader in own))
        return tuple(sorted(read, key=lambda interval: (self.owner[interval] != server, interval)))

    @cached_property
    def receivers(self) -> Mapping[Direction, tuple[tuple[ServerId, ...], ...]]:
        """For each direction and interval, the other servers that must be sent its rows."""
        return {direction: self._receivers(reads) for direction, reads in self.reads.items()}

    @cached_property
    def everyone(self) -> frozenset[IntervalId]:
        """All intervals."""
        return frozenset(IntervalId(number) for number in range(self.num_intervals))

    def read_by(self, source: Stage, reader: IntervalId) -> frozenset[IntervalId]:
        """The intervals whose rows of a stage another's stage reads."""
        return self.everyone if source.everywhere else self.reads[source.direction][reader]

    def readers(self, made: Stage, interval: IntervalId) -> tuple[ServerId, ...]:
        """The other servers that must be sent what a stage made of an interval: sums go to all."""
        if not made.sums and not made.everywhere:
            return self.receivers[made.direction][interval]
        own = self.owner[interval]
        return tuple(ServerId(server) for server in range(self.num_servers) if server != own)

    def _receivers(self, reads: tuple[frozenset[IntervalId], ...]) -> tuple[tuple[ServerId, ...], ...]:
        servers: list[set[ServerId]] = [set() for _ in range(self.num_intervals)]
        for reader, sources in enumerate(reads):
            for source in sources:
                servers[source].add(self.owner[reader])
        return tuple(tuple(sorted(found - {self.owner[source]})) for source, found in enumerate(servers))
