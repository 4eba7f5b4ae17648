"""Advice: whether a graph is walked faster in another order, and why."""

from dataclasses import dataclass

from siafu.base.hardware.caches import cache_bytes
from siafu.graph.csr import IntArray
from siafu.graph.graph import Graph
from siafu.graph.progress import ProgressCallback, silent
from siafu.graph.reorder.locality import SHARED_BY, Locality, locality
from siafu.graph.reorder.orders import ROW_BYTES, make_order
from siafu.graph.reorder.rabbit import OrderGivenUp

WORTH = 1.1  # a gather that is foretold to be so many times faster is worth another order
_A_MOMENT = 1 << 24  # edges that are ordered in about two seconds
_EDGES_PER_VISIT = 4  # as `kernels.block_size` has it


@dataclass(frozen=True, slots=True)
class Advice:
    """Whether another order pays.

    order:  its name; None: leave the graph as it is
    reason: in one sentence
    vertex_order: [V] the order that was tried; None: none was
    """

    order: str | None
    reason: str
    vertex_order: IntArray | None = None


def first_look(graph: Graph, row_bytes: int = ROW_BYTES) -> Advice | None:
    """Advice that needs no trial of an order; None: one must be tried."""
    if graph.num_vertices * row_bytes <= cache_bytes(2):
        return Advice(None, "no other order: all rows of a gather fit into a core's cache")
    blocks = -(-graph.num_vertices * row_bytes // cache_bytes(2))
    # Where all rows fit the shared cache, blocks gain little, and an order helps as it does without them.
    far = graph.num_vertices * row_bytes > cache_bytes(3) // SHARED_BY
    if far and graph.num_edges >= _EDGES_PER_VISIT * graph.num_vertices * blocks:
        return Advice(
            None, "no other order: the graph is so dense that gathers walk it in blocks that fit the cache"
        )
    found = locality(graph, row_bytes)
    if found.cost < WORTH * found.best.cost:
        return Advice(None, f"no other order: {_said(found)} as the vertices are numbered now")
    return None


def advise(
    graph: Graph,
    progress: ProgressCallback = silent,
    memory: str | None = None,
    row_bytes: int = ROW_BYTES,
) -> Advice:
    """Try Rabbit order where it may help.

    memory: a size that this process may take; None: what is free
    """
    return first_look(graph, row_bytes) or try_order(graph, progress, memory, row_bytes)


def try_order(
    graph: Graph,
    progress: ProgressCallback = silent,
    memory: str | None = None,
    row_bytes: int = ROW_BYTES,
    seconds: float | None = None,
) -> Advice:
    """Follow a gather as the vertices are numbered and in Rabbit order: what misses the caches decides.

    memory:  a size that this process may take; None: what is free
    seconds: of CPU time, after which an order is given up; None: never
    """
    try:
        order = make_order(graph, "rabbit", progress, memory, seconds)
    except OrderGivenUp:
        return Advice(None, f"no other order: rabbit order was given up after {seconds:.2g} CPU seconds")
    before, after = locality(graph, row_bytes), locality(graph, row_bytes, order)
    ratio = before.cost / after.cost
    found = (
        f"{_said(before)} and {100 * before.far:.0f} % the shared one as the vertices are numbered now, "
        f"{_share(after)} and {100 * after.far:.0f} % in rabbit order"
    )
    if ratio < WORTH:
        return Advice(None, f"no other order: {found}", order)
    return Advice("rabbit", f"rabbit order: {found}; gathers should be {ratio:.1f} times as fast", order)


def recommend(graph: Graph) -> str:
    """The same in words, for who explains a training: an order is tried only where that takes a moment."""
    if graph.layout is not None and graph.layout.renumbered is not None:
        return f"the vertices are walked in {graph.layout.renumbered.method} order, which `siafu reorder` chose or was told"
    known = first_look(graph)
    if known is None and graph.num_edges <= _A_MOMENT:
        known = advise(graph)
    if known is None:
        told = _said(locality(graph, ROW_BYTES))
        return f"{told}: 'siafu reorder' tries rabbit order, and adds it to the store if it pays; 'siafu train --reorder auto' tries it for one run"
    if known.order is None:
        return known.reason
    return f"{known.reason}: 'siafu reorder', or graph.reorder(), adds it, 'siafu train --reorder auto' for one run"


def _said(found: Locality) -> str:
    return f"{_share(found)} of a gather's reads miss a core's cache"


def _share(found: Locality) -> str:
    return f"{100 * found.near:.0f} %"
