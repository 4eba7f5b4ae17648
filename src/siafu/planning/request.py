"""Request: what a plan is asked for."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.server.memory.server_part import ServerPart
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.workload import ModelShape

AUTO = "auto"


@dataclass(frozen=True, slots=True, eq=False)
class KnownGraph:
    """A graph that is there, and the parts of its partitions that were counted, by the number of servers."""

    graph: Graph
    parts: Mapping[int, Sequence[ServerPart]]


@dataclass(frozen=True, slots=True)
class Request:
    """The training that a plan is made for, and its limits.

    name:           of the graph, as `siafu train` takes it
    epochs:         exact ones; asynchronous ones count a little less each
    evaluate_every: epochs from one evaluation to the next
    deadline_s, budget_usd: the most that the training may take and cost; None: no matter
    spot:           whether machines may be taken away, at the price of those
    instances:      types to choose from; none: all that have no GPU
    most_servers:   how many machines may be rented
    lambdas:        whether tensor tasks may run on Lambdas
    disks:          whether tables that do not fit memory may be on machines' disks
    layout:         of gathers, as `siafu train` takes it; "auto": the faster one that fits
    known:          the graph itself, where it is there: memory is told to the byte then; None: it is only a shape
    """

    name: str
    shape: GraphShape
    model: ModelShape
    epochs: int = 200
    evaluate_every: int = 10
    deadline_s: float | None = None
    budget_usd: float | None = None
    spot: bool = False
    instances: tuple[str, ...] = ()
    most_servers: int = 100
    lambdas: bool = True
    disks: bool = True
    layout: str = AUTO
    known: KnownGraph | None = None

    def __post_init__(self) -> None:
        of_graph, own = ("vertices", "features", "classes"), ("epochs", "evaluate_every", "most_servers")
        counts = [(name, getattr(self.shape, name)) for name in of_graph]
        for name, count in [*counts, *((name, getattr(self, name)) for name in own)]:
            if count < 1:
                raise BadInput(f"{name} is {count}: give a whole number from 1 up")
        if self.shape.edges < 0:
            raise BadInput(f"edges is {self.shape.edges}: give a whole number from 0 up")
        if not (0 <= self.shape.locality <= 1 and 0 < self.shape.train <= 1):
            raise BadInput(
                f"train is {self.shape.train} and locality {self.shape.locality}: give shares from 0 to 1"
            )
        for what, limit in (("deadline", self.deadline_s), ("budget", self.budget_usd)):
            if limit is not None and not 0 < limit < math.inf:
                raise BadInput(f"{what} is {limit}: give a number above 0")
