"""Published numbers of the paper: Thorpe et al., "Dorylus", OSDI 2021. Values read off a plot are approximate."""

from dataclasses import dataclass
from typing import Literal

from siafu.virtual.graph_shape import GraphShape

Backend = Literal["lambda", "cpu", "gpu"]
BACKENDS: tuple[Backend, ...] = ("lambda", "cpu", "gpu")

_LOCALITY = 0.4
"""Locality of the paper's partitions. The paper does not give it: an assumption, the same for all graphs."""

_FRIENDSTER_SPREAD = 6.2
"""The squared coefficient of variation of Friendster's degrees, out of SNAP's statistics of it: 4,173,724,142 triangles are
0.005859 of the pairs of neighbours, so a vertex has 10,858 pairs on the average, where its mean degree of 55 alone makes 1,488."""

GRAPHS = {
    "reddit-small": GraphShape(232_965, 114_800_000, 602, 41, train=1.0, locality=_LOCALITY),
    "reddit-large": GraphShape(1_100_000, 1_300_000_000, 301, 50, train=1.0, locality=_LOCALITY),
    "amazon": GraphShape(9_200_000, 313_900_000, 300, 25, train=1.0, locality=_LOCALITY),
    "friendster": GraphShape(
        65_600_000, 3_600_000_000, 32, 50, train=1.0, locality=_LOCALITY, spread=_FRIENDSTER_SPREAD
    ),
}
"""Table 1. Edges as they are gathered, both ways: its mean degrees of the two largest graphs count each pair once."""

HIDDEN = {"reddit-small": 128, "reddit-large": 128, "amazon": 64, "friendster": 48}


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A row of Tables 3 and 4: end-to-end seconds and dollars of the three backends; the GPU cluster has p3.2xlarge."""

    model: str
    graph: str
    instance: str
    servers: int
    seconds: dict[Backend, float]
    dollars: dict[Backend, float]

    def __str__(self) -> str:
        return f"{self.model.upper()} {self.graph}, {self.servers} × {self.instance}"

    def value(self, backend: Backend) -> float:
        return 1 / (self.seconds[backend] * self.dollars[backend])


def _row(model: str, graph: str, instance: str, servers: int, *both: tuple[float, float]) -> PublishedRow:
    seconds, dollars = (dict(zip(BACKENDS, each, strict=True)) for each in zip(*both, strict=True))
    return PublishedRow(model, graph, instance, servers, seconds, dollars)


TABLE_4 = (
    _row("gcn", "reddit-small", "c5.2xlarge", 2, (860.6, 0.20), (1005.4, 0.19), (162.9, 0.28)),
    _row("gcn", "reddit-large", "c5n.2xlarge", 12, (1020.1, 1.69), (1290.5, 1.85), (324.9, 3.31)),
    _row("gcn", "amazon", "c5n.2xlarge", 8, (512.7, 0.79), (710.2, 0.68), (385.3, 2.62)),
    _row("gcn", "friendster", "c5n.4xlarge", 32, (1133.3, 13.8), (1990.8, 15.3), (1490.4, 40.5)),
    _row("gat", "reddit-small", "c5.2xlarge", 10, (496.3, 1.15), (1270.4, 1.20), (130.9, 1.11)),
    _row("gat", "amazon", "c5n.2xlarge", 12, (853.4, 2.67), (2092.7, 3.01), (1039.2, 10.60)),
)
"""Tables 3 and 4. Weight servers were not charged. With Lambdas, Reddit-large ran as pipe and the others as async with
staleness 0; CPU and GPU clusters are taken to have run as pipe, since asynchrony is told of Lambdas alone."""

EPOCHS_OF_ASYNC = {("gcn", "reddit-small"): 1.00, ("gcn", "amazon"): 1.09}
"""Figure 5: epochs to the final accuracy with staleness 0, relative to pipe; 1 where it was not published."""

TABLE_2 = (
    ("reddit-large", ("r5.2xlarge", 4), ("c5n.2xlarge", 12), "cpu", 4.46),
    ("amazon", ("r5.xlarge", 4), ("c5n.2xlarge", 8), "cpu", 2.72),
    ("amazon", ("p2.xlarge", 8), ("p3.2xlarge", 8), "gpu", 4.93),
)
"""Ratio of the values of two choices of machines."""

FIGURE_6 = {
    "friendster": (0.63, 0.72),
    "reddit-small": (0.95, 0.83),
    "reddit-large": (0.97, 0.96),
    "amazon": (0.88, 0.81),
}
"""Seconds an epoch of async with staleness 0 and 1, relative to pipe, with Lambdas."""

FIGURE_8: dict[Backend, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    "lambda": ((1.05, 1.83, 2.97), (1.00, 1.81, 2.68)),
    "cpu": ((0.70, 1.16, 1.97), (0.87, 1.19, 1.70)),
    "gpu": ((1.15, 1.60, 1.99), (0.66, 0.64, 0.49)),
}
"""GCN on Amazon with 4, 8 and 16 servers: relative performance, relative value."""

FIGURE_8_SERVERS = (4, 8, 16)

FIGURE_10: dict[str, tuple[float, float, float]] = {
    "GA": (3.2, 3.4, 1.4),
    "AV": (3.2, 1.8, 0.7),
    "SC": (1.6, 1.0, 1.1),
    "∇GA": (0.9, 0.9, 0.2),
    "∇AV": (4.0, 1.9, 0.9),
    "∇SC": (1.4, 1.2, 1.3),
}
"""GCN on Amazon, 8 servers: seconds of each task in an epoch without overlap: with Lambdas, CPU only, GPU only."""

TABLE_5: dict[str, dict[Backend, tuple[float, float]]] = {
    "reddit-small": {"lambda": (165.77, 0.045), "gpu": (28.06, 0.052)},
    "amazon": {"lambda": (415.23, 0.654), "gpu": (308.27, 2.096)},
}
"""Seconds and dollars to a target accuracy; the other systems of the table are not simulated."""
