"""Placement: which vertices each graph server of a run owns."""

import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from siafu.base.choices import refuse_other_method
from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.partition import METHODS, Partition, make_partition, read_partition
from siafu.graph.stores.remote import is_address, partitions_directory
from siafu.graph.stores.store import is_store

_NAME = re.compile(r"(?P<method>[a-z]+)-(?P<parts>\d+)-(?P<seed>\d+)")


def choose_partition(graph: Graph, servers: int, wanted: str | Partition) -> Partition:
    """A partition of `graph` for so many servers: the one that is given, one that its store holds, or a new one.

    graph:  as it is walked: of a layout, partitions that are given or saved are in the user's numbers
    wanted: a partition, or a method's name. "auto" takes what the store holds for that number of servers. A store that
            was partitioned, but for other numbers only, is refused: someone meant it to be used.
    """
    if isinstance(wanted, Partition):
        return _laid_out(_fitting(wanted, graph, servers), graph)
    method = wanted
    refuse_other_method(method)
    if servers == 1:
        return Partition.whole(graph.num_vertices)
    saved = _saved(graph)
    fitting = [path for path in saved if _parts(path) == servers and method in ("auto", _method(path))]
    if fitting:
        user = graph if graph.renumbered is None else graph.renumbered.graph
        return _laid_out(read_partition(min(fitting, key=_preference), user), graph)
    if saved and method == "auto":
        there = ", ".join(sorted(str(parts) for parts in {_parts(path) for path in saved}))
        raise BadInput(
            f"{graph.source} is partitioned for {there} servers, not {servers}: ask for that many, run "
            f"'siafu partition {graph.source} --parts {servers}', or name a method to partition it anew"
        )
    return make_partition(graph, servers, method=method)


def _laid_out(partition: Partition, graph: Graph) -> Partition:
    """A partition of the user's vertices as one of the layout's."""
    if graph.renumbered is None:
        return partition
    return replace(partition, owner=partition.owner[graph.renumbered.order])


def describe_partition(partition: Partition) -> dict[str, Any] | None:
    """What tells it from others, as JSON takes it; None: one server owns everything."""
    if partition.parts == 1:
        return None
    owners = zlib.crc32(np.ascontiguousarray(partition.owner, np.int32).data)
    return {"seed": partition.seed, "owners": f"{owners:08x}"}


def _fitting(partition: Partition, graph: Graph, servers: int) -> Partition:
    if partition.parts != servers:
        raise BadInput(
            f"the partition is for {partition.parts} servers, and servers is {servers}: pass servers={partition.parts}"
        )
    if partition.num_vertices != graph.num_vertices:
        raise BadInput(
            f"the partition has {partition.num_vertices} vertices, and graph {graph.name!r} {graph.num_vertices}: "
            "make one with siafu.graph.partition.make_partition(graph, …)"
        )
    return partition


def _saved(graph: Graph) -> list[Path]:
    if graph.source is None or not (is_address(graph.source) or is_store(Path(graph.source))):
        return []
    found = sorted(partitions_directory(graph.source).glob("*"))
    return [path for path in found if _NAME.fullmatch(path.name)]


def _preference(path: Path) -> tuple[int, str]:
    """METIS cuts fewest edges; then in the order in which methods are listed."""
    return METHODS.index(_method(path)) if _method(path) in METHODS else len(METHODS), path.name


def _method(path: Path) -> str:
    return path.name.split("-")[0]


def _parts(path: Path) -> int:
    return int(path.name.split("-")[1])
