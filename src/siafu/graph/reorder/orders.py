"""Orders by name: in which order a graph's vertices are laid out."""

from collections.abc import Callable

import numpy as np

from siafu.base.errors import BadInput
from siafu.base.hardware.memory import budget_bytes, own_bytes, rounded_up
from siafu.graph.csr import MAX_INT32_VERTICES, Csr, IntArray
from siafu.graph.graph import Graph
from siafu.graph.partition.methods import make_partition
from siafu.graph.partition.metis import metis_installed
from siafu.graph.progress import ProgressCallback, silent
from siafu.graph.reorder import rabbit
from siafu.graph.reorder.rcm import rcm_order

ROW_BYTES = 512  # of rows that a gather reads: 128 numbers in fp32
_PART_BYTES = 1 << 20  # rows of one of METIS's parts

MakeOrder = Callable[[Graph, ProgressCallback, float | None], IntArray]


def _rabbit(graph: Graph, progress: ProgressCallback, seconds: float | None) -> IntArray:
    return rabbit.rabbit_order(*_both_ways(graph), progress, seconds)


def _rcm(graph: Graph, progress: ProgressCallback, seconds: float | None) -> IntArray:
    progress("ordering edges", 0, graph.num_edges)
    return rcm_order(*_both_ways(graph))


def _degree(graph: Graph, progress: ProgressCallback, seconds: float | None) -> IntArray:
    """Those that most edges lead from first: they stay in the cache together."""
    return np.argsort(-np.diff(graph.out_edges.indptr), kind="stable").astype(np.int32)


def _metis(graph: Graph, progress: ProgressCallback, seconds: float | None) -> IntArray:
    if not metis_installed():
        raise BadInput("METIS is not installed: pip install 'siafu[partition]', or choose --order rabbit")
    parts = max(2, graph.num_vertices * ROW_BYTES // _PART_BYTES)
    made = make_partition(graph, min(parts, graph.num_vertices), method="metis", progress=progress)
    return np.argsort(made.owner, kind="stable").astype(np.int32)


_MAKERS: dict[str, MakeOrder] = {"rabbit": _rabbit, "rcm": _rcm, "degree": _degree, "metis": _metis}
ORDERS = tuple(_MAKERS)


def make_order(
    graph: Graph,
    name: str,
    progress: ProgressCallback = silent,
    memory: str | None = None,
    seconds: float | None = None,
) -> IntArray:
    """[V] int32: the vertex that comes first, second, and so on. The same graph has the same order on any machine.

    memory:  a size that this process may take; None: what is free
    seconds: of CPU time, after which Rabbit order is given up with `OrderGivenUp`; None: never
    """
    if name not in _MAKERS:
        raise BadInput(f"no order {name!r}: choose one of {', '.join(ORDERS)}")
    if graph.num_vertices > MAX_INT32_VERTICES:
        raise BadInput(
            f"{graph.num_vertices:,} vertices are more than siafu reorders: {MAX_INT32_VERTICES:,}"
        )
    if name == "rabbit":
        _refuse_more_than_memory(graph, memory)
    return _MAKERS[name](graph, progress, seconds)


def _refuse_more_than_memory(graph: Graph, memory: str | None) -> None:
    entries = graph.num_edges if graph.is_symmetric else 2 * graph.num_edges
    turned = 0 if graph.is_symmetric else 4 * graph.num_edges
    taken = own_bytes()
    needed = rabbit.BYTES_A_VERTEX * graph.num_vertices + rabbit.BYTES_AN_EDGE * entries + turned
    budget = budget_bytes(memory, taken)
    if budget is not None and taken + needed > budget:
        raise BadInput(
            f"rabbit order takes {rounded_up(taken + needed)} for {graph.num_edges:,} edges, and memory is "
            f"{budget / 1e9:.1f} GB: give more, or choose --order degree"
        )


def _both_ways(graph: Graph) -> tuple[Csr, Csr | None]:
    return graph.in_edges, None if graph.is_symmetric else graph.out_edges
