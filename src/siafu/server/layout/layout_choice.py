"""The choice of a layout: for each gather, vertices or columns, by the seconds that rows and edges take on one server."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from siafu.base.threads import thread_count
from siafu.kernels import MAX_TILE, block_size
from siafu.server.costs.overlap import overlapped
from siafu.server.gathers.by_columns.column_space import widest_slice
from siafu.server.layout.layouts import VERTICES, layout_name
from siafu.server.layout.traffic import PhaseTraffic, RowTraffic
from siafu.server.memory.listing import server_memory_list
from siafu.server.memory.server_part import parts_of
from siafu.server.plan import ServerPlan

NETWORK_GBPS = 10.0
"""What a server's network is taken to carry, where nobody says."""
_LINE = 64  # bytes of a cache line
# Seconds of a core for an edge, and for each cache line of the row that it reads: from a core's own cache where edges are dense
# enough for blocks, else from memory. `siafu calibrate` on the reference machine, rounded.
_IN_BLOCKS, _ROW_BY_ROW = (2.0e-9, 0.7e-9), (4.0e-9, 5.2e-9)
# Seconds of a core for a softmax of an edge, of which there is one more than heads (`gather_seconds` in virtual time): the mean of both ways.
_SOFTMAX = 2.85e-9
_BITS = 8

Walked = Sequence[tuple[int, int]]
"""Columns and heads of the rows that each gather of a graph phase reads."""


@dataclass(frozen=True, slots=True)
class LayoutPrice:
    """Both layouts of one graph phase, forth and back, in an epoch.

    traffic: bytes that all servers send
    vertices, columns: seconds of a server, for its rows on the network and the edges that it walks
    """

    traffic: PhaseTraffic
    vertices: float
    columns: float

    @property
    def by_columns(self) -> bool:
        """Whether columns are faster."""
        return self.columns < self.vertices


@dataclass(frozen=True, slots=True)
class ServerPace:
    """What decides between layouts besides the traffic.

    vertices, edges: of the graph
    ghosts:  of a server, on the average
    servers: how many there are
    cores:   of a server; a part of one where servers share a machine
    gbps:    gigabits a second that its network carries, each way
    balance: the most edges of a server over the mean, where vertices are laid out
    """

    vertices: float
    edges: float
    ghosts: float
    servers: int
    cores: float
    gbps: float = NETWORK_GBPS
    balance: float = 1.0
    itemsize: int = 4

    def price(self, found: PhaseTraffic) -> LayoutPrice:
        """Both layouts of a graph phase."""
        network = self.servers * self.gbps * 1e9 / _BITS
        rows, edges = self.vertices / self.servers, self.edges / self.servers
        whole = list(zip(found.widths, found.heads or (0,) * len(found.widths), strict=True))
        walked = self.balance * self._walked(rows, edges, rows + self.ghosts, whole)
        cuts = [widest_slice(width, heads, self.servers) for width, heads in whole]
        slices = [(each.width, each.head_count) for each in cuts]
        sliced = self._walked(self.vertices, self.edges, self.vertices, slices)
        return LayoutPrice(
            found,
            overlapped(self.balance * found.vertices / network, walked),
            overlapped(found.columns / network, sliced),
        )

    def _walked(self, rows: float, edges: float, sources: float, walked: Walked) -> float:
        """Seconds for edges, forth and back: rows are read by whole cache lines, and attention goes row by row."""
        found = 0.0
        for size, heads in ((width * self.itemsize, heads) for width, heads in walked):
            row_bytes = min(max(size, _LINE), MAX_TILE * self.itemsize)
            dense = block_size(int(rows), int(edges), row_bytes, sources=int(sources)) is not None
            an_edge, a_line = _IN_BLOCKS if dense and not heads else _ROW_BY_ROW
            found += an_edge + a_line * -(-size // _LINE)
            if heads:
                found += _SOFTMAX * (heads + 1)
        return 2 * edges * found / self.cores


def layout_prices(
    plan: ServerPlan, gbps: float = NETWORK_GBPS, *, cores: float | None = None
) -> tuple[LayoutPrice, ...]:
    """Both layouts of every graph phase of a plan that can have either.

    gbps:  gigabits a second that a server's network carries
    cores: of a server; None: as many as this machine has
    """
    program, needed = plan.programs["train"], plan.needed("train")
    itemsize = plan.dtype.itemsize
    traffic = RowTraffic.of(plan.graph, plan.partition, program, needed, itemsize, training=True)
    servers, whole = plan.partition.parts, traffic.whole
    pace = ServerPace(
        plan.graph.num_vertices,
        plan.graph.num_edges,
        whole.forward / servers,
        servers,
        cores or thread_count(),
        gbps,
        whole.balance,
        itemsize,
    )
    return tuple(pace.price(each) for each in traffic.phases())


def decided(plan: ServerPlan, budget: int | None) -> ServerPlan:
    """A plan whose layout is `auto`, with the faster one that fits.

    budget: bytes that a server may take; None: any amount
    """
    faster = plan.laid_out(chosen_layout(layout_prices(plan)))
    if budget is None or server_peak(faster) <= budget:
        return faster
    return plan.laid_out(VERTICES)


def server_peak(plan: ServerPlan) -> int:
    """Memory of the largest server in a process of its own, besides the program's."""
    return max(server_memory_list(plan, part, 0).peak for part in parts_of(plan.graph, plan.partition))


def chosen_layout(prices: Sequence[LayoutPrice]) -> str:
    """The layout that is fastest, as the option names it."""
    return layout_name([each.traffic.phase for each in prices if each.by_columns])


def told(prices: Sequence[LayoutPrice]) -> Iterator[str]:
    """Both prices of every gather, and the choice, in words."""
    for each in prices:
        traffic, name = each.traffic, "columns" if each.by_columns else "vertices"
        yield (
            f"G{traffic.phase}, {'+'.join(map(str, traffic.widths))} wide, goes by {name}: vertices send {traffic.vertices / 1e6:,.1f} MB an epoch "
            f"and take a server about {each.vertices:.2g} s, columns send {traffic.columns / 1e6:,.1f} MB and take about {each.columns:.2g} s"
        )
