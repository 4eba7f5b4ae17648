"""OrderChoice: whether a training walks its graph in another order of the vertices, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from siafu.base.errors import BadInput
from siafu.base.hardware.caches import cache_bytes
from siafu.base.hardware.memory import budget_bytes, own_bytes, rounded_up
from siafu.graph import Graph
from siafu.graph.reorder import Advice, first_look, reorder
from siafu.graph.reorder.advice import try_order
from siafu.graph.reorder.layout import held_layout
from siafu.graph.reorder.locality import Locality, locality
from siafu.graph.reorder.orders import ROW_BYTES
from siafu.graph.reorder.overlap import overlap
from siafu.kernels.advice.advisor import seconds_an_edge
from siafu.nn.tensors import is_halved
from siafu.objective.registry import objective_asked
from siafu.options import Options
from siafu.program.program import Program
from siafu.server.plan import compile_programs, rows_of

# Prices in seconds of an edge of a gather of 512 bytes, all of whose reads hit (docs/reordering.md): of Rabbit order, for an edge and
# direction, what is added where its read comes from memory, and for a vertex; of a copy of the edges, likewise.
_ORDERING, _ORDERING_FAR, _ORDERING_VERTEX = 5, 8, 25
_COPYING, _COPYING_FAR, _COPYING_VERTEX = 4, 3, 12
_COPYING_BYTE = 1e-9  # seconds of a byte of rows that is put in another order
_TRIAL = 0.15  # of what an order is hoped to save: a trial that is foretold to take longer is not begun
_GIVEN_UP = 0.3  # of the same: a trial that takes longer is given up
_SURE = 0.1  # overlap of neighbours from which the most that an order can save is hoped for
_SHARE_OF_MEMORY = 0.25  # that a layout may take, where nobody asked for one
_LINE = 64


@dataclass(frozen=True, slots=True)
class OrderChoice:
    """The order that a training walks its graph in.

    graph:  with its layout, if there is one
    order:  for the run's config, so that it can be made again to the bit: the name of an order, or "off"
    reason: in one sentence; None: nothing was asked
    """

    graph: Graph
    order: str
    reason: str | None = None


def choose_order(
    graph: Graph, model: nn.Module, options: Options, *, on_cluster: bool, memory: str | None
) -> OrderChoice:
    """Make the layout that `options.reorder` asks for; auto: where it pays over the run, ordering included."""
    asked = options.reorder
    if asked == "off":
        return OrderChoice(graph, "off")
    if on_cluster:
        if asked != "auto":
            raise BadInput(
                f"reorder is {asked}, and a cluster's machines read the graph for themselves: put a layout into the store "
                "with 'siafu reorder', and leave this option out"
            )
        return OrderChoice(graph, "off", "no other order: machines of a cluster read the store as it is")
    if asked != "auto":
        return OrderChoice(reorder(graph, asked, memory=memory), asked, f"{asked} order, as it was asked for")
    if graph.layout is not None:
        return OrderChoice(graph, "off", "the order is that of the layout in the store")
    return _advised(graph, model, options, memory)


def _advised(graph: Graph, model: nn.Module, options: Options, memory: str | None) -> OrderChoice:
    if (known := first_look(graph)) is not None:
        return OrderChoice(graph, "off", known.reason)
    splits = rows_of(graph)
    if "train" not in splits:
        return OrderChoice(graph, "off")  # it is refused elsewhere
    programs = compile_programs(graph, model, splits["train"], objective_asked(graph, options))
    needed, budget = _layout_bytes(graph), budget_bytes(memory, own_bytes())
    if budget is not None and needed > _SHARE_OF_MEMORY * (budget - own_bytes()):
        told = f"a copy of the graph would take {rounded_up(needed)} of memory"
        return OrderChoice(
            graph, "off", f"no other order: {told}; 'siafu reorder' puts one into a store, on disk"
        )
    found = look_for_order(graph, row_lengths(programs["train"]), options.epochs, memory)
    if found.order is None or found.vertex_order is None:
        return OrderChoice(graph, "off", found.reason)
    layout = held_layout(graph, found.vertex_order, found.order)
    return OrderChoice(graph.replace(layout=layout), found.order, found.reason)


def look_for_order(graph: Graph, lengths: list[int], epochs: int, memory: str | None = None) -> Advice:
    """An order that pays over so many epochs, each of which gathers rows so long; one that cannot pay is not tried.

    lengths: bytes of the rows that each gather of an epoch reads for an edge
    """
    if (known := first_look(graph)) is not None:
        return known
    if not lengths:
        return Advice(None, "no other order: no epoch gathers along the edges")
    found = {each: locality(graph, each) for each in {*lengths, ROW_BYTES}}
    now = epochs * _seconds(graph, lengths, {each: way.cost for each, way in found.items()})
    least = epochs * _seconds(graph, lengths, {each: way.best.cost for each, way in found.items()})
    ordering, copied = _prices(graph, found[ROW_BYTES])
    together = overlap(graph, cache_bytes(2) // max(lengths))
    hoped = (now - least) * max(0.0, min(1.0, max(together.apart / _SURE, together.far * _beside(graph))))
    if ordering > _TRIAL * hoped:
        return Advice(
            None,
            f"no other order: to look for one takes {ordering:.2g} CPU seconds of {now:.2g} that {epochs} epochs gather, and it may save "
            f"{max(0.0, hoped):.2g}: the ends of an edge share {100 * max(0.0, together.shared):.1f} % of their neighbours beyond chance, "
            f"{100 * max(0.0, together.apart):.1f} % if they are far apart now",
        )
    advice = try_order(graph, memory=memory, row_bytes=max(lengths), seconds=_GIVEN_UP * hoped)
    if advice.order is None or advice.vertex_order is None:
        return advice
    saved = now - epochs * gather_seconds(graph, lengths, advice.vertex_order)
    if saved < copied:
        return Advice(
            None, f"no other order: {advice.order} order would save {max(0.0, saved):.1f} CPU seconds"
        )
    return replace(advice, reason=f"{advice.reason}; {saved:.0f} CPU seconds less in {epochs} epochs")


def _beside(graph: Graph) -> float:
    """Share of the reads that any order of a connected graph can make near: each vertex stands beside another that it is joined to."""
    ways = 2 if graph.is_symmetric else 1
    return min(1.0, ways * graph.num_vertices / max(1, graph.num_edges))


def _prices(graph: Graph, found: Locality) -> tuple[float, float]:
    """CPU seconds of Rabbit order, and of a layout."""
    unit, far = seconds_an_edge(ROW_BYTES), found.far
    entries = graph.num_edges * (1 if graph.is_symmetric else 2)
    ordering = entries * (_ORDERING + _ORDERING_FAR * far) + graph.num_vertices * _ORDERING_VERTEX
    copied = graph.num_edges * (_COPYING + _COPYING_FAR * far) + graph.num_vertices * _COPYING_VERTEX
    edges = graph.indptr.nbytes + graph.indices.nbytes
    return unit * ordering, unit * copied + _COPYING_BYTE * (_layout_bytes(graph) - edges)


def _seconds(graph: Graph, lengths: list[int], costs: Mapping[int, float]) -> float:
    """CPU seconds of an epoch's gathers; costs: of a read, by the length of the rows."""
    return graph.num_edges * sum(seconds_an_edge(each) * costs[each] for each in lengths)


def row_lengths(program: Program) -> list[int]:
    """Bytes of the rows that each gather of an epoch reads for an edge: forth and back."""
    steps = [step for group in program.gathers for step in group]
    numbers = [(step.site.width, 2 if is_halved(step.site.gather.precision) else 4) for step in steps]
    return [-(-width * size // _LINE) * _LINE for width, size in numbers for _ in ("forth", "back")]


def gather_seconds(graph: Graph, lengths: list[int], order: np.ndarray | None = None) -> float:
    """CPU seconds of an epoch's gathers of rows so long, foretold from a sample of what misses the caches.

    order: [V] the vertex at each place; None: as they are numbered
    """
    return _seconds(graph, lengths, {each: locality(graph, each, order).cost for each in set(lengths)})


def _layout_bytes(graph: Graph) -> int:
    """Of a second copy of the graph's arrays."""
    arrays = [getattr(graph, name) for name in graph.__dataclass_fields__]
    return sum(each.nbytes for each in arrays if isinstance(each, np.ndarray))
