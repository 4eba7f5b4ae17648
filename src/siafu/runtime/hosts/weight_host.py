"""WeightHost: drives a weight server's machine. Weights come to it with `Begin`, gradients from graph servers."""

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from siafu.pipeline.events import (
    Begin,
    BestKept,
    GradientArrived,
    NormsTold,
    StateMade,
    TakenOver,
    UpdateDone,
    WeightsGranted,
    WeightsMade,
)
from siafu.pipeline.ids import Address, Epoch, IntervalId, PhaseId, Version
from siafu.pipeline.instructions import (
    Accumulate,
    FreeWeights,
    Instruction,
    KeepBest,
    KeepWeights,
    Restore,
    Send,
    TellNorms,
    Update,
)
from siafu.pipeline.weight_server import WeightServer, WeightServerCounts
from siafu.runtime.hosts.host import Host, Watch, unwatched
from siafu.runtime.letter import Letter, named
from siafu.runtime.post import Post
from siafu.runtime.requests import ReportWanted, WeightsSent, WeightsWanted
from siafu.weights.store import WeightStore

WEIGHT, STATE, HELD = "weight/", "state/", "held/"


class Updates(Protocol):
    """Runs updates, which make a version from the one before: at once, or on a thread."""

    def __call__(self, version: Version, make: Callable[[], None], then: Callable[[], None]) -> None: ...


def at_once(version: Version, make: Callable[[], None], then: Callable[[], None]) -> None:
    """Run an update in the calling thread."""
    make()
    then()


class WeightHost(Host):
    """One weight server.

    updates: runs updates
    """

    def __init__(
        self,
        machine: WeightServer,
        post: Post,
        store: WeightStore,
        updates: Updates = at_once,
        watch: Watch = unwatched,
    ) -> None:
        super().__init__(machine.address, machine, post, watch)
        self._server, self._store, self._updates = machine, store, updates
        self._arrived: dict[tuple[Epoch, PhaseId, IntervalId], dict[str, Tensor]] = {}
        self._given: set[tuple[Address, Version]] = set()
        self._best: dict[str, Tensor] = {}

    def _take(self, letter: Letter) -> None:
        if isinstance(gradient := letter.event, GradientArrived):
            self._arrived[gradient.epoch, gradient.phase, gradient.interval] = letter.owned()

    def _pass_on(self, letter: Letter) -> None:
        match letter.event:
            case ReportWanted() as wanted:
                self.answer(wanted)
            case WeightsWanted() as wanted:
                self._give(wanted)
            case GradientArrived() as gradient:
                self.deliver(gradient, letter)
                self._drop_unless_awaited(gradient)
            case TakenOver() as taken:
                with self.lock:
                    self._given = {each for each in self._given if each[0] != taken.server}
                self.deliver(taken, letter)
            case event:
                self.deliver(event, letter)

    def _drop_unless_awaited(self, gradient: GradientArrived) -> None:
        """Let go of a gradient that came before."""
        with self.lock:
            key = gradient.epoch, gradient.phase, gradient.interval
            if key in self._arrived and not self._server.awaits(*key):
                del self._arrived[key]

    def _give(self, wanted: WeightsWanted) -> None:
        with self.lock:
            # One that comes late is answered already: its version may have been let go of since.
            if wanted.version not in self._store.versions:
                return
            self._given.add((wanted.sender, wanted.version))
            sent = WeightsSent(wanted.version)
            self.send(wanted.sender, sent, self._store.weights(wanted.version))
        self.post.flush()

    def _obey(self, what: Instruction, came: Letter) -> None:
        match what:
            case Send():
                self.send(what.to, what.message, self._beside(what))
            case Accumulate():
                gradients = self._arrived.pop((what.epoch, what.phase, what.interval))
                self._store.accumulate(what.version, gradients)
            case TellNorms():
                self._tell_norms(what.version)
            case Update():
                self._update(what)
            case KeepWeights():
                self._store.keep(what.version, came.owned())
            case FreeWeights():
                self._store.free(what.version)
                self._given = {each for each in self._given if each[1] != what.version}
            case Restore():
                self._restore(what, came)
            case KeepBest():
                self._best = self._store.weights(what.version)
            case _:
                raise NotImplementedError(f"a weight server cannot {what}")

    def _tell_norms(self, version: Version) -> None:
        told = NormsTold(self._server.server, version, self._store.norms(version))
        for home in sorted(self._server.setup.parts - {self._server.server}):
            self.send(Address("weight", home), told)
        self.deliver(told)

    def _update(self, what: Update) -> None:
        done, stamp = UpdateDone(what.version), self._server.fences.stamp(self.address)
        self._updates(
            what.version,
            lambda: self._store.update(what.version, what.rates, what.norms),
            lambda: self.deliver(done, stamp=stamp),
        )

    def _restore(self, what: Restore, came: Letter) -> None:
        assert isinstance(came.event, Begin)
        self._server.counts = WeightServerCounts()
        self._arrived.clear()
        self._given.clear()
        self._store.gradients_applied = 0
        held: dict[int, dict[str, Tensor]] = {} if what.held is None else {what.held: came.owned(HELD)}
        self._store.restore(what.version, came.owned(WEIGHT), came.owned(STATE), held)

    def _beside(self, send: Send) -> dict[str, Tensor]:
        """Tensors that go with a message. A version goes to a graph server once."""
        match send.message:
            case WeightsMade() as made:
                return self._store.part(made.version)
            case StateMade() as made:
                return named(WEIGHT, self._store.part(made.version)) | named(STATE, self._store.state())
            case WeightsGranted() as granted if send.to.role == "graph":
                if (send.to, granted.version) in self._given:
                    return {}
                self._given.add((send.to, granted.version))
                return self._store.weights(granted.version)
            case BestKept():
                return self._best
        return {}

    def _report(self, wanted: ReportWanted) -> tuple[dict[str, Any], dict[str, Any]]:
        counters = {
            "weight_versions_peak": self._server.counts.versions_peak,
            "gradients_applied": self._store.gradients_applied,
        }
        if wanted.version not in self._store.versions:
            return counters, {}
        whole = named(WEIGHT, self._store.weights(wanted.version))
        return counters, whole | named(STATE, self._store.state())
