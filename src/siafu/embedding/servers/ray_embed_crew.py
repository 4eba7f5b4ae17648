"""RayEmbedCrew: servers of embeddings as Ray actors."""

import logging
import os
from typing import Any

from siafu.cluster.on_ray.ray_actors import RayActors, own_threads, ray
from siafu.cluster.post.member import Member
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


class _EmbedActor:
    """The actor in a server's process."""

    def __init__(self, address: Address, life: int, common: dict[str, Any]) -> None:
        logging.getLogger("siafu").setLevel(logging.WARNING)
        self._node = ray.get_runtime_context().get_node_id()
        plan = EmbedPlan.read(common)
        threads = plan.threads or own_threads(self._node, plan.servers)
        os.environ["SIAFU_THREADS"] = str(threads)  # Ray sets OMP_NUM_THREADS to 1
        from siafu.embedding.servers.embed_station import EmbedStation

        self._station = EmbedStation(address, life, ray.util.get_node_ip_address(), plan)

    def hello(self) -> tuple[Member, str, str]:
        member = self._station.post.member
        return member, self._node, f"{member.machine}, process {os.getpid()}"

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the station, by name."""
        return getattr(self._station, method)(*arguments)

    def wait(self) -> None:
        """Return when the server is over; another thread of the actor answers meanwhile."""
        self._station.wait()
