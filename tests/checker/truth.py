"""Truth: what one incarnation of a simulated run has really done, seen from outside the machines."""

from dataclasses import dataclass, field

from siafu.base.errors import SiafuError
from siafu.pipeline.events import EpochFinished, Event, StateMade
from siafu.pipeline.ids import (
    Address,
    Anchor,
    Epoch,
    Incarnation,
    IntervalId,
    LaneName,
    PhaseId,
    ServerId,
    Version,
)
from siafu.pipeline.instructions import CloseEpochs
from siafu.pipeline.setup import Setup
from tests.checker.symbols import Part

LANES: tuple[LaneName, ...] = ("train", "evaluate")


class Violation(SiafuError):
    """A machine broke a rule of the design: there is a fault in it. The message says which, where and when."""


def require(holds: bool, rule: str, *found: object) -> None:
    if not holds:
        raise Violation(f"{rule}: {', '.join(map(str, found))}")


@dataclass(slots=True)
class Truth:
    """One incarnation.

    exact:     from where on epochs are exact; None: asynchronous
    settled:   the last version that was asked to hold all gradients before an epoch
    positions: for each lane and interval, the epoch and stage that it has come to
    reached:   the furthest that any life of its server has brought an interval
    running:   the tasks that are under way: their lane and interval
    versions:  the version that a lane's (interval, epoch) uses
    added:     the gradients that are in some version's sum
    parts:     what every version was made of
    pins:      who was given which version where, and has not let go of it
    finished:  (graph server, epoch) that the run has heard of
    tested:    (graph server, epoch) whose evaluation the run has heard of
    states:    (home, version) whose state the run has got
    remade:    (home, version) that a lost home had made, and another will make again
    closed:    how many epochs are closed: in an exact run, those that all have finished and whose states are at the run
    """

    setup: Setup
    incarnation: Incarnation
    start: Anchor
    exact: Anchor | None
    settled: Anchor
    positions: dict[tuple[LaneName, IntervalId], tuple[int, int]] = field(default_factory=dict)
    reached: dict[tuple[LaneName, IntervalId], tuple[int, int]] = field(default_factory=dict)
    running: set[tuple[LaneName, IntervalId]] = field(default_factory=set)
    versions: dict[tuple[LaneName, IntervalId, Epoch], Version] = field(default_factory=dict)
    evaluated: dict[Epoch, Version] = field(default_factory=dict)
    added: set[tuple[Epoch, PhaseId, IntervalId]] = field(default_factory=set)
    parts: dict[tuple[ServerId, Version], Part] = field(default_factory=dict)
    pins: dict[tuple[ServerId, IntervalId | None, Epoch], Version] = field(default_factory=dict)
    finished: set[tuple[ServerId, Epoch]] = field(default_factory=set)
    tested: set[tuple[ServerId, Epoch]] = field(default_factory=set)
    states: set[tuple[ServerId, Version]] = field(default_factory=set)
    remade: set[tuple[ServerId, Version]] = field(default_factory=set)
    closed: Epoch = field(init=False)

    def __post_init__(self) -> None:
        self.closed = self.start.epoch
        for number in range(self.setup.layout.num_intervals):
            self.positions["train", IntervalId(number)] = (self.start.epoch, 0)
            self.positions["evaluate", IntervalId(number)] = (-1, 0)

    @property
    def evaluating(self) -> set[Version]:
        """Versions of evaluations that have begun and not ended."""
        ended = {
            epoch
            for epoch in self.evaluated
            if all((each, epoch) in self.tested for each in range(self.setup.layout.num_servers))
        }
        return {version for epoch, version in self.evaluated.items() if epoch not in ended}

    def is_exact(self, lane: LaneName, epoch: Epoch) -> bool:
        """Whether gathers of this epoch must read rows of this epoch alone."""
        if lane == "evaluate" or epoch == self.start.epoch:
            return True
        return self.exact is not None and epoch >= self.exact.epoch

    def heard(self, event: Event) -> None:
        """The run hears an event of this incarnation."""
        if isinstance(event, StateMade):
            self.states.add((event.home, event.version))
        elif isinstance(event, EpochFinished):
            (self.finished if event.lane == "train" else self.tested).add((event.server, event.epoch))

    def close(self, closed: CloseEpochs) -> None:
        """The run closes an epoch: all must have finished it, and what it made must be at the run."""
        made = Version(self.start.version_of(self.closed) + 1)
        require((closed.epochs, closed.version) == (self.closed + 1, made), "epochs close in turn", closed)
        missing = [
            each for each in range(self.setup.layout.num_servers) if (each, self.closed) not in self.finished
        ]
        require(not missing, "an epoch is closed when all have finished it", closed, missing)
        unkept = [home for home in self.setup.parts if (home, made) not in self.states]
        require(not unkept, "an epoch is closed when the run has what it made", closed, unkept)
        self.closed = closed.epochs

    def reach(self, lane: LaneName, interval: IntervalId, position: tuple[int, int]) -> None:
        """A life of an interval's server has brought it to a position."""
        key = lane, interval
        self.reached[key] = max(self.reached.get(key, (-1, 0)), position)

    def lose(self, server: Address, start: Anchor) -> None:
        """A server is lost: another does again what is not closed, and an evaluation that has not ended."""
        if server.role == "graph":
            self.finished = {
                each for each in self.finished if each[0] != server.index or each[1] < self.closed
            }
            for interval in self.setup.layout.owned(server.index):
                for lane in LANES:
                    self.running.discard((lane, interval))
                    self.reach(lane, interval, self.positions[lane, interval])
                self.positions["train", interval] = (start.epoch, 0)
                self.positions["evaluate", interval] = (-1, 0)
            return
        phases = {phase for phase, home in self.setup.homes.items() if home == server.index}
        self.added -= {key for key in self.added if key[1] in phases and key[0] >= start.epoch}
        self.states = {each for each in self.states if each[0] != server.index or each[1] <= start.version}
        self.remade |= {key for key in self.parts if key[0] == server.index and key[1] > start.version}

    @property
    def slowest(self) -> tuple[int, int]:
        """The epoch and stage that every interval has come to in training, in some life of its server."""
        return min(
            max(position, self.reached.get((lane, interval), position))
            for (lane, interval), position in self.positions.items()
            if lane == "train"
        )
