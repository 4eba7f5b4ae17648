"""Placement: which vertices each graph server of a run owns."""

import re
from pathlib import Path

import numpy as np

from siafu.errors import BadInput
from siafu.graph import Graph
from siafu.graph.partition import METHODS, Partition, make_partition, read_partition
from siafu.graph.store import is_store

_NAME = re.compile(r"(?P<method>[a-z]+)-(?P<parts>\d+)-(?P<seed>\d+)")


def choose_partition(graph: Graph, servers: int, method: str) -> Partition:
    """A partition of `graph` for so many servers: one that its store holds, or a new one.

    method: "auto" takes what the store holds for that number of servers. A store that was partitioned, but for other
            numbers only, is refused: someone meant it to be used.
    """
    if method not in METHODS:
        raise BadInput(f"no partition method {method!r}: choose one of {', '.join(METHODS)}")
    if servers == 1:
        return Partition("contiguous", 1, np.zeros(graph.num_vertices, np.uint16))
    saved = _saved(graph)
    fitting = [path for path in saved if _parts(path) == servers and method in ("auto", _method(path))]
    if fitting:
        return read_partition(min(fitting, key=_preference), graph)
    if saved and method == "auto":
        there = ", ".join(sorted(str(parts) for parts in {_parts(path) for path in saved}))
        raise BadInput(
            f"{graph.source} is partitioned for {there} servers, not {servers}: ask for that many, run "
            f"'siafu partition {graph.source} --parts {servers}', or name a method to partition it anew"
        )
    return make_partition(graph, servers, method=method)


def _saved(graph: Graph) -> list[Path]:
    if graph.source is None or not is_store(Path(graph.source)):
        return []
    found = sorted((Path(graph.source) / "partitions").glob("*"))
    return [path for path in found if _NAME.fullmatch(path.name)]


def _preference(path: Path) -> tuple[int, str]:
    """METIS cuts fewest edges; then in the order in which methods are listed."""
    return METHODS.index(_method(path)) if _method(path) in METHODS else len(METHODS), path.name


def _method(path: Path) -> str:
    return path.name.split("-")[0]


def _parts(path: Path) -> int:
    return int(path.name.split("-")[1])
