"""RaySampleCrew: servers of mini-batches as Ray actors."""

import logging
import os
from typing import Any

from torch import nn

from siafu.cluster.on_ray.ray_actors import RayActors, own_threads, ray
from siafu.cluster.on_ray.station_actor import StationActor
from siafu.graph.partition import Partition
from siafu.pipeline.ids import Address
from siafu.server.plan import ServerPlan


class RaySampleCrew(RayActors):
    """Actors of one training; see `DrivenCrew`.

    address:   of the cluster; "auto": the one that runs on this machine
    plan:      of the whole graph
    partition: which server has the features of a vertex
    memory:    a size that each server's process may take; None: what is free there
    """

    def __init__(
        self, address: str, plan: ServerPlan, model: nn.Module, partition: Partition, memory: str | None
    ) -> None:
        super().__init__(address, _SampleActor)
        self._plan, self._model, self._partition, self._memory = plan, model, partition, memory

    def _shared(self) -> Any:
        graph = self._plan.graph
        assert graph.source is not None, "a store's path was checked"
        renumbered = graph.renumbered is not None
        return graph.source, renumbered, self._model, self._plan.options, self._partition, self._memory


class _SampleActor(StationActor):
    """The actor in a server's process."""

    def __init__(self, address: Address, life: int, common: Any) -> None:
        logging.getLogger("siafu").setLevel(logging.WARNING)
        source, renumbered, model, options, partition, memory = common
        super().__init__()
        threads = own_threads(self._node, partition.parts)
        os.environ["SIAFU_THREADS"] = str(threads)  # Ray sets OMP_NUM_THREADS to 1
        from siafu.graph.stores.remote import open_store
        from siafu.sampling.sampled_plan import SampledPlan
        from siafu.sampling.servers.sample_station import SampleStation

        graph = open_store(source)
        if renumbered and graph.layout is not None:
            graph = graph.layout
        plan = ServerPlan.of(graph, model, options, Partition.whole(graph.num_vertices))
        parts = SampledPlan(plan, model, partition.parts)
        machine = ray.util.get_node_ip_address()
        self._station = SampleStation(address, life, machine, parts, partition, threads, memory)
