"""Checker: the invariants of the design, held against everything that a simulated run does.

It sees symbols instead of rows and weights (`symbols`), and what every incarnation has really done (`Truth`); it
shares no state with the machines. A rule that does not hold raises `Violation`.
"""

from collections.abc import Callable

from siafu.objective.score import Score
from siafu.pipeline.events import (
    Begin,
    Event,
    Measures,
    Noted,
    Resume,
    RowsArrived,
    Settle,
    WeightsGranted,
    WeightsReleased,
)
from siafu.pipeline.ids import Address, Anchor, Epoch, Incarnation, Life, ServerId, Version
from siafu.pipeline.instructions import (
    Accumulate,
    BeginTask,
    HoldCheckpoint,
    KeepBest,
    RecordEpoch,
    RunTask,
    SaveCheckpoint,
    Stop,
)
from siafu.pipeline.run_machine.run_options import RunOptions
from siafu.pipeline.setup import Setup
from siafu.pipeline.stamp import Stamp
from siafu.pipeline.task import Task
from tests.checker.record_checks import RecordChecks
from tests.checker.row_checks import RowChecks
from tests.checker.symbols import Gradient, Part, Result, Rows, RowsKey, Shelf
from tests.checker.truth import Truth, require
from tests.checker.weight_checks import WeightChecks


class Checker:
    """What a simulation tells as it goes; `shelves` are the weight servers', by their number.

    weight_server: the incarnation that one is in; None: it is lost
    """

    def __init__(
        self,
        setup: Setup,
        options: RunOptions,
        score: Callable[[Measures], Score],
        start: Anchor,
        shelves: list[Shelf],
    ) -> None:
        self._setup = setup
        self._rows = RowChecks(setup)
        self._weights = WeightChecks(setup)
        self._records = RecordChecks(setup, options, score, start)
        self._made: dict[tuple[ServerId, Version], tuple[Gradient, ...]] = {}
        self._shelves = shelves
        self.weight_server: Callable[[ServerId], Incarnation | None] = lambda server: None
        self._truths: dict[Incarnation, Truth] = {}
        self._noted: dict[tuple[Address, Address], Life] = {}
        self._exact_at_start = setup.exact
        self._latest = Incarnation(-1)
        self._best: Epoch | None = None
        self._best_saved: Epoch | None = None
        self._held_back: dict[Epoch, Version] = {}

    @property
    def truth(self) -> Truth:
        """Of the latest incarnation."""
        return self._truths[self._latest]

    def reads(self, task: Task) -> list[RowsKey]:
        """The rows that a task must read."""
        return self._rows.reads(task)

    def early_reads(self, what: BeginTask) -> list[RowsKey]:
        """The rows that a gather may begin with."""
        return self._rows.early_reads(what)

    def sent(self, incarnation: Incarnation, sender: Address, to: Address, message: Event) -> None:
        if isinstance(message, Resume):
            self._resumed(to, message)
            return
        if isinstance(message, Begin):
            self._begun(message)
            return
        if isinstance(message, Noted):
            self._noted[message.sender, message.server] = message.life
        truth = self._truths[incarnation]
        if isinstance(message, WeightsGranted) and not self._setup.exact:
            truth.pins[message.server, message.interval, message.epoch] = message.version
        elif isinstance(message, WeightsReleased):
            key = to.index, message.interval, message.epoch
            require(key in truth.pins, "what is released was held", sender, message)
            del truth.pins[key]
        elif isinstance(message, Settle):
            truth.settled = message.anchor
            if message.exact and truth.exact is None:
                truth.exact = message.anchor

    def _begun(self, message: Begin) -> None:
        if message.incarnation in self._truths:
            return
        before = self._truths.get(self._latest)
        self._latest = message.incarnation
        if before is not None and self._setup.closes:
            require(
                message.exact or before.exact is None,
                "a run that has come to exact epochs stays exact",
                message,
            )
            self._exact_at_start = message.exact
        exact = message.start if self._exact_at_start else None
        truth = Truth(self._setup, message.incarnation, message.start, exact, message.start)
        self._truths[message.incarnation] = truth
        if before is not None and self._setup.closes:
            wanted = Anchor(before.closed, before.start.version_of(before.closed))
            require(message.start == wanted, "a loss costs no epoch that is closed", message, wanted)
        again = message.evaluation
        if again is not None:
            found = None if before is None else before.evaluated.get(again.epoch, again.version)
            require(found == again.version, "an evaluation is run again with its version", again, found)
            truth.evaluated[again.epoch] = again.version
            if not self._setup.exact:
                truth.pins[again.weights, None, again.epoch] = again.version

    def _resumed(self, server: Address, resume: Resume) -> None:
        """A server takes a lost one's place."""
        truth = self.truth
        wanted = Anchor(truth.closed, truth.start.version_of(truth.closed))
        require(resume.start == wanted, "a lost server's place is taken in the open epoch", resume, wanted)
        truth.lose(server, resume.start)

    def is_void(self, at: Address, life: Life, stamp: Stamp) -> bool:
        """Whether a letter must not change a machine: it is for another life, or from one that the machine knows to be gone."""
        return stamp.to_life != life or stamp.life < self._noted.get((at, stamp.sender), 0)

    def packed(self, rows: Rows, named: RowsArrived) -> None:
        self._rows.packed(rows, named)

    def came_to(self, task: Task) -> None:
        """A server that was given up has done a task."""
        schedule = self._setup.training if task.lane == "train" else self._setup.evaluation
        last = task.stage.id + 1 == len(schedule)
        position = (task.epoch + 1, 0) if last else (task.epoch, task.stage.id + 1)
        self.truth.reach(task.lane, task.interval, position)

    def heard(self, event: Event) -> None:
        """The run hears an event."""
        if self._setup.closes:
            self.truth.heard(event)

    # Graph servers

    def issued(self, incarnation: Incarnation, run: RunTask) -> None:
        self._rows.issued(self._truths[incarnation], run)

    def may_begin(self, incarnation: Incarnation, what: BeginTask) -> None:
        self._rows.may_begin(self._truths[incarnation], what)

    def kept(self, incarnation: Incarnation, result: Result | None) -> None:
        require(result is not None, "only a result that just came is kept")
        if result is not None:
            self._rows.kept(self._truths[incarnation], result)

    def stored(self, key: RowsKey, new: Rows, old: Rows | None) -> None:
        self._rows.stored(key, new, old)

    def begins(self, incarnation: Incarnation, run: RunTask) -> None:
        """A task begins: where its weights come from must hold them, unless it was lost or has begun again."""
        if run.task.stage.kind.remote and self.weight_server(run.weights) == incarnation:
            self._weights.read(self._truths[incarnation], run, self._shelves[run.weights])

    # Weight servers

    def accumulated(self, incarnation: Incarnation, added: Accumulate, gradient: Gradient | None) -> None:
        self._weights.accumulated(self._truths[incarnation], added, gradient)

    def made(self, incarnation: Incarnation, part: Part) -> None:
        self._weights.made(self._truths[incarnation], part)
        self._made[part.home, part.version] = part.gradients

    def restored(self, version: Version, parts: list[Part]) -> None:
        """A weight server begins, or the run copies its best model, with what the run has of a version."""
        homes = {part.home for part in parts}
        require(homes == self._setup.parts, "the run has all of a version that it needs", version, parts)
        for part in parts:
            made = self._made.get((part.home, version), ())
            require(part.version == version, "the run has the version that it needs", version, part)
            require(part.gradients == made, "the run has what was made of a version", part, made)

    def freed(self, incarnation: Incarnation, server: ServerId, version: Version) -> None:
        self._weights.freed(self._truths[incarnation], server, version)

    def held(self, server: ServerId) -> None:
        self._weights.held(server, self._shelves[server])

    def best(self, incarnation: Incarnation, server: ServerId | None, best: KeepBest) -> None:
        """server: None: the run copies its own"""
        if server is not None:
            parts = self._shelves[server].parts.get(best.version, {})
            require(parts.keys() == self._setup.parts, "the best model is held when it is copied", best)
        evaluated = self._truths[incarnation].evaluated.get(best.epoch)
        require(evaluated == best.version, "the best model is the one that was evaluated", best, evaluated)
        if incarnation == self._latest:
            self._best = best.epoch

    # The run

    def recorded(self, record: RecordEpoch) -> None:
        self._records.record(self.truth, record)

    def held_back(self, hold: HoldCheckpoint) -> None:
        """What is held for a checkpoint is the epoch that was closed last."""
        closed, made = self.truth.closed, self.truth.start.version_of(hold.epochs)
        require((hold.epochs, hold.version) == (closed, made), "a checkpoint is what was closed", hold)
        self._held_back[hold.epochs] = hold.version

    def saving(self, save: SaveCheckpoint) -> None:
        """In an exact run it was held; else everything must stand still and be applied."""
        truth = self.truth
        require(self._records.recorded == save.epochs, "a checkpoint has all epochs' records", save)
        require(self._records.best == self._best, "a checkpoint has the best model", save, self._best)
        if self._setup.exact:
            held = self._held_back.pop(save.epochs, None)
            require(held == save.version, "a checkpoint was held when its epoch was closed", save, held)
            return
        self._check_standstill(save.epochs, save.version)
        require(
            truth.settled == Anchor(save.epochs, save.version), "weights settle before a checkpoint", save
        )

    def saved(self) -> None:
        self._exact_at_start = self.truth.exact is not None
        self._best_saved = self._best

    def rewound(self, epochs: Epoch) -> None:
        if self._setup.closes:
            require(epochs == self._records.recorded, "no record is taken back", epochs)
            self._best = self._records.best
            return
        self._records.rewind(epochs)
        self._best = self._best_saved

    def stopped(self, stop: Stop) -> None:
        if stop.reason == "diverged":
            return
        self._records.ended(stop)
        require(stop.best == self._best, "the best model is kept", stop, self._best)
        self._check_standstill(stop.epochs, stop.version)

    def ended(self, stop: Stop) -> None:
        """Nothing is on its way any more."""
        if stop.version is not None:
            self._weights.ended(self.truth, stop.epochs, stop.version, self._shelves)

    def _check_standstill(self, epochs: Epoch, version: Version | None) -> None:
        truth = self.truth
        moving = [
            (interval, position)
            for (lane, interval), position in truth.positions.items()
            if lane == "train" and position != (epochs, 0)
        ]
        require(not moving, "at a limit every interval stands still", epochs, moving)
        for server, shelf in enumerate(self._shelves):
            if shelf.lost:
                continue
            parts = shelf.parts.get(version, {}) if version is not None else {}
            require(
                parts.keys() == self._setup.parts, "at a limit all hold the settled version", server, version
            )
            require(max(shelf.parts) == version, "at a limit no later version is made", server, version)


class GivenUp(Checker):
    """Looks away from a server that was given up while it lives: what it does is void, and others do it again.

    checker: the run's own
    """

    def __init__(self, checker: Checker) -> None:
        self._run = checker

    def reads(self, task: Task) -> list[RowsKey]:
        return self._run.reads(task)

    def early_reads(self, what: BeginTask) -> list[RowsKey]:
        return self._run.early_reads(what)

    def kept(self, incarnation: Incarnation, result: Result | None) -> None:
        """It did come that far, and others may have heard of it."""
        if result is not None:
            self._run.came_to(result.task)

    def may_begin(self, incarnation: Incarnation, what: BeginTask) -> None: ...
    def stored(self, key: RowsKey, new: Rows, old: Rows | None) -> None: ...
    def begins(self, incarnation: Incarnation, run: RunTask) -> None: ...
    def packed(self, rows: Rows, named: RowsArrived) -> None: ...
    def accumulated(self, incarnation: Incarnation, added: Accumulate, gradient: Gradient | None) -> None: ...
    def made(self, incarnation: Incarnation, part: Part) -> None: ...
    def restored(self, version: Version, parts: list[Part]) -> None: ...
