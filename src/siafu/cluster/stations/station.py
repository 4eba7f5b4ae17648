"""Station: one server of a cluster as a process of its own: its post, its host, and its end."""

import queue
from collections.abc import Callable, Iterable

from siafu.base.errors import BadInput
from siafu.cluster.post.member import Member
from siafu.cluster.post.post import WirePost
from siafu.cluster.post.requests import (
    Alive,
    Departed,
    Leaving,
    LogLine,
    Replaced,
    ServerFailed,
    ServerUnreachable,
    StateTold,
    StateWanted,
)
from siafu.cluster.stations.metadata import SpotNotice
from siafu.cluster.stations.spot import SpotWatch
from siafu.pipeline.events import Begin, Event
from siafu.pipeline.ids import RUN, Address, Life
from siafu.pipeline.setup import Setup
from siafu.pipeline.weight_server import WeightServer
from siafu.runtime.hosts.host import Host
from siafu.runtime.hosts.weight_host import WeightHost
from siafu.runtime.letter import Letter
from siafu.runtime.story import Story, fit
from siafu.weights.store import WeightStore
from siafu.wire.refusal import Refusal

DRIVER_SILENT_SECONDS = 60.0
"""A server that hears nothing of the driver for so long ends: nobody waits for it."""

_LAST_LINES = 50
_MOST_WAITING = 50


class Station:
    """A server that runs until it is told to stop, fails, or hears nothing from the driver.

    life:        None: it is a warm copy, and waits for `take_in`
    alone_after: seconds without a letter from the driver until it ends
    """

    post: WirePost

    def __init__(
        self, address: Address, life: int | None, machine: str, *, alone_after: float = DRIVER_SILENT_SECONDS
    ) -> None:
        self.address, self.machine, self._alone_after = address, machine, alone_after
        if life is not None:
            self.take_in(life)
        self._host: Host | None = None
        self._story = Story()
        self._failing = False
        self._ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._spot = SpotWatch(self._leave)

    def warm_up(self) -> None:
        """Do beforehand what the first epoch would have to wait for."""

    def take_in(self, life: int) -> None:
        """Be the server in this life: others can reach it from now on."""
        self.post = WirePost(self.address, life, self.machine, self._hear, self.fail, self._stuck)

    def start(self, host: Host, members: Iterable[Member]) -> None:
        """Begin to receive letters."""
        self._host = host
        self.post.meet(members)
        self.post.start()
        self._spot.start()
        self.say(f"started, life {self.post.member.life}, {self.post.member.far}")

    def wait(self) -> None:
        """Wait until the server was told to stop, has failed, or is alone."""
        while True:
            try:
                ended = self._ended.get(timeout=1.0)
            except queue.Empty:
                if self.post.silence(RUN) < self._alone_after:
                    continue
                ended = None
            self.close()
            if ended is not None:
                raise ended
            return

    def stop(self) -> None:
        """End, once all letters are acknowledged."""
        self._ended.put(None)

    def close(self) -> None:
        self._spot.stop()
        self.post.stop(1.0)

    def fail(self, error: BaseException) -> None:
        """Tell the driver that the server cannot go on, once: later failures follow from the first."""
        if self._failing:
            return
        self._failing = True
        given = isinstance(error, BadInput)
        why = " ".join(f"{type(error).__name__}: {error}".split())[:2000]
        if not given:
            self._tell_story()
        self._tell(ServerFailed(self.address, str(error) if given else why, given))
        self._ended.put(error)

    def say(self, text: str) -> None:
        """Write a line to the run's directory."""
        self._tell(LogLine(self.address, text))

    def _tell_story(self) -> None:
        """Write the last events and what waits to the run's directory."""
        waiting = [] if self._host is None else self._host.waiting()
        told = [*self._story.lines(_LAST_LINES), *(f"waits: {each}" for each in waiting[:_MOST_WAITING])]
        for line in told:
            self.say(fit(line))

    def _state(self, number: int) -> StateTold:
        busy = self.is_busy  # first: what it leads to would be counted below
        handled, waiting = (0, []) if self._host is None else (self._host.events, self._host.waiting())
        told = tuple(fit(each) for each in waiting[:_MOST_WAITING])
        return StateTold(self.address, number, handled, busy, told)

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that will lead to an event here or at another server."""
        return self._host is None or self._failing or self.post.has_unacknowledged(besides=RUN)

    def _tell(self, event: Event) -> None:
        self.post.send(RUN, Letter(event))

    def _hear(self, sender: Address, letter: Letter) -> None:
        match letter.event:
            case Alive():
                pass
            case Replaced() as replaced:
                self.post.meet([replaced.member])
            case Departed() as departed:
                self.post.forget(departed.address, departed.life)
            case StateWanted() as wanted:
                self._tell(self._state(wanted.number))
            case event:
                if isinstance(event, Begin):
                    self.say(f"incarnation {event.incarnation} begins after epoch {event.start.epoch}")
                self._hear_surely(sender, letter)

    def _hear_surely(self, sender: Address, letter: Letter) -> None:
        """Give a letter to the host. The post goes on when the host fails: it carries the reason."""
        if self._failing:
            return
        try:
            self._pass_on(sender, letter)
        except Refusal:
            raise
        except Exception as error:
            self.fail(error)

    def _pass_on(self, sender: Address, letter: Letter) -> None:
        assert self._host is not None
        self._host.hear(sender, letter)

    def _leave(self, notice: SpotNotice) -> None:
        self._tell(Leaving(self.address, str(notice)))

    def _stuck(self, member: Member, seconds: float) -> None:
        if member.address != RUN:
            self._tell(ServerUnreachable(self.address, member.address, member.life, seconds))


class WeightStation(Station):
    """A weight server.

    make_store: for a setup and a server's number
    """

    host_kind = WeightHost

    def __init__(
        self,
        address: Address,
        life: int | None,
        machine: str,
        make_store: Callable[[Setup, int], WeightStore],
        **options: float,
    ) -> None:
        super().__init__(address, life, machine, **options)
        self._make_store = make_store

    def join(self, setup: Setup, members: list[Member]) -> None:
        store = self._make_store(setup, self.address.index)
        machine = WeightServer(setup, self.address.index, Life(self.post.member.life))
        self.start(self.host_kind(machine, self.post, store, watch=self._story.note), members)
