"""RayEmbedCrew: servers of embeddings as Ray actors."""

import logging
import os
from typing import Any

from siafu.cluster.on_ray.ray_actors import RayActors, own_threads, ray
from siafu.cluster.on_ray.station_actor import StationActor
from siafu.embedding.servers.server_plan import EmbedPlan
from siafu.pipeline.ids import Address


class RayEmbedCrew(RayActors):
    """Actors of one run; see `DrivenCrew`.

    address: of the cluster; "auto": the one that runs on this machine
    """

    def __init__(self, address: str, plan: EmbedPlan) -> None:
        super().__init__(address, _EmbedActor)
        self._plan = plan

    def _shared(self) -> Any:
        return self._plan.as_json()


class _EmbedActor(StationActor):
    """The actor in a server's process."""

    def __init__(self, address: Address, life: int, common: dict[str, Any]) -> None:
        logging.getLogger("siafu").setLevel(logging.WARNING)
        super().__init__()
        plan = EmbedPlan.read(common)
        threads = plan.threads or own_threads(self._node, plan.servers)
        os.environ["SIAFU_THREADS"] = str(threads)  # Ray sets OMP_NUM_THREADS to 1
        from siafu.embedding.servers.embed_station import EmbedStation

        self._station = EmbedStation(address, life, ray.util.get_node_ip_address(), plan)
