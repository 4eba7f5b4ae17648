"""GraphBasis: everything that a graph server decides by, and which epochs its intervals may enter."""

from collections import Counter
from dataclasses import dataclass, field

from siafu.pipeline.ahead import KnownCopies
from siafu.pipeline.events import Measures
from siafu.pipeline.ids import (
    Address,
    Anchor,
    Epoch,
    IntervalId,
    LaneName,
    Life,
    PhaseId,
    ServerId,
    Version,
)
from siafu.pipeline.instructions import Send
from siafu.pipeline.setup import Setup
from siafu.pipeline.stamp import Fences
from siafu.pipeline.track import Position, Track

_START = Anchor(Epoch(0), Version(0))


@dataclass(slots=True)
class GraphServerCounts:
    """Counts of what a graph server saw.

    staleness:  how often an interval entered an epoch with this lead over the slowest
    row_ages:   how often a gather read rows that were so many epochs older than itself (negative: newer)
    duplicates: events that had come before, or came too late to matter
    adopted:    tasks of a lost server that need not be run again, since this one did them as its eager copy
    """

    staleness: Counter[int] = field(default_factory=Counter)
    row_ages: Counter[int] = field(default_factory=Counter)
    duplicates: int = 0
    adopted: int = 0


@dataclass(slots=True)
class VersionPin:
    """The version that an (interval, epoch) uses: held by `weights` until no phase's gradient is `owed`."""

    weights: ServerId
    owed: set[PhaseId]


class GraphBasis:
    """Everything that a graph server knows, and how it is checked."""

    def __init__(self, setup: Setup, server: ServerId, life: Life) -> None:
        self.setup = setup
        self.server = server
        self.address = Address("graph", server)
        self.counts = GraphServerCounts()
        self.fences = Fences(self.address, life)
        self.intervals = setup.layout.owned(server)
        self._others = [ServerId(other) for other in range(setup.layout.num_servers) if other != server]
        self._copies = KnownCopies()
        self._reset(_START, setup.exact)

    def _reset(self, start: Anchor, exact: bool) -> None:
        setup = self.setup
        self._start = start
        self._until = start.epoch
        self._exact = start if exact else None
        self._positions: dict[ServerId, Position] = dict.fromkeys(self._others, (start.epoch, 0))
        self._told: Position = (start.epoch, 0)
        self._asked: dict[IntervalId, Send] = {}
        self._load = [0] * setup.weight_servers
        self._pins: dict[tuple[IntervalId, Epoch], VersionPin] = {}
        self._done_ahead: dict[IntervalId, int] = {}
        self._evaluation = Epoch(-1)
        self._finished: Counter[tuple[LaneName, Epoch]] = Counter()
        self._measures: dict[tuple[LaneName, Epoch], dict[IntervalId, Measures]] = {}
        self._train = Track(
            "train",
            setup.training,
            setup.layout,
            self.intervals,
            start.epoch,
            self._oldest_read,
            parts=setup.gather_parts,
        )
        self._train.ages = self.counts.row_ages
        if setup.mode == "sync":
            self._train.barrier = self._told
        self._evaluate = Track(
            "evaluate",
            setup.evaluation,
            setup.layout,
            self.intervals,
            Epoch(0),  # any may come: one that a loss interrupted is done again
            oldest_read=int,
            parts=setup.gather_parts,
        )

    def waiting(self) -> list[str]:
        """Pending work and its causes, in words; epochs are counted from 1."""
        outside = [
            f"interval {interval} asked {self._asked[interval].to} for epoch {each.epoch + 1}"
            if interval in self._asked
            else f"interval {interval} may not enter epoch {each.epoch + 1} yet: the run lets it enter those up to {self._until}, "
            f"and the slowest interval is in {self._slowest() + 1}"
            for interval, each in self._train.passes.items()
            if not each.inside
        ]
        owed = [
            f"interval {interval} owes gradients of phases {sorted(pin.owed)} in epoch {epoch + 1}"
            for (interval, epoch), pin in self._pins.items()
        ]
        lines = self._train.waiting() + self._evaluate.waiting() + outside + owed
        return [f"{self.address}: {line}" for line in lines]

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself. Tests call it after every event."""
        self._train.validate()
        self._evaluate.validate()
        reach = self._reach()
        for each in self._train.passes.values():
            self._validate_pass(each.interval, each.epoch, each.inside, reach)
        strange = [interval for interval in self._asked if interval not in self._train.passes]
        assert not strange, f"{strange} asked that are not its own"
        parameters = self.setup.training.parameters
        for (interval, epoch), pin in self._pins.items():
            own = self._train.passes[interval]
            assert (epoch, 1) <= (own.epoch, own.inside), (
                f"{interval} holds a version of epoch {epoch}: {own}"
            )
            assert pin.owed or own.epoch == epoch, f"{interval} holds a version of epoch {epoch} for nothing"
            assert pin.owed.issubset(parameters), f"{pin.owed} are owed, no parameters"
        full = len(self.intervals)
        for count in self._finished.values():
            assert 0 < count < full, f"finished {self._finished}"
        assert min(self._load) >= 0, f"loads of weight servers {self._load}"
        self._validate_positions()

    def _validate_pass(self, interval: IntervalId, epoch: Epoch, inside: bool, reach: int) -> None:
        asked = interval in self._asked
        assert not (inside and asked), f"interval {interval} asked for what it has"
        assert epoch <= self._until, f"interval {interval} is in epoch {epoch}, beyond {self._until}"
        if not (inside or asked):
            return
        assert epoch < self._until, f"interval {interval} entered {epoch}, and may not before {self._until}"
        early = epoch > reach and not self._is_exact(epoch)
        assert not early, f"interval {interval} entered epoch {epoch}, and may enter {reach}"
        held = (interval, epoch) in self._pins
        assert held == inside, (
            f"interval {interval} holds a version of epoch {epoch}: {held}, inside {inside}"
        )

    def _validate_positions(self) -> None:
        slowest = self._train.slowest if self.setup.mode == "sync" else (self._train.slowest[0], 0)
        assert self._told == slowest, f"told {self._told}, and is at {slowest}"
        if self.setup.mode == "sync":
            barrier = min([self._told, *self._positions.values()])
            assert self._train.barrier == barrier, f"barrier at {self._train.barrier}, not {barrier}"

    # Which epochs may be entered, and what they read

    def _reach(self) -> int:
        """The last epoch that the slowest interval lets others enter."""
        slowest = self._slowest()
        # While someone reads rows of the first epoch, they must stay as they are.
        return slowest if slowest == self._start.epoch else slowest + self.setup.staleness

    def _is_exact(self, epoch: Epoch) -> bool:
        """Whether gathers of `epoch` read that epoch's rows alone. Where the weights' version is exact too, no one
        can be ahead. A run's first epoch is exact since there is nothing else to read."""
        return epoch == self._start.epoch or (self._exact is not None and epoch >= self._exact.epoch)

    def _slowest(self) -> Epoch:
        """The epoch of the slowest interval of all servers, as far as it is known here."""
        return Epoch(min([self._train.slowest, *self._positions.values()])[0])

    def _oldest_read(self, epoch: Epoch) -> int:
        if self._is_exact(epoch):
            return epoch
        # The slowest was at most S epochs behind when this interval entered, and had made the rows of the epoch before.
        return max(self._start.epoch, epoch - self.setup.staleness - 1)

    def _oldest_weights(self, epoch: Epoch) -> Version:
        """The version that an interval which enters now waits for: the one with the gradients of all epochs that all have finished.

        So weights are no further behind than rows are, and without staleness not at all. Where there is but one version,
        who went ahead with it would keep all others from the next: there it is that of all epochs before.
        Either comes without those that wait for it: its gradients are there, on their way, or made by others.
        """
        finished = epoch if self.setup.policy.max_versions == 1 else self._slowest()
        gradients = (finished - self._start.epoch) * self.setup.layout.num_intervals
        return Version(self._start.version + gradients // self.setup.gradients_an_update)
