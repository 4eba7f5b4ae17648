"""GraphShape: what a simulation needs to know of a graph: sizes, and how many ghosts its servers have."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from siafu.graph.graph import Graph
from siafu.graph.partition.quality import PartitionQuality


@dataclass(frozen=True, slots=True)
class GraphShape:
    """A graph in numbers.

    train, labelled: shares of the vertices that enter the loss, and that are in some split
    edges_to_train: share of the edges that lead to a vertex that enters the loss; None: as `train`
    locality: share of the edges that a partition keeps on one server beyond what chance does: 0, vertices are dealt
              out; 1, none is cut. METIS on graphs with communities reaches 0.3 to 0.9
    spread:   how uneven degrees are: 1 / k of the gamma distribution that stands for them; 0: all are equal
    ghosts:   measured: ghosts of a server, on the average, by the number of servers; others are modelled
    """

    vertices: int
    edges: int
    features: int
    classes: int
    train: float = 0.66
    labelled: float = 1.0
    locality: float = 0.0
    spread: float = 1.0
    ghosts: Mapping[int, float] = field(default_factory=dict)
    edges_to_train: float | None = None

    @classmethod
    def of(cls, graph: Graph, quality: Mapping[int, PartitionQuality] | None = None) -> "GraphShape":
        """That of a graph; with what was measured of its partitions, by their number of servers."""
        splits = [graph.train, graph.val, graph.test]
        sizes = [0 if ids is None else len(ids) for ids in splits]
        return cls(
            graph.num_vertices,
            graph.num_edges,
            graph.num_features,
            graph.num_classes,
            train=(sizes[0] or graph.num_vertices) / graph.num_vertices,
            labelled=min(1.0, (sum(sizes) or graph.num_vertices) / graph.num_vertices),
            ghosts={
                servers: float(found.forward_ghosts.mean()) for servers, found in (quality or {}).items()
            },
            edges_to_train=_share_of_edges(graph),
        )

    @property
    def train_edges(self) -> float:
        """The share of the edges that lead to a vertex that enters the loss."""
        return self.train if self.edges_to_train is None else self.edges_to_train

    @property
    def degree(self) -> float:
        return self.edges / self.vertices

    def cut_share(self, servers: int) -> float:
        """The share of the edges whose ends are on different servers."""
        return (1 - 1 / servers) * (1 - self.locality)

    def ghosts_of_server(self, servers: int, *, reading: float = 1.0) -> float:
        """Remote vertices whose rows one server holds, on the average.

        reading: the share of its edges that it reads them through

        Modelled: a remote vertex with d out-edges, each cut with the share above and then leading to any other server, is
        a ghost here unless none of them leads here; d is gamma-distributed. Where ghosts were measured, the model
        only says what `reading` less edges changes.
        """
        if servers == 1:
            return 0.0
        if servers in self.ghosts:
            return self.ghosts[servers] * self._modelled(servers, reading) / self._modelled(servers, 1.0)
        return self._modelled(servers, reading)

    def _modelled(self, servers: int, reading: float) -> float:
        remote = self.vertices * (1 - 1 / servers)
        to_here = self.degree * reading * (1 - self.locality) / servers
        if self.spread == 0:
            return remote * -math.expm1(-to_here)
        return remote * -math.expm1(-math.log1p(to_here * self.spread) / self.spread)


def _share_of_edges(graph: Graph) -> float | None:
    if graph.train is None or not graph.num_edges:
        return None
    degrees = graph.indptr[graph.train + 1] - graph.indptr[graph.train]
    return float(degrees.sum() / graph.num_edges)
