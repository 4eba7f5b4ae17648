"""RunBasis: everything that a run decides by: records, limits, evaluations, and who is there."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from siafu.objective.score import Score
from siafu.pipeline.events import (
    Measures,
    Proceed,
    RatesSet,
)
from siafu.pipeline.ids import RUN, Address, Anchor, Epoch, Life, ServerId, Version
from siafu.pipeline.instructions import (
    Instruction,
    Send,
)
from siafu.pipeline.run_machine.closing import Closing
from siafu.pipeline.run_machine.evaluations import Evaluations
from siafu.pipeline.run_machine.limits import RunLimits
from siafu.pipeline.run_machine.records import Best, Records
from siafu.pipeline.run_machine.run_options import RunOptions
from siafu.pipeline.run_machine.standing import RunStanding
from siafu.pipeline.run_machine.succession import Succession
from siafu.pipeline.setup import Setup
from siafu.pipeline.stamp import Fences

_START = Anchor(Epoch(0), Version(0))


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A checkpoint to start again from."""

    anchor: Anchor
    exact: bool
    best: Best | None


class RunBasis:
    """Everything that a run knows, and how it is checked.

    fences: lives of the servers, which are the run's to count
    ended:  nothing happens any more
    """

    def __init__(
        self,
        setup: Setup,
        options: RunOptions,
        score: Callable[[Measures], Score],
        *,
        start: Anchor = _START,
        best: Best | None = None,
        exact: bool = False,
        rates: Callable[[Epoch], tuple[float, ...]] | None = None,
    ) -> None:
        """
        score: what an evaluation's measures say
        rates: of an epoch's update, once the one before is closed; None: those of the settings
        start: after so many epochs, with that version; that first epoch is exact
        best:  of the epochs before; exact: an asynchronous run had come to exact epochs by then
        """
        self.setup = setup
        self.options = options
        self.ended = False
        # A server that is lost before its last version was fetched takes the end back.
        self._may_begin_again = True
        self.fences = Fences(RUN)
        self.duplicates = 0
        self._score, self._rates = score, rates
        self._servers = setup.graph_addresses + setup.weight_addresses
        self._saved = SavedRun(start, setup.exact or exact, best)
        self._closing = Closing(setup.parts, start) if setup.closes else None
        self._exact, self._switching = start if self._saved.exact else None, False
        self._limits = RunLimits(options, start.epoch, saves_aside=self.saves_aside)
        self._held: list[Anchor] = []
        self._evaluations = Evaluations(setup, options)
        self._handing_over: set[Address] = set()
        self._copies: dict[Address, Life] = {}
        self._copies_ready: set[Address] = set()
        self._copies_told: dict[Address, Life] = {}
        self._begin_records()
        self._reset()

    @property
    def saves_aside(self) -> bool:
        """Whether checkpoints are made of closed epochs, which the run has, while training goes on."""
        return self.setup.exact

    @property
    def is_whole(self) -> bool:
        """Whether all servers are there and go on."""
        return self._succession.is_over

    def waiting(self) -> list[str]:
        """Pending work and its causes, in words; epochs are counted from 1."""
        records, running = self._records, self._evaluations.running
        evaluation = (
            "none" if running is None else f"after epoch {running.epoch + 1}, version {running.version}"
        )
        return [
            f"run: {records.trained} epochs trained, {records.recorded} recorded, until {self._until}, "
            f"evaluation {evaluation}, limit {self._standing.state} at {self._limits.next(records)}, "
            f"not ready {sorted(map(str, self._succession.unready))}, joined {sorted(map(str, self._succession.joined))}, "
            f"unsettled {sorted(self._standing.unsettled)}"
        ]

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself. Tests call it after every event."""
        records = self._records
        records.validate()
        assert self._saved.anchor.epoch <= records.recorded, (
            f"saved {self._saved}, {records.recorded} recorded"
        )
        if self._closing is not None:
            self._closing.validate()
            assert self._closing.anchor.epoch == records.trained, (
                f"{self._closing.anchor}, {records.trained} trained"
            )
        assert all(records.recorded < each.epoch <= records.trained for each in self._held), (
            f"held {self._held}, {records.recorded} recorded, {records.trained} trained"
        )
        assert records.trained <= self._until, f"{records.trained} trained, until {self._until}"
        assert self._base.epoch <= records.trained, f"based on {self._base}, {records.trained} trained"
        self._succession.validate()
        unready = self._succession.unready
        assert unready <= set(self._servers), f"{unready} are none of its servers"
        begins = not unready or self.setup.resumes or self._until == self._base.epoch
        assert begins, f"goes on without {unready}"
        assert bool(self._standing.unsettled) == (self._standing.state == "settling"), (
            f"{self._standing.state}: {self._standing.unsettled}"
        )
        assert self._standing.state == "going" or records.trained == self._until, (
            f"{self._standing.state} while training"
        )
        running, best = self._evaluations.running, records.best
        early = running is not None and not records.recorded <= running.epoch < records.trained
        assert not early, f"{running}, {records.recorded} recorded, {records.trained} trained"
        kept = self._best_on_its_way
        assert kept is None or (best is not None and best.epoch == kept), f"best {best}, kept {kept}"
        assert self._seen <= records.recorded, f"{self._seen} seen, {records.recorded} recorded"

    def _begin_records(self) -> None:
        """Know nothing but what the last checkpoint has."""
        self._records = Records(self._saved.anchor.epoch, self.setup.layout.num_servers, self._score)
        self._records.best = self._saved.best
        self._seen = self._saved.anchor.epoch
        self._evaluations.running = None
        self._limits.forget()

    def _reset(self) -> None:
        if self._closing is None:
            self._base, exact = self._saved.anchor, self._saved.exact
        else:
            # All begin again: a run that was about to turn exact does so now.
            self._base, exact = self._closing.anchor, self._exact is not None or self._switching
        self._exact = self._base if exact else None
        self._until = self._base.epoch
        self._evaluations.forget_asked()
        self._standing = RunStanding()
        self._limits.begin_again(self._base.epoch)
        self._switching = False
        self._best_on_its_way: Epoch | None = None
        # No one may hear from a server that began before itself did: it would take that for a void event.
        self._succession = Succession(self._servers)

    def _may_proceed(self) -> Proceed:
        closed = Epoch(0) if self._closing is None else self._closing.anchor.epoch
        return Proceed(self._until, self._exact, closed)

    def _send_rates(
        self, first: Epoch, until: Epoch, homes: Iterable[ServerId], out: list[Instruction]
    ) -> None:
        """Tell homes the rates of epochs that intervals may enter from now on."""
        if self._rates is None:
            return
        anchor = self._exact or self._base
        for epoch in map(Epoch, range(first, until)):
            version = Version(anchor.version_of(epoch) + 1)
            message = RatesSet(version, self._rates(epoch))
            out.extend(Send(Address("weight", home), message) for home in homes)
