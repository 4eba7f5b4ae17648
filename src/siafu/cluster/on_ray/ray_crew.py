"""RayCrew: the graph servers and weight servers of a run as Ray actors."""

import logging
import os
import threading
from dataclasses import replace
from typing import Any

from torch import nn

from siafu.cluster.crew import ServerLost
from siafu.cluster.on_ray.ray_actors import RayActors, RayServer, own_threads, ray
from siafu.cluster.on_ray.ray_seat import RaySeat
from siafu.cluster.on_ray.station_actor import StationActor
from siafu.cluster.post.member import Member
from siafu.cluster.replacements.placement import MachineName
from siafu.cluster.stations.aside import run_aside
from siafu.pipeline.ids import Address
from siafu.runtime.lambdas import Lambdas
from siafu.server.plan import ServerPlan, WeightPlan


class RayCrew(RayActors):
    """Actors of one training; see `crew.Crew`.

    address: of the cluster; "auto": the one that runs on this machine
    lambdas: of all graph servers together; None: they compute tensor tasks themselves
    threads: of each graph server; None: its share of its node's cores
    memory:  a size that each graph server's process may take; None: what is free there
    advised: whether each graph server has an advisor, with what is known of its part on its kind of machine
    """

    def __init__(
        self,
        address: str,
        plan: ServerPlan,
        model: nn.Module,
        lambdas: Lambdas | None = None,
        *,
        threads: int | None = None,
        memory: str | None = None,
        advised: bool = False,
    ) -> None:
        super().__init__(address, _Actor)
        self._plan, self._model, self._lambdas, self._threads = plan, model, lambdas, threads
        self._memory, self._advised = memory, advised

    def _shared(self) -> Any:
        plan = self._plan
        assert plan.graph.source is not None, "a store's path was checked"
        return (
            plan.graph.source,
            plan.graph.renumbered is not None,
            plan.partition,
            self._model,
            plan.options,
            list(plan.interval_counts),
            self._lambdas,
            plan.savings,
            self._memory,
            self._advised,
        )

    def _own(self, address: Address) -> tuple[Any, ...]:
        plan = self._plan
        weights = WeightPlan(plan.weights, plan.groups, plan.settings)
        return None if address.role == "graph" else weights, self._threads

    def machines(self) -> list[MachineName]:
        """Nodes with a core or more; see `crew.Crew`."""
        return [
            each["NodeID"] for each in ray.nodes() if each["Alive"] and each["Resources"].get("CPU", 0) >= 1
        ]

    def prepare(self, server: Address, machine: MachineName, *, aside: bool) -> RaySeat:
        """Make a warm copy of a server on a node; see `crew.Crew`."""
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(machine, soft=False)
        with self._lock:
            if self._closed:
                raise ServerLost("the run is over")
            actor = self._actor(server, None, strategy, num_cpus=0)
        return RaySeat(server, actor, self._took_in, aside=aside)

    def _took_in(self, server: RayServer) -> None:
        with self._lock:
            if self._closed:
                raise ServerLost("the run is over")
            self._servers[server.address] = server


class _Actor(StationActor):
    """The actor in a server's process; life: None: it is a warm copy, made by `prepare`."""

    def __init__(
        self, address: Address, life: int | None, common: Any, weights: Any, threads: int | None
    ) -> None:
        logging.getLogger("siafu").setLevel(logging.WARNING)
        super().__init__()
        self._parts = address, life, common, weights, threads
        self._taken_in = threading.Event()
        if life is not None:
            self._station = self._make_station()

    def _make_station(self) -> Any:
        address, life, common, weights, threads = self._parts
        machine = ray.util.get_node_ip_address()
        source, layout, partition, model, options, counts, lambdas, savings, memory, advised = common
        if address.role == "graph":
            from siafu.cluster.stations.graph_station import GraphStation
            from siafu.graph.stores.remote import open_store
            from siafu.server.run_advisor import advisor_of

            threads = threads or own_threads(self._node, partition.parts)
            os.environ["SIAFU_THREADS"] = str(threads)  # Ray sets OMP_NUM_THREADS to 1
            graph = open_store(source)
            if layout and graph.layout is not None:
                graph = graph.layout
            plan = ServerPlan.of(graph, model, options, partition, interval_counts=counts).saving(savings)
            if advised:
                plan = replace(plan, advisor=advisor_of(graph.replace(source=source), "on", options.epochs))
            return GraphStation(address, life, machine, plan, threads, lambdas, memory)
        from siafu.cluster.stations.station import WeightStation

        return WeightStation(address, life, machine, weights)

    def prepare(self, aside: bool) -> tuple[MachineName, str]:
        """Be ready to take a server's place; aside: at a low priority."""
        self._station = run_aside(self._make_warm) if aside else self._make_warm()
        return self._node, f"{self._station.machine}, process {os.getpid()}"

    def _make_warm(self) -> Any:
        station = self._make_station()
        station.warm_up()
        return station

    def take_in(self, life: int) -> tuple[Member, str, str]:
        """Be the server in this life."""
        self._station.take_in(life)
        self._taken_in.set()
        return self.hello()

    def until_taken_in(self) -> None:
        """Return when it is a server; another thread of the actor answers meanwhile."""
        self._taken_in.wait()
