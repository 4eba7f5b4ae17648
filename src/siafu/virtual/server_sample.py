"""ServerSample: which part of a large run is simulated, and what each part stands for.

Graph servers are alike: partitions are balanced, every server has the same machine, and with hundreds of intervals each
reads rows of nearly all others. So a few servers show what all do, if each is charged with the messages of those
it stands for.
"""

from dataclasses import dataclass

from siafu.pipeline.ids import IntervalId
from siafu.pipeline.layout import Layout


@dataclass(frozen=True, slots=True)
class ServerSample:
    """How many servers, intervals of a server, weight servers and Lambdas of a server a run has, and how many are simulated."""

    servers: int
    intervals: int
    weight_servers: int
    lambdas: int
    simulated_servers: int
    simulated_intervals: int
    simulated_weight_servers: int

    @classmethod
    def of(
        cls,
        servers: int,
        intervals: int,
        weight_servers: int,
        lambdas: int,
        *,
        most_servers: int,
        most_intervals: int,
    ) -> "ServerSample":
        return cls(
            servers,
            intervals,
            weight_servers,
            lambdas,
            min(servers, max(2, most_servers)),
            min(intervals, most_intervals),
            min(weight_servers, max(2, most_servers)),
        )

    @property
    def intervals_each(self) -> float:
        """How many intervals one that is simulated stands for."""
        return self.intervals / self.simulated_intervals

    @property
    def servers_each(self) -> float:
        """How many graph servers one that is simulated stands for."""
        return self.servers / self.simulated_servers

    @property
    def receivers_each(self) -> float:
        """How many receivers of rows one that is simulated stands for."""
        if self.simulated_servers == 1:
            return 0.0
        return (self.servers - 1) / (self.simulated_servers - 1)

    @property
    def simulated_lambdas(self) -> int:
        """Of a server; each runs one of the intervals that a simulated interval stands for."""
        return max(1, round(self.lambdas / self.intervals_each)) if self.lambdas else 0

    def layout(self) -> Layout:
        """Every interval reads rows of every other."""
        count = self.simulated_servers * self.simulated_intervals
        everyone = frozenset(IntervalId(each) for each in range(count))
        reads = (everyone,) * count
        return Layout(
            (self.simulated_intervals,) * self.simulated_servers, {"forward": reads, "backward": reads}
        )
