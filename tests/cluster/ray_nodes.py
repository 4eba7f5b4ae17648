"""A Ray cluster for tests: a head here, and nodes that are machines of their own where that can be had."""

import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from siafu.launch import sessions
from siafu.launch.loopback import read_variables_again
from tests.cluster import networks
from tests.cluster.networks import Place

START_SECONDS = 120.0
_START = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
_MODE = "RAY_AUTH_MODE"
_SMALL = ["--num-cpus=1", "--object-store-memory=80000000"]
_MANY_ON_ONE_MACHINE = ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]


class RayNodes:
    """Nodes of one core each; this process is connected.

    places:           where nodes besides the head are started, one each
    why_not_separate: why they have no networks of their own, in words; None: they have
    """

    def __init__(self, places: Sequence[Place], why_not_separate: str | None) -> None:
        import ray

        self.why_not_separate = why_not_separate
        # A token in the home directory would make Ray's nodes ask for it, and one that an earlier test of this process
        # showed to its own cluster would make this process ask the nodes: Ray then takes all actors for abandoned.
        self._mode_before = os.environ.get(_MODE)
        _set_mode("disabled")
        # Ray's processes are nice: where the system does not group processes by session, they would starve beside other tests.
        os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (as Ray spells it)
        self._places = iter(places)
        self._processes: dict[str, dict[str, int]] = {}
        # Ray puts sockets there, whose paths must be short.
        self._scratch = tempfile.mkdtemp(prefix="siafu-ray-", dir="/tmp")
        with socket.socket() as unused:
            unused.bind(("", 0))
            self._port: int = unused.getsockname()[1]
        self.address = f"{ray.util.get_node_ip_address()}:{self._port}"

    def start(self, nodes: int) -> None:
        """The head, and then the others, one by one: at once they would take each other's sockets."""
        import ray

        self._begin(
            "--head", f"--port={self._port}", "--include-dashboard=false", f"--temp-dir={self._scratch}"
        )
        _wait_until(self._head_listens)
        ray.init(self.address, logging_level="ERROR")
        for _ in range(nodes - 1):
            self.add()

    def add(self) -> None:
        """One more node."""
        known = set(_alive())
        joins = f"--address={self.address}"
        if self.why_not_separate is not None:
            self._begin(joins)
        else:
            place = next(self._places)
            self._begin(joins, f"--node-ip-address={place.address}", where=place)
        _wait_until(lambda: bool(_alive().keys() - known))

    def take_away(self, node: str) -> None:
        """End a node, by its id, with everything on it and without a word."""
        name = next(each for each in _alive()[node]["Resources"] if each in self._processes)
        sessions.end([self._processes.pop(name)], seconds=0.0)

    def close(self) -> None:
        import ray

        ray.shutdown()
        _set_mode(self._mode_before)
        sessions.end(reversed(self._processes.values()), seconds=0.0)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _begin(self, *options: str, where: Place | None = None) -> None:
        name = f"number {len(self._processes)} at {time.monotonic()}"
        inside = [] if where is None else ["ip", "netns", "exec", where.namespace]
        called = f"--resources={json.dumps({name: 1})}"
        log = Path(self._scratch) / f"start-{len(self._processes)}.log"
        process = sessions.start([*inside, *_START, *_SMALL, *_MANY_ON_ONE_MACHINE, called, *options], log)
        self._processes[name] = sessions.identity(process.pid)

    def _head_listens(self) -> bool:
        with socket.socket() as knock:
            return knock.connect_ex((self.address.rpartition(":")[0], self._port)) == 0


@contextmanager
def ray_nodes(nodes: int, spares: int) -> Iterator[RayNodes]:
    """So many nodes, and room for more."""
    why_not = networks.why_not()
    if why_not is not None:
        yield from _running(RayNodes([], why_not), nodes)
        return
    with networks.machines(nodes - 1 + spares) as (_, places):
        yield from _running(RayNodes(places, None), nodes)


def _running(made: RayNodes, nodes: int) -> Iterator[RayNodes]:
    try:
        made.start(nodes)
        yield made
    finally:
        made.close()


def _set_mode(mode: str | None) -> None:
    """Say how Ray's processes, this one too, know each other; None: as Ray chooses."""
    if mode is None:
        del os.environ[_MODE]
    else:
        os.environ[_MODE] = mode
    read_variables_again()


def _alive() -> dict[str, Any]:
    import ray

    return {each["NodeID"]: each for each in ray.nodes() if each["Alive"]}


def _wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not what():
        assert time.monotonic() < deadline, "Ray's nodes did not come up"
        time.sleep(0.1)
