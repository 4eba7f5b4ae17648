"""Truth: what one incarnation of a simulated run has really done, seen from outside the machines."""

from dataclasses import dataclass, field

from siafu.base.errors import SiafuError
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

    def __post_init__(self) -> None:
        for number in range(self.setup.layout.num_intervals):
            self.positions["train", IntervalId(number)] = (self.start.epoch, 0)
            self.positions["evaluate", IntervalId(number)] = (-1, 0)

    def is_exact(self, lane: LaneName, epoch: Epoch) -> bool:
        """Whether gathers of this epoch must read rows of this epoch alone."""
        if lane == "evaluate" or epoch == self.start.epoch:
            return True
        return self.exact is not None and epoch >= self.exact.epoch

    @property
    def slowest(self) -> tuple[int, int]:
        """The epoch and stage that every interval has come to in training."""
        return min(position for (lane, _), position in self.positions.items() if lane == "train")
