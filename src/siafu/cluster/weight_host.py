"""WeightHost: a weight server as a process of its own."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from siafu.base.errors import SiafuError
from siafu.cluster.host import Host, arrays, tensors_of
from siafu.cluster.letters import Letter
from siafu.cluster.member import Member
from siafu.cluster.requests import ReportWanted, WeightsSent, WeightsWanted
from siafu.pipeline.events import (
    Begin,
    BestKept,
    Event,
    GradientArrived,
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
    Update,
)
from siafu.pipeline.setup import Setup
from siafu.pipeline.weight_server import Counts, WeightServer
from siafu.weights.store import WeightStore
from siafu.wire.tensors import Array

WEIGHT, STATE = "weight/", "state/"


class WeightHost(Host):
    """A weight server. Weights come to it with `Begin`, gradients from graph servers, parts from its like.

    make_store: for a setup and a server's number
    """

    def __init__(
        self,
        address: Address,
        life: int,
        machine: str,
        make_store: Callable[[Setup, int], WeightStore],
        **options: float,
    ) -> None:
        super().__init__(address, life, machine, **options)
        self._make_store = make_store
        self._arrived: dict[tuple[Epoch, PhaseId, IntervalId], dict[str, Tensor]] = {}
        self._given: set[tuple[Address, Version]] = set()
        self._best: dict[str, Tensor] = {}

    def join(self, setup: Setup, members: list[Member]) -> None:
        self._store = self._make_store(setup, self.address.index)
        self._server = WeightServer(setup, self.address.index)
        self.start(self._server, members)

    def _begin(self, begin: Begin, letter: Letter) -> None:
        with self._lock:
            self._server.counts = Counts()
            self._store.gradients_applied = 0
            self._arrived.clear()
            self._given.clear()
        super()._begin(begin, letter)

    def _heard(self, sender: Address, event: Event, letter: Letter) -> None:
        if event.incarnation != self.incarnation:
            return
        match event:
            case WeightsWanted():
                self._give(event)
            case GradientArrived():
                with self._lock:
                    self._arrived[event.epoch, event.phase, event.interval] = tensors_of(letter.tensors)
                self.deliver(event, letter)
            case _:
                self.deliver(event, letter)

    def _give(self, wanted: WeightsWanted) -> None:
        with self._lock:
            if wanted.version not in self._store.versions:
                raise SiafuError(f"{wanted.sender} wants version {wanted.version}, which is not held for it")
            weights = arrays(self._store.weights(wanted.version))
            self._given.add((wanted.sender, wanted.version))
            self.send(wanted.sender, WeightsSent(self.incarnation, wanted.version), weights)

    def _obey(self, what: Instruction, came: Letter) -> None:
        match what:
            case Send():
                self.send(what.to, what.message, self._beside(what))
            case Accumulate():
                gradients = self._arrived.pop((what.epoch, what.phase, what.interval))
                self._store.accumulate(what.version, gradients)
            case Update():
                self._store.update(what.version)
                self._waiting.append((UpdateDone(self.incarnation, what.version), came))
            case KeepWeights():
                self._store.keep(what.version, tensors_of(came.tensors))
            case FreeWeights():
                self._store.free(what.version)
            case Restore():
                weights, state = (tensors_of(came.tensors, prefix) for prefix in (WEIGHT, STATE))
                self._store.restore(what.version, weights, state)
            case KeepBest():
                self._best = self._store.weights(what.version)
            case _:
                raise NotImplementedError(f"a weight server cannot {what}")

    def _beside(self, send: Send) -> dict[str, Array]:
        """The tensors that go with a message."""
        match send.message:
            case WeightsMade() as made:
                return arrays(self._store.part(made.version))
            case WeightsGranted() as granted if send.to.role == "graph":
                if (send.to, granted.version) in self._given:
                    return {}
                self._given.add((send.to, granted.version))
                return arrays(self._store.weights(granted.version))
            case BestKept():
                return arrays(self._best)
        return {}

    def _report(self, wanted: ReportWanted) -> tuple[dict[str, Any], dict[str, Array]]:
        counters = {
            "weight_versions_peak": self._server.counts.versions_peak,
            "gradients_applied": self._store.gradients_applied,
        }
        if wanted.version not in self._store.versions:
            return counters, {}
        part = arrays(self._store.weights(wanted.version), WEIGHT)
        return counters, part | arrays(self._store.state(), STATE)
