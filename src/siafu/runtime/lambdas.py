"""Lambdas: options of a run whose tensor tasks are computed by Lambdas."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from siafu.server.remote import TaskSettings
from siafu.serverless.control.autotuner import first_count
from siafu.serverless.control.controller_options import ControllerOptions
from siafu.serverless.control.places import ONE_PLACE, Places
from siafu.serverless.control.tuning import Tuning
from siafu.serverless.inbox.dispatch import Dispatch
from siafu.serverless.platforms.platform import LocalPlatform, Platform
from siafu.wire.messages import MOST_PLACES
from siafu.wire.tensors import Tensors


@dataclass(frozen=True, slots=True)
class Lambdas:
    """Options of a run's Lambdas.

    count:     the most Lambdas; None: the autotuner chooses
    one_a_core: `count` is that of this machine's cores, and servers elsewhere have as many as they have threads
    platform:  where they run
    first:     number of Lambdas that the autotuner begins with; None: one an interval
    tasks:     number of tasks after which an invocation returns; 0: when there are no more
    places:    the fewest tasks that each may have at once: while it computes one, rows of the next travel. It has more if
               they are small (`Places`); 1: never more
    streaming: compute a task's first rows while the others arrive
    rematerialise: compute in the backward pass again what the forward pass had; else it travels to and fro
    stash:     a Lambda keeps what a forward task made for the backward task, if that comes to it
    keep_mb:   memory that each may use for rows that never change and for stashes; None: half of its memory
    fused:     a task computes all that lies between two gathers; else two tasks share it
    floor:     seconds that a task may take without being late
    start:     seconds that a Lambda may be silent before its first task and between two
    """

    count: int | None
    platform: Platform = field(default_factory=LocalPlatform)
    one_a_core: bool = False
    first: int | None = None
    tasks: int = 0
    places: int = 3
    streaming: bool = True
    rematerialise: bool = True
    fused: bool = True
    stash: bool = True
    keep_mb: int | None = None
    floor: float = 1.0
    start: float = 10.0

    def __str__(self) -> str:
        """Where tensor tasks are computed, for people."""
        many = "1 Lambda" if self.count == 1 else f"{self.count} Lambdas"
        count = "as many Lambdas as prove best" if self.count is None else f"at most {many}"
        return f"tensor tasks on {count} ({self.platform.where})"

    def among_servers(self) -> str:
        """Where tensor tasks are computed if graph servers on many machines share the Lambdas, for people."""
        count = "as many as prove best" if self.count is None else f"at most {self.count} in all"
        each = "one a core" if self.one_a_core else count
        return f"tensor tasks on Lambdas of each graph server: {each} ({self.platform.name})"

    def share(self, server: int, servers: int, host: str, threads: int) -> "Lambdas":
        """Options for one of several graph servers, which Lambdas reach at `host`."""
        count = self.count
        if count is not None:
            count = threads if self.one_a_core else max(1, count // servers + (server < count % servers))
        first = None if self.first is None else max(1, self.first // servers)
        return replace(self, count=count, platform=self.platform.share(host, servers), first=first)

    @property
    def settings(self) -> TaskSettings:
        """How tensor tasks are cut for Lambdas, and what they send."""
        return TaskSettings(self.rematerialise, self.fused, self.stash)

    def dispatch(
        self,
        intervals: int,
        held: Callable[[int], Tensors | None],
        failed: Callable[[BaseException], None],
    ) -> Dispatch:
        """A dispatch for the tasks of so many intervals, not yet started."""
        tuning, platform = None, self.platform
        count = self.count
        if count is None:
            count = min(self.first or first_count(intervals, platform.most), platform.most)
            tuning = Tuning(count, platform.most)
        most = platform.most if tuning else count
        spares = max(1, most // 4)
        places = (
            ONE_PLACE
            if 1 in (self.tasks, self.places)
            else Places(self.places, max(MOST_PLACES, self.places))
        )
        options = ControllerOptions(
            platform.where,
            count,
            spares,
            floor=self.floor,
            start=self.start,
            lifetime=platform.lifetime,
            places=places.most,
        )
        return Dispatch(
            platform.invoker(most + spares, warm=count),
            options,
            platform.prices,
            held,
            failed,
            tuning=tuning,
            host=platform.host,
            listen=platform.listen,
            tasks_per_invocation=self.tasks,
            streaming=self.streaming,
            keep_bytes=(platform.memory_mb // 2 if self.keep_mb is None else self.keep_mb) << 20,
            places=places,
        )
