"""RayActors: a run's servers as Ray actors. Ray places, starts, watches and ends them; rows never pass through it."""

import atexit
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from siafu.base.errors import BadInput, SiafuError
from siafu.cluster.crew import Loss, ServerLost
from siafu.cluster.on_ray.exit_message import ExitMessage
from siafu.cluster.on_ray.ray_head import RayHead
from siafu.cluster.on_ray.reachable import reachable
from siafu.cluster.post.member import Member
from siafu.cluster.stations.graph_station import Bounds, Share
from siafu.graph.partition.reads import Reads
from siafu.launch.look import connect, import_ray
from siafu.pipeline.ids import Address
from siafu.pipeline.setup import Setup

ray: Any = import_ray()

ROOM_SECONDS = 30.0
"""Seconds that a server may wait for a machine with room for it."""

CALL_SECONDS = 300.0
"""Seconds that a server may take to answer."""

_LOST = (
    "siafu: the process that drove the run was ended, by Ray if the cluster at {} is gone: "
    "start the cluster again, and go on with --resume"
)


class RayServer:
    """A server in an actor; see `crew.Server`.

    serving: Ray's reference to its end; None: it has not joined
    """

    def __init__(self, address: Address, life: int, actor: Any) -> None:
        self.address, self.life, self._actor = address, life, actor
        self.serving: Any = None
        self._member: Member | None = None
        self.node = self.where = ""

    @property
    def machine(self) -> str:
        return self.node

    def hello(self, seconds: float) -> None:
        """Wait until it is there."""
        self.greet(self._actor.hello.remote(), seconds)

    def greet(self, hello: Any, seconds: float) -> None:
        """Wait for its greeting: who it is, and where."""
        self._member, self.node, self.where = self._get(hello, seconds)

    @property
    def member(self) -> Member:
        assert self._member is not None, "it has said hello"
        return self._member

    def share(self) -> Share:
        return self._ask("share")  # type: ignore[no-any-return]

    def reads(self, bounds: Sequence[Bounds]) -> Reads:
        return self._ask("reads", bounds)  # type: ignore[no-any-return]

    def join(self, setup: Setup | None, members: Sequence[Member]) -> None:
        self._ask("join", setup, list(members))
        self.serving = self._actor.wait.remote()

    def stop(self) -> None:
        self._actor.ask.remote("stop")

    def kill(self) -> None:
        ray.kill(self._actor)

    def _ask(self, method: str, *arguments: Any) -> Any:
        return self._get(self._actor.ask.remote(method, *arguments), CALL_SECONDS)

    def _get(self, answer: Any, seconds: float) -> Any:
        return answered(self.address, answer, seconds)


def answered(address: Address, answer: Any, seconds: float) -> Any:
    """The answer of a server's actor. `ServerLost` if it is gone; errors of its own are ours."""
    try:
        return ray.get(answer, timeout=seconds)
    except ray.exceptions.RayTaskError as error:
        cause = error.as_instanceof_cause()
        if isinstance(cause, SiafuError):
            kind = BadInput if isinstance(cause, BadInput) else SiafuError
            raise kind(str(error.cause)) from None
        raise SiafuError(f"{address} failed: {_one_line(error)}") from error
    except ray.exceptions.GetTimeoutError:
        raise ServerLost(f"{address} did not answer in {seconds:.0f} s") from None
    except ray.exceptions.RayError as error:
        raise ServerLost(_one_line(error)) from error


class RayActors:
    """Actors of one run, spread over a cluster's nodes by a placement group: a core for each graph server.

    address: of the cluster; "auto": the one that runs on this machine
    kind:    the actors' class; made with a server's address, its life, what `_shared` gives, and what `_own` gives
    """

    def __init__(self, address: str, kind: type) -> None:
        if not import_ray().is_initialized():
            connect(address)
        self.machine: str = ray.util.get_node_ip_address()
        self._head = RayHead(ray.get_runtime_context().gcs_address)
        self._exit_message = ExitMessage(_LOST.format(ray.get_runtime_context().gcs_address))
        self._servers: dict[Address, RayServer] = {}
        self._group: Any = None
        self._lock = threading.Lock()
        self._closed = False
        self._made = ray.remote(kind)
        self._common: Any = None

    def _shared(self) -> Any:
        """Arguments that all actors are made with."""
        raise NotImplementedError

    def _own(self, address: Address) -> tuple[Any, ...]:
        """Further arguments of one actor."""
        return ()

    def employ(self, servers: Iterable[tuple[Address, int]]) -> dict[Address, RayServer]:
        """Start servers, each with the number of its life."""
        wanted = list(servers)
        self._common = ray.put(self._shared())
        graph = [address for address, _ in wanted if address.role == "graph"]
        self._group = ray.util.placement_group([{"CPU": 1}] * len(graph), strategy="SPREAD")
        try:
            ray.get(self._group.ready(), timeout=ROOM_SECONDS)
        except ray.exceptions.GetTimeoutError:
            raise _no_room(len(graph)) from None
        for place, (address, life) in enumerate(wanted):
            bundle = place % len(graph)
            strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=bundle
            )
            self._servers[address] = self._start(address, life, strategy)
        for server in self._servers.values():
            try:
                server.hello(ROOM_SECONDS + CALL_SECONDS)
            except ServerLost as lost:
                raise SiafuError(f"{server.address} did not start: {lost}") from lost
        return dict(self._servers)

    def replace(self, server: Address, life: int, *, elsewhere: bool) -> RayServer:
        """Start a server in place of a lost one; see `crew.Crew`."""
        chosen = self._place_for(server, elsewhere=elsewhere)
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(chosen, soft=True)
        with self._lock:
            if self._closed:
                raise ServerLost("the run is over")
            fresh = self._servers[server] = self._start(server, life, strategy, num_cpus=0)
        fresh.hello(ROOM_SECONDS + CALL_SECONDS)
        return fresh

    def _place_for(self, server: Address, *, elsewhere: bool) -> str:
        """The node with the fewest servers of this run; of equals the one where it was."""
        lost = self._servers[server].node
        crowd = Counter(each.node for address, each in self._servers.items() if address != server)
        deadline = time.monotonic() + ROOM_SECONDS
        while True:
            nodes = ray.nodes()
            alive: list[str] = reachable(nodes) or [each["NodeID"] for each in nodes if each["Alive"]]
            others = [each for each in alive if each != lost]
            if choices := (others or alive) if elsewhere else alive:
                return min(choices, key=lambda node: (crowd[node], node != lost))
            if time.monotonic() > deadline or self._closed:
                raise SiafuError(
                    f"no machine is left for {server} after {ROOM_SECONDS:.0f} s: add one to the cluster, and go on "
                    "with --resume"
                )
            time.sleep(0.5)

    def losses(self) -> list[Loss]:
        """Servers that ended since the last call."""
        self._head.check()
        waiting = {each.serving: each for each in self._servers.values() if each.serving is not None}
        if not waiting:
            return []
        ended, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        found = []
        for reference in ended:
            server = waiting[reference]
            server.serving = None
            found.append(_loss(server, reference))
        return found

    def close(self) -> None:
        """End all processes."""
        self._close()
        self._exit_message.withdraw()

    def _close(self) -> None:
        if self._head.is_gone:
            atexit.register(_end_before_ray)
            return
        if not ray.is_initialized():
            return
        deadline = time.monotonic() + 2.0
        serving = [each.serving for each in self._servers.values() if each.serving is not None]
        if serving:
            ray.wait(serving, num_returns=len(serving), timeout=max(0.0, deadline - time.monotonic()))
        with self._lock:
            self._closed = True
            for server in self._servers.values():
                server.kill()
        if self._group is not None:
            ray.util.remove_placement_group(self._group)
        self._group = None

    def _start(self, address: Address, life: int, strategy: Any, num_cpus: int | None = None) -> RayServer:
        return RayServer(address, life, self._actor(address, life, strategy, num_cpus))

    def _actor(self, address: Address, life: int | None, strategy: Any, num_cpus: int | None = None) -> Any:
        """Start an actor; life: None: a warm copy."""
        cpus = num_cpus if num_cpus is not None else int(address.role == "graph")
        settings = {"num_cpus": cpus, "max_concurrency": 8, "max_restarts": 0}
        if num_cpus == 0:
            # Ray starts an actor that needs nothing by way of any node, which may be gone; one that needs a byte, by its own.
            settings["memory"] = 1
        name = f"siafu-{address}-{life or 'warm'}-{os.urandom(4).hex()}"
        made = self._made.options(scheduling_strategy=strategy, name=name, **settings)
        return made.remote(address, life, self._common, *self._own(address))


def _end_before_ray() -> None:
    """Without its head Ray waits for a minute when a process ends, and then crashes it. The run has failed, and said why."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def own_threads(node: str, servers: int) -> int:
    """A server's share of its node's cores."""
    nodes = [each for each in ray.nodes() if each["Alive"]]
    cores = next((each["Resources"].get("CPU", 1) for each in nodes if each["NodeID"] == node), 1)
    return max(1, int(cores) // -(-servers // len(nodes)))


def _loss(server: RayServer, reference: Any) -> Loss:
    try:
        ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        given = isinstance(error.cause, BadInput)
        return Loss(server.address, server.life, _one_line(error.cause), final=True, given=given)
    except ray.exceptions.RayError as error:
        return Loss(server.address, server.life, _one_line(error))
    return Loss(server.address, server.life, "it ended")


def _no_room(servers: int) -> SiafuError:
    cores = ray.cluster_resources().get("CPU", 0)
    return SiafuError(
        f"the cluster has no room for {servers} graph servers, one core each, after {ROOM_SECONDS:.0f} s "
        f"({cores:.0f} cores in all, {ray.available_resources().get('CPU', 0):.0f} free): add machines or ask for fewer"
    )


def _one_line(error: BaseException | None, limit: int = 300) -> str:
    """An error on one line: of a traceback in words its last line."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    told = lines[-1] if "Traceback" in str(error) or "creation task" in lines[0] else " ".join(lines[:2])
    return " ".join(told.split())[:limit]
