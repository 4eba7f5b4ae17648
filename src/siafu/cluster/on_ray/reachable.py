"""Which of Ray's nodes can be reached: Ray lists a node that is gone for many seconds yet."""

import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

ANSWER_SECONDS = 1.0


def reachable(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Ids of the nodes whose own process takes a connection.

    nodes: as `ray.nodes()` gives them
    """
    alive = [each for each in nodes if each["Alive"]]
    if not alive:
        return []
    with ThreadPoolExecutor(len(alive)) as pool:
        found = [*pool.map(_answers, alive)]
    return [each["NodeID"] for each, answers in zip(alive, found, strict=True) if answers]


def _answers(node: Mapping[str, Any]) -> bool:
    where = node["NodeManagerAddress"], node["NodeManagerPort"]
    with suppress(OSError), socket.create_connection(where, ANSWER_SECONDS):
        return True
    return False
