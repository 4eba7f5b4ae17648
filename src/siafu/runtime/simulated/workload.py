"""Workload: what a model's epoch has to do on a graph, stage by stage, from the programs that would run."""

from collections.abc import Mapping
from dataclasses import dataclass

from siafu.pipeline.ids import Lane, StageId
from siafu.pipeline.schedule import Schedule
from siafu.runtime.simulated.costs import Work
from siafu.runtime.simulated.graph_shape import GraphShape


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model that is to be built.

    name: "gcn", "gat", "sage" or "gin"
    heads: gat
    """

    name: str = "gcn"
    hidden: int = 64
    layers: int = 2
    dropout: float = 0.5
    heads: int = 8


@dataclass(frozen=True)
class Workload:
    """The stages of an epoch and of an evaluation, and what each has to do on the whole graph.

    work:             by lane and stage
    parameters:       numbers in the model; `parameter_bytes` of each phase that is updated together
    constant_bytes:   rows that are computed once and kept, a vertex: the (folded) features
    activation_bytes: tables, kept rows and gradients, a vertex; ghost_bytes: the tables' rows, a ghost
    """

    training: Schedule
    evaluation: Schedule
    work: Mapping[tuple[Lane, StageId], Work]
    parameters: int
    parameter_bytes: Mapping[int, float]
    constant_bytes: float
    activation_bytes: float
    ghost_bytes: float

    def server_bytes(self, shape: GraphShape, servers: int) -> float:
        """Memory of one graph server: edges both ways, constant rows, labels, tables with ghosts, what is kept."""
        vertices, edges = shape.vertices / servers, shape.edges / servers
        rows = vertices * (self.constant_bytes + self.activation_bytes + 8 + 16)
        return rows + 4 * edges + shape.ghosts_of_server(servers) * (self.ghost_bytes + 16)


def workload_of(model: ModelShape, shape: GraphShape) -> Workload:
    """Compile the model as `siafu.train` would and say what its stages cost on a graph of that shape."""
    raise NotImplementedError
