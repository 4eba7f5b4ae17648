"""Memory of batches: the most that those in use can take, listed before any is drawn."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from siafu.base.threads import thread_count
from siafu.graph import Graph
from siafu.program.density import sampled_density
from siafu.program.program import Program
from siafu.sampling.first_input import FirstInput
from siafu.sampling.picks import ALL
from siafu.server.memory.memory_list import Allocation, Lifetime
from siafu.server.plan import ServerPlan

_EDGE = 2 * (
    4 + 8
)  # bytes of an edge of a sample: its other end and its place in the graph, by target and by source
_VERTEX = 4 * 8 + 3 * 8  # bytes of a vertex: its number, both its rows' beginnings, factors of gathers
_WHILE_MADE = 2  # nonzeros in pieces, and put together
_GRADIENTS = 2  # as many bytes again for the gradients of what was computed


def batches_ahead() -> int:
    """Batches that are prepared, or being prepared, before they are computed."""
    return thread_count() + 1


def largest_sample(graph: Graph, fanouts: Sequence[int], batch: int) -> tuple[int, int]:
    """Vertices and edges that a sample has at most: as if no vertex were found twice, and no more than there are."""
    degrees = np.diff(graph.indptr)
    most = int(degrees.max(initial=0))
    vertices = frontier = min(batch, graph.num_vertices)
    edges = 0
    for fanout in fanouts:
        drawn = frontier * (most if fanout == ALL else min(fanout, most))
        edges += drawn
        frontier = min(drawn, graph.num_vertices)
        vertices = min(vertices + drawn, graph.num_vertices)
    return vertices, min(edges, graph.num_edges)


def batch_memory(
    plan: ServerPlan,
    fanouts: Sequence[int],
    batch: int,
    first: FirstInput,
    servers: int = 1,
    *,
    buffered: int = 0,
) -> Iterator[Allocation]:
    """Arrays of sampled training, besides those of its evaluations.

    servers:  that batches are computed on, all in this process
    buffered: bytes of features that a buffer holds; 0: there is none
    """
    graph, itemsize = plan.graph, plan.dtype.itemsize
    vertices, edges = largest_sample(graph, fanouts, batch)
    if first == "gathered":  # leaves are not held
        vertices, _ = largest_sample(graph, fanouts[:-1], batch)
    tables = {"gathered": 2, "sparse": 0, "rows": 1}[first]
    width = tables * graph.num_features * itemsize
    whole = (
        1 if servers == 1 else 2
    )  # all shares together have no more than a sample has at most, and there is the sample
    one = vertices * (width + whole * _VERTEX) + edges * whole * _EDGE
    held = batches_ahead() + 1
    yield Allocation(
        "batches", held * one, Lifetime.EPOCHS, f"samples and their features, {held} at a time, at most"
    )
    if buffered:
        yield Allocation(
            "buffer of features", buffered, Lifetime.EPOCHS, "groups of them, in the order of batches"
        )
        read, _ = largest_sample(graph, fanouts, batch)
        row = plan.features.width * plan.features.stored.itemsize
        yield Allocation(
            "features of batches",
            thread_count() * (read * row + 4 * graph.num_vertices),
            Lifetime.EPOCHS,
            "that are gathered from, while batches are loaded, at most",
        )
    if first == "sparse":
        numbers = graph.num_vertices * graph.num_features * sampled_density(graph, gathered=False)
        yield Allocation(
            "features of batches",
            _WHILE_MADE * round(numbers * (4 + itemsize)) + 8 * graph.num_vertices,
            Lifetime.RUN,
            "without their zeros, by a sample of their density",
        )
    if servers > 1 and plan.options.layout == "columns":
        row = plan.features.width * max(itemsize, plan.features.stored.itemsize)
        yield Allocation(
            "features by columns",
            graph.num_vertices * row,
            Lifetime.RUN,
            "each server's columns of all vertices",
        )
        widest = max((math.prod(shape) for shape in plan.programs["train"].shapes.values()), default=0)
        yield Allocation(
            "products of a batch",
            _GRADIENTS * servers * vertices * widest * itemsize,
            Lifetime.EPOCHS,
            "of each server's columns, and their gradients, at most",
        )
    computed = vertices * itemsize * _numbers(plan.programs["train"])
    yield Allocation(
        "rows of a batch",
        _GRADIENTS * computed,
        Lifetime.EPOCHS,
        "and their gradients, of all layers, at most",
    )
    yield Allocation(
        "vertices' numbers",
        4 * graph.num_vertices * thread_count(),
        Lifetime.EPOCHS,
        "in a sample, for each thread that draws",
    )
    weights = sum(each.nbytes for each in plan.weights.values())
    yield Allocation("weights", 5 * weights, Lifetime.EPOCHS, "the best, gradients, state of the optimizer")


def batches_on_servers(servers: int) -> int:
    """Batches that servers of a cluster prepare, or have prepared, before they are computed: every server draws one, and two more."""
    return servers + 2


def share_memory(
    plan: ServerPlan, fanouts: Sequence[int], batch: int, first: FirstInput, servers: int, threads: int
) -> int:
    """Bytes that a server of a cluster takes at most for its shares, those that it draws for others, and the weights.

    threads: of the server that draw
    """
    graph, itemsize = plan.graph, plan.dtype.itemsize
    share = -(-batch // servers)
    read, edges = largest_sample(graph, fanouts, share)
    rows = largest_sample(graph, fanouts[:-1], share)[0] if first == "gathered" else read
    tables = 2 if first == "gathered" else 1
    table = read * plan.features.width * plan.features.stored.itemsize
    one = table + rows * (tables * graph.num_features * itemsize + _VERTEX) + edges * _EDGE
    whole_vertices, whole_edges = largest_sample(graph, fanouts, batch)
    drawn = 2 * (
        whole_vertices * _VERTEX + whole_edges * _EDGE
    )  # the sample, and its shares until they are sent
    computed = _GRADIENTS * rows * itemsize * _numbers(plan.programs["train"])
    numbers = 2 * 4 * graph.num_vertices * threads
    weights = 3 * sum(each.nbytes for each in plan.weights.values())
    return batches_on_servers(servers) * one + threads * drawn + computed + numbers + weights


def _numbers(program: Program) -> int:
    """Numbers that a model computes for a vertex, of all that it names."""
    return sum(math.prod(shape) for shape in program.shapes.values())
