"""Truth: what one incarnation of a simulated run has really done, seen from outside the machines."""

from dataclasses import dataclass, field

from siafu.base.errors import SiafuError
from siafu.pipeline.events import EpochFinished, Event, StateMade
from siafu.pipeline.ids import Anchor, Epoch, Incarnation, IntervalId, LaneName, PhaseId, ServerId, Version
from siafu.pipeline.setup import Setup
from tests.checker.symbols import Part


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
    running:   the tasks that are under way: their lane and interval
    versions:  the version that a lane's (interval, epoch) uses
    added:     the gradients that are in some version's sum
    parts:     what every version was made of
    pins:      who was given which version where, and has not let go of it
    finished:  (graph server, epoch) that the run has heard of
    states:    (home, version) whose state the run has got
    closed:    how many epochs are closed: in an exact run, those that all have finished and whose states are at the run
    """

    setup: Setup
    incarnation: Incarnation
    start: Anchor
    exact: Anchor | None
    settled: Anchor
    positions: dict[tuple[LaneName, IntervalId], tuple[int, int]] = field(default_factory=dict)
    running: set[tuple[LaneName, IntervalId]] = field(default_factory=set)
    versions: dict[tuple[LaneName, IntervalId, Epoch], Version] = field(default_factory=dict)
    evaluated: dict[Epoch, Version] = field(default_factory=dict)
    added: set[tuple[Epoch, PhaseId, IntervalId]] = field(default_factory=set)
    parts: dict[tuple[ServerId, Version], Part] = field(default_factory=dict)
    pins: dict[tuple[ServerId, IntervalId | None, Epoch], Version] = field(default_factory=dict)
    finished: set[tuple[ServerId, Epoch]] = field(default_factory=set)
    states: set[tuple[ServerId, Version]] = field(default_factory=set)
    closed: Epoch = field(init=False)

    def __post_init__(self) -> None:
        self.closed = self.start.epoch
        for number in range(self.setup.layout.num_intervals):
            self.positions["train", IntervalId(number)] = (self.start.epoch, 0)
            self.positions["evaluate", IntervalId(number)] = (-1, 0)

    def is_exact(self, lane: LaneName, epoch: Epoch) -> bool:
        """Whether gathers of this epoch must read rows of this epoch alone."""
        if lane == "evaluate" or epoch == self.start.epoch:
            return True
        return self.exact is not None and epoch >= self.exact.epoch

    def heard(self, event: Event) -> None:
        """The run hears an event of this incarnation."""
        if isinstance(event, StateMade):
            self.states.add((event.home, event.version))
        elif isinstance(event, EpochFinished) and event.lane == "train":
            self.finished.add((event.server, event.epoch))
        made = Version(self.start.version_of(self.closed) + 1)
        servers = range(self.setup.layout.num_servers)
        if all((each, self.closed) in self.finished for each in servers) and all(
            (home, made) in self.states for home in self.setup.parts
        ):
            self.closed = Epoch(self.closed + 1)

    @property
    def slowest(self) -> tuple[int, int]:
        """The epoch and stage that every interval has come to in training."""
        return min(position for (lane, _), position in self.positions.items() if lane == "train")
