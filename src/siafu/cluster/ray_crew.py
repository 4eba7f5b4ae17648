"""RayCrew: the graph servers and weight servers of a run as Ray actors."""

import logging
import os
from typing import Any

from torch import nn

from siafu.cluster.member import Member
from siafu.cluster.ray_actors import RayActors, own_threads, ray
from siafu.pipeline.ids import Address
from siafu.runtime.lambdas import Lambdas
from siafu.server.plan import ServerPlan, WeightPlan


class RayCrew(RayActors):
    """Actors of one training; see `crew.Crew`.

    address: of the cluster; "auto": the one that runs on this machine
    lambdas: of all graph servers together; None: they compute tensor tasks themselves
    threads: of each graph server; None: its share of its node's cores
    memory:  a size that each graph server's process may take; None: what is free there
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
    ) -> None:
        super().__init__(address, _Actor)
        self._plan, self._model, self._lambdas, self._threads = plan, model, lambdas, threads
        self._memory = memory

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
        )

    def _own(self, address: Address) -> tuple[Any, ...]:
        plan = self._plan
        weights = WeightPlan(plan.weights, plan.groups, plan.settings)
        return None if address.role == "graph" else weights, self._threads


class _Actor:
    """The actor in a server's process."""

    def __init__(self, address: Address, life: int, common: Any, weights: Any, threads: int | None) -> None:
        logging.getLogger("siafu").setLevel(logging.WARNING)
        context = ray.get_runtime_context()
        self._node = context.get_node_id()
        machine = ray.util.get_node_ip_address()
        source, layout, partition, model, options, counts, lambdas, savings, memory = common
        if address.role == "graph":
            from siafu.cluster.graph_station import GraphStation
            from siafu.graph.remote import open_store

            threads = threads or own_threads(self._node, partition.parts)
            os.environ["SIAFU_THREADS"] = str(threads)  # Ray sets OMP_NUM_THREADS to 1
            graph = open_store(source)
            if layout and graph.layout is not None:
                graph = graph.layout
            plan = ServerPlan.of(graph, model, options, partition, interval_counts=counts).saving(savings)
            self._station: Any = GraphStation(address, life, machine, plan, threads, lambdas, memory)
        else:
            from siafu.cluster.station import WeightStation

            self._station = WeightStation(address, life, machine, weights)

    def hello(self) -> tuple[Member, str, str]:
        member = self._station.post.member
        return member, self._node, f"{member.machine}, process {os.getpid()}"

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the station, by name."""
        return getattr(self._station, method)(*arguments)

    def wait(self) -> None:
        """Return when the server is over; another thread of the actor answers meanwhile."""
        self._station.wait()
