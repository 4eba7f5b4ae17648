"""ServerMemory: the memory of one server, estimated from counts before anything is allocated."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from numpy.typing import NDArray

from siafu.graph.graph import Graph
from siafu.graph.partition.quality import PartitionQuality

_POINTER = 8  # bytes: where a vertex's edges start
_LOCAL_ID = 4  # bytes: a column of a server's own edges
_WEIGHT = 4
_FLOAT = 4
_CACHE_LINE = 64  # rows of a table start on one


@dataclass(frozen=True, slots=True)
class ServerMemory:
    """Bytes that one server holds while it trains.

    in_edges:    its in-edges with their starts and weights
    out_edges:   its out-edges; 0 where the graph is symmetric: they are the in-edges
    features:    its vertices' features, as the store holds them
    labels:      its vertices' labels
    ghosts:      remote vertices' rows: what each layer gathers, forward, and each layer's gradients, backward
    activations: its vertices' rows after each layer, and their gradients
    """

    in_edges: int
    out_edges: int
    features: int
    labels: int
    ghosts: int
    activations: int

    @property
    def total(self) -> int:
        return sum(asdict(self).values())


def memory_before(graph: Graph, parts: int, widths: Sequence[int]) -> ServerMemory:
    """Memory of an average server before there is a partition: with the most ghosts that it can have.

    widths: the rows' widths, from the features to the last layer's output; what a layer gathers is as wide as its
            input, its gradients as its output (a model that gathers on the narrower side needs less)
    """
    vertices, edges = -(-graph.num_vertices // parts), -(-graph.num_edges // parts)
    ghosts = min(graph.num_vertices - vertices, edges)
    return _server_memory(graph, widths, vertices, edges, edges, ghosts, ghosts)


def memory_per_server(graph: Graph, quality: PartitionQuality, widths: Sequence[int]) -> list[ServerMemory]:
    """Each server's memory, with the vertices, edges and ghosts that a partition gives it."""
    edges, ghosts = (quality.edges, quality.out_edges), (quality.forward_ghosts, quality.backward_ghosts)
    counts = zip(quality.vertices, *edges, *ghosts, strict=True)
    return [_server_memory(graph, widths, *map(int, each)) for each in counts]


def _server_memory(
    graph: Graph,
    widths: Sequence[int],
    vertices: int,
    edges: int,
    out_edges: int,
    forward_ghosts: int,
    backward_ghosts: int,
) -> ServerMemory:
    """Memory of a server with these counts, in fp32."""
    made = _row_bytes(widths[1:])
    return ServerMemory(
        in_edges=_edge_bytes(graph, vertices, edges),
        out_edges=0 if graph.is_symmetric else _edge_bytes(graph, vertices, out_edges),
        features=vertices * _bytes_per_vertex(graph.x),
        labels=vertices * _bytes_per_vertex(graph.y),
        ghosts=forward_ghosts * _row_bytes(widths[:-1]) + backward_ghosts * made,
        activations=2 * vertices * made,
    )


def _edge_bytes(graph: Graph, vertices: int, edges: int) -> int:
    each = _LOCAL_ID + (0 if graph.edge_weight is None else _WEIGHT)
    return vertices * _POINTER + edges * each


def _row_bytes(widths: Sequence[int]) -> int:
    """One row of each width, each on cache lines of its own."""
    return sum(-(-width * _FLOAT // _CACHE_LINE) * _CACHE_LINE for width in widths)


def _bytes_per_vertex(rows: NDArray[Any] | None) -> int:
    return 0 if rows is None else int(rows[:1].nbytes)
