"""OrderChoice: whether a training walks its graph in another order of the vertices, and why."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from siafu.base.errors import BadInput
from siafu.base.hardware.memory import budget_bytes, own_bytes, rounded_up
from siafu.graph import Graph
from siafu.graph.reorder import Advice, advise, first_look, reorder
from siafu.graph.reorder.advice import BEST
from siafu.graph.reorder.layout import held_layout
from siafu.graph.reorder.locality import locality
from siafu.graph.reorder.overlap import overlap
from siafu.kernels.advice.advisor import seconds_an_edge
from siafu.nn.tensors import is_halved
from siafu.objective.registry import objective_asked
from siafu.options import Options
from siafu.program.program import Program
from siafu.server.plan import compile_programs, rows_of

_ORDERING = 6e-8  # CPU seconds of Rabbit order for an edge and direction,
_ORDERING_VERTEX = 5e-7  # and for a vertex; see docs/reordering.md
_COPYING = 1e-9  # seconds of a byte that is put in another order
_TRIAL = 0.25  # of the most that an order could save, the trial of one may take so much: it may be in vain
_TRIAL_OF_RUN = 0.025  # of what the epochs' gathers take now: a trial in vain is not noticed
_TOGETHER = (
    0.01  # overlap of neighbours below which there are no communities that an order could bring together
)
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
    if (together := overlap(graph)) < _TOGETHER:
        return Advice(
            None,
            f"no other order: the ends of an edge share {100 * together:.1f} % of their neighbours beyond chance, and an "
            "order brings those together that share many",
        )
    ways, copied = (1 if graph.is_symmetric else 2), _COPYING * _layout_bytes(graph)
    ordering = ways * _ORDERING * graph.num_edges + _ORDERING_VERTEX * graph.num_vertices
    now, least = gather_seconds(graph, lengths), graph.num_edges * sum(map(seconds_an_edge, lengths))
    most = epochs * (now - BEST.cost * least)
    if ordering + copied > min(_TRIAL * most, _TRIAL_OF_RUN * epochs * now):
        return Advice(
            None,
            f"no other order: to look for one takes {ordering + copied:.1f} CPU seconds, and it could save {max(0.0, most):.1f} "
            f"in {epochs} epochs at the most",
        )
    advice = advise(graph, memory=memory, row_bytes=max(lengths))
    if advice.order is None or advice.vertex_order is None:
        return advice
    saved = epochs * (now - gather_seconds(graph, lengths, advice.vertex_order))
    if saved < copied:
        return Advice(
            None, f"no other order: {advice.order} order would save {max(0.0, saved):.1f} CPU seconds"
        )
    return replace(advice, reason=f"{advice.reason}; {saved:.0f} CPU seconds less in {epochs} epochs")


def row_lengths(program: Program) -> list[int]:
    """Bytes of the rows that each gather of an epoch reads for an edge: forth and back."""
    steps = [step for group in program.gathers for step in group]
    numbers = [(step.site.width, 2 if is_halved(step.site.gather.precision) else 4) for step in steps]
    return [-(-width * size // _LINE) * _LINE for width, size in numbers for _ in ("forth", "back")]


def gather_seconds(graph: Graph, lengths: Iterable[int], order: np.ndarray | None = None) -> float:
    """CPU seconds of an epoch's gathers of rows so long, foretold from a sample of what misses the caches.

    order: [V] the vertex at each place; None: as they are numbered
    """
    seconds = {each: seconds_an_edge(each) * locality(graph, each, order).cost for each in set(lengths)}
    return graph.num_edges * sum(seconds[each] for each in lengths)


def _layout_bytes(graph: Graph) -> int:
    """Of a second copy of the graph's arrays."""
    arrays = [getattr(graph, name) for name in graph.__dataclass_fields__]
    return sum(each.nbytes for each in arrays if isinstance(each, np.ndarray))
