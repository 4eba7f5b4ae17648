"""StationActor: the actor in a server's process, as `RayActors` calls it."""

import os
from typing import Any

from siafu.cluster.on_ray.ray_actors import ray
from siafu.cluster.post.member import Member


class StationActor:
    """An actor whose station is the server. Subclasses make the station; Ray makes the subclasses."""

    def __init__(self) -> None:
        self._node: str = ray.get_runtime_context().get_node_id()
        self._station: Any = None

    def hello(self) -> tuple[Member, str, str]:
        """Who it is, and where: its member, its node, and both in words."""
        member = self._station.post.member
        return member, self._node, f"{member.machine}, process {os.getpid()}"

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the station, by name."""
        return getattr(self._station, method)(*arguments)

    def wait(self) -> None:
        """Return when the server is over; another thread of the actor answers meanwhile."""
        self._station.wait()
