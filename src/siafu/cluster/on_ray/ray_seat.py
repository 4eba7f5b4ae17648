"""RaySeat: a warm copy of a server in a Ray actor."""

from collections.abc import Callable, Sequence
from typing import Any

from siafu.cluster.crew import ServerLost
from siafu.cluster.on_ray.ray_actors import CALL_SECONDS, RayServer, answered, ray
from siafu.cluster.on_ray.reachable import reachable
from siafu.cluster.post.member import Member
from siafu.cluster.replacements.placement import MachineName
from siafu.cluster.stations.graph_station import Share
from siafu.pipeline.ids import Address
from siafu.pipeline.setup import Setup

TAKE_IN_SECONDS = 10.0
"""Seconds that a warm copy may take to answer when it is needed: longer, and a cold start is as good."""


class RaySeat:
    """An actor that has a server's part ready; see `crew.WarmSeat`.

    A call of the actor that returns when it is taken in tells of its end, too, without asking.
    """

    def __init__(
        self, address: Address, actor: Any, took_in: Callable[[RayServer], None], *, aside: bool
    ) -> None:
        """took_in: called with the server that it becomes"""
        self.address, self._actor, self._took_in = address, actor, took_in
        self.machine: MachineName
        self.machine, self.where = answered(address, actor.prepare.remote(aside), CALL_SECONDS)
        self._alive = actor.until_taken_in.remote()

    @property
    def is_there(self) -> bool:
        ended, _ = ray.wait([self._alive], timeout=0)
        return not ended

    def share(self) -> Share | None:
        if self.address.role == "weight":
            return None
        return answered(self.address, self._actor.ask.remote("share"), CALL_SECONDS)  # type: ignore[no-any-return]

    def run_ahead(self, life: int, setup: Setup, members: Sequence[Member]) -> Member:
        asked = self._actor.ask.remote("run_ahead", life, setup, list(members))
        return answered(self.address, asked, CALL_SECONDS)  # type: ignore[no-any-return]

    def take_in(self, life: int) -> RayServer:
        # Of two machines that are lost at once, one has the other's copies: its actors would be waited for.
        if not reachable(each for each in ray.nodes() if each["NodeID"] == self.machine):
            raise ServerLost("its machine cannot be reached")
        fresh = RayServer(self.address, life, self._actor)
        fresh.greet(self._actor.take_in.remote(life), TAKE_IN_SECONDS)
        self._took_in(fresh)
        return fresh

    def drop(self) -> None:
        ray.kill(self._actor)
