"""ServerPart: sizes of one server's part of a graph, known before the part is made."""

from collections.abc import Sequence
from dataclasses import dataclass

from siafu.graph import Graph
from siafu.graph.partition import Partition
from siafu.graph.partition.quality import PartitionQuality, measure
from siafu.server.costs.held_array import RowCounts
from siafu.server.focus import Focus


@dataclass(frozen=True, slots=True)
class ServerPart:
    """Sizes of one server's part.

    share:           of the graph's vertices
    edges:           in-edges of its vertices; out_edges: edges that start there
    forward_ghosts:  remote vertices whose rows it gathers; backward_ghosts: whose gradients it does
    alone:           it is the only server: its edges are the graph's own arrays
    aligned:         gradients of remote vertices come for the same ghosts, in the same order, as their rows do
    """

    vertices: int
    share: float
    edges: int
    out_edges: int
    forward_ghosts: int
    backward_ghosts: int
    alone: bool
    aligned: bool = True

    @property
    def rows(self) -> RowCounts:
        """Rows of its tables."""
        own = self.vertices
        every = round(own / self.share) if own else 0
        return RowCounts(own, own + self.forward_ghosts, own + self.backward_ghosts, every)


def whole_part(graph: Graph) -> ServerPart:
    """That of a server which has the whole graph."""
    edges = graph.num_edges
    return ServerPart(graph.num_vertices, 1.0, edges, edges, 0, 0, alone=True)


def focused_part(graph: Graph, focus: Focus) -> ServerPart:
    """That of a training which computes the rows of some vertices alone."""
    return ServerPart(
        len(focus.vertices),
        len(focus.vertices) / max(1, graph.num_vertices),
        focus.edges,
        focus.out_edges,
        focus.forward_ghosts,
        focus.backward_ghosts,
        alone=False,
        aligned=graph.is_symmetric,
    )


def parts_of(graph: Graph, partition: Partition) -> Sequence[ServerPart]:
    """The parts of all servers; several are counted in two passes over the edges."""
    if partition.parts == 1:
        return [whole_part(graph)]
    return parts_in(graph, measure(graph, partition))


def parts_in(graph: Graph, found: PartitionQuality) -> Sequence[ServerPart]:
    """The parts of several servers whose partition was measured."""
    return [
        ServerPart(
            int(found.vertices[k]),
            int(found.vertices[k]) / max(1, graph.num_vertices),
            int(found.edges[k]),
            int(found.out_edges[k]),
            int(found.forward_ghosts[k]),
            int(found.backward_ghosts[k]),
            alone=False,
            aligned=graph.is_symmetric,
        )
        for k in range(len(found.vertices))
    ]
