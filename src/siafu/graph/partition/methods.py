"""Partitioning by the name of a method."""

from collections.abc import Callable

from siafu.base.choices import refuse_other_method
from siafu.base.errors import BadInput
from siafu.graph.graph import Graph
from siafu.graph.partition.contiguous import contiguous_owners
from siafu.graph.partition.hashed import hash_owners
from siafu.graph.partition.metis import (
    memory_for_metis,
    metis_installed,
    metis_memory,
    metis_owners,
    metis_refused,
)
from siafu.graph.partition.partition import Owners, Partition
from siafu.graph.partition.stream import stream_owners
from siafu.graph.progress import ProgressCallback, silent

Partitioner = Callable[[Graph, int, int, ProgressCallback], Owners]
"""From a graph, a number of parts, a seed and who hears of progress to the owner of each vertex."""

PARTITIONERS: dict[str, Partitioner] = {
    "metis": metis_owners,
    "stream": lambda graph, parts, seed, progress: stream_owners(graph, parts, progress),
    "contiguous": lambda graph, parts, seed, progress: contiguous_owners(graph, parts),
    "hash": lambda graph, parts, seed, progress: hash_owners(graph.num_vertices, parts, seed),
}
"""By name, better cuts first."""

METHODS = ("auto", *PARTITIONERS)


def make_partition(
    graph: Graph,
    parts: int,
    *,
    method: str = "auto",
    seed: int = 0,
    memory: int | None = None,
    progress: ProgressCallback = silent,
) -> Partition:
    """Give the vertices of `graph` to `parts` servers.

    method: metis, stream, contiguous or hash; auto: metis where it is installed and fits into memory, else stream
    memory: bytes that the process may take; None: half of the machine's
    """
    check_parts(graph, parts)
    chosen = chosen_method(graph, method, memory)
    return Partition(chosen, parts, PARTITIONERS[chosen](graph, parts, seed, progress), seed)


def chosen_method(graph: Graph, method: str, memory: int | None = None) -> str:
    """The method that `method` stands for on this machine, or in so many bytes of memory."""
    refuse_other_method(method)
    fits = metis_memory(graph) <= memory_for_metis(memory) if method in ("auto", "metis") else False
    if method == "metis" and memory is not None and not fits:
        raise metis_refused(graph, memory)
    if method != "auto":
        return method
    return "metis" if metis_installed() and fits else "stream"


def check_parts(graph: Graph, parts: int) -> None:
    """Refuse a number of parts that would leave servers without vertices."""
    if not 1 <= parts <= graph.num_vertices:
        raise BadInput(
            f"{graph.name} has {graph.num_vertices:,} vertices and cannot have {parts:,} parts: ask for 1 to {graph.num_vertices:,}"
        )
