"""Mini-batches on several servers in virtual time: draws, features and sums that travel, computing, and how far batches overlap."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from siafu.virtual.agenda import Agenda
from siafu.virtual.costs import Machine
from siafu.virtual.resources import VirtualLink


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """The part that one of several servers has in a batch. All servers have equal parts.

    draw:    core seconds of drawing its vertices and edges
    fetched: bytes that come before it can be computed: structure, and features of other servers' vertices
    gather:  core seconds of gathering the first layer's features
    first:   core seconds of the products that are made before sums travel; 0 by vertices
    pulled:  bytes of the sums that come from other servers, and of the gradients that go back; 0 by vertices
    compute: core seconds of all else, forward and back
    last:    core seconds of the gradients that are made of gradients which came back; 0 by vertices
    weights: bytes of weights, or of their gradients
    """

    draw: float
    fetched: float
    gather: float
    first: float
    pulled: float
    compute: float
    last: float
    weights: float


@dataclass(frozen=True, slots=True)
class BatchOverlap:
    """How far batches overlap.

    ahead:     batches that are drawn and fetched before those under way have ended
    staleness: updates that the weights of a batch may lack
    """

    ahead: int
    staleness: int


ONE_BY_ONE = BatchOverlap(0, 0)
"""A batch begins when the one before has ended."""


def epoch_seconds(load: BatchLoad, machine: Machine, overlap: BatchOverlap, batches: int) -> float:
    """Seconds of an epoch of so many batches, on servers that all go the same way."""
    return _Batches(load, machine, overlap, batches).run()


class _Batches:
    """One server's batches. What it sends to others is as much as what comes, so one direction of its network stands for both."""

    def __init__(self, load: BatchLoad, machine: Machine, overlap: BatchOverlap, batches: int) -> None:
        self._agenda, self._machine, self._overlap = Agenda(), machine, overlap
        self._cores, self._network = VirtualLink(machine.cores), VirtualLink(machine.network_bytes_s)
        compute, travel = self._compute, self._travel
        self._loading = [
            partial(compute, load.draw),
            partial(travel, load.fetched),
            partial(compute, load.gather),
        ]
        self._computing = [
            partial(compute, load.first),
            partial(travel, load.pulled),
            partial(compute, load.compute),
            partial(travel, load.pulled),
            partial(compute, load.last),
            partial(travel, 2 * load.weights),
        ]
        self._count = batches
        self._loaded: set[int] = set()
        self._asked = self._begun = self._ended = 0

    def run(self) -> float:
        """When the last batch has ended."""
        self._go_on()
        while self._agenda.step():
            pass
        return self._agenda.now

    def _go_on(self) -> None:
        """Begin to load and to compute whatever may begin."""
        under_way = self._ended + self._overlap.staleness
        while self._asked < min(self._count, under_way + self._overlap.ahead + 1):
            number, self._asked = self._asked, self._asked + 1
            self._run(self._loading, partial(self._is_loaded, number))
        while self._begun in self._loaded and self._begun <= under_way:
            self._begun += 1
            self._run(self._computing, self._has_ended)

    def _is_loaded(self, number: int) -> None:
        self._loaded.add(number)
        self._go_on()

    def _has_ended(self) -> None:
        self._ended += 1
        self._go_on()

    def _run(self, steps: Sequence[Callable[[Callable[[], None]], None]], then: Callable[[], None]) -> None:
        """Run steps one after the other, and call `then` after the last."""
        if steps:
            steps[0](partial(self._run, steps[1:], then))
        else:
            then()

    def _compute(self, seconds: float, then: Callable[[], None]) -> None:
        now = self._agenda.now
        self._agenda.after(self._cores.carry(now, seconds) - now if seconds else 0.0, then)

    def _travel(self, size: float, then: Callable[[], None]) -> None:
        now = self._agenda.now
        self._agenda.after(
            self._network.carry(now, size) - now + self._machine.latency_s if size else 0.0, then
        )
