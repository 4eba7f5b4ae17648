"""Replay: a training on machines that come and go, epoch by epoch."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from siafu.base.errors import BadInput
from siafu.planning.spot.replayed_training import ReplayedTraining
from siafu.planning.spot.trace import Change

_LONGEST = 3600 * 24 * 365


@dataclass(frozen=True, slots=True)
class SpotTraining:
    """A training, and what a loss does to it.

    machines:          that it wants, and that may be lost
    epoch_seconds:     of an epoch on all of them
    start_seconds:     until a server that begins, or takes another's place cold, can work: process, model, its part of the graph
    detection_seconds: until a machine is known to be lost
    checkpoint_epochs: epochs from one checkpoint to the next: a loss takes the run back there; None: every epoch that has
                       ended stays, as in `sync` and `pipe`, and the lost server's part of the open one is done again
    checkpoint_seconds: that a checkpoint takes
    paces:             seconds of an epoch on 0, 1, … of the machines, where it goes on with fewer; none: it stands still
                       while one is missing
    warm:              copies of the servers wait on other machines, and take over without a start
    spared:            share of an epoch that copies have done beforehand, and need not do again
    copies_seconds:    from when the run goes on after a loss until all copies are there again; None: `start_seconds`, since machines
                       make theirs side by side
    """

    machines: int
    epochs: int
    epoch_seconds: float
    start_seconds: float
    detection_seconds: float
    checkpoint_epochs: int | None = None
    checkpoint_seconds: float = 0.0
    paces: tuple[float, ...] = ()
    warm: bool = False
    spared: float = 0.0
    copies_seconds: float | None = None

    def pace(self, machines: int) -> float:
        """Seconds of an epoch on so many machines; infinite: the training stands still."""
        if machines == self.machines:
            return self.epoch_seconds
        return self.paces[machines] if self.paces else math.inf


@dataclass(frozen=True, slots=True)
class Replayed:
    """Outcome of one replay.

    seconds:         from the start to the end of the last epoch
    machine_seconds: of machines that were held, and paid for
    losses:          of machines that were held
    epochs_lost:     epochs that had ended, and were trained again
    longest_pause:   the longest time, in seconds, from a loss until the run is where it was
    paused:          all those times together; waited: seconds without enough machines that work, once losses are known
    on:              seconds of work on 0, 1, … of the machines
    """

    seconds: float
    machine_seconds: float
    losses: int
    epochs_lost: int
    longest_pause: float
    paused: float
    waited: float
    on: tuple[float, ...]


def young_daly(training: SpotTraining, rate: float) -> int:
    """Epochs from one checkpoint to the next: the square root of twice a checkpoint's time by the time between losses.

    rate: losses in an hour of one machine
    """
    between = 3600 / (rate * training.machines)
    return max(1, round(math.sqrt(2 * training.checkpoint_seconds * between) / training.epoch_seconds))


def replay(training: SpotTraining, changes: Iterable[Change]) -> Replayed:
    """Train on the machines that `changes`, which must not end before the training, brings and takes away."""
    run = _Run(training)
    for change in changes:
        if run.reach(change.seconds):
            break
        if change.seconds > _LONGEST:
            raise BadInput(
                f"the training does not end within a year: there are too seldom {training.machines} machines at once for long "
                "enough; ask for fewer servers, or shorter epochs"
            )
        run.take(change)
    return run.result()


class _Run:
    """A training under way.

    coming:    when each machine that is held, and does not work yet, can
    known:     when the last loss is known
    idle:      until when nothing goes on: a loss becomes known, a server starts, or does its part again
    whole:     from when on all copies are there again
    again:     seconds that a lost server's part of the open epoch takes again, once there are machines for it
    """

    def __init__(self, training: SpotTraining) -> None:
        self._training = training
        self._progress = ReplayedTraining(
            training.epochs, training.checkpoint_epochs, training.checkpoint_seconds
        )
        self._spare: dict[str, None] = {}
        self._working: set[str] = set()
        self._coming: dict[str, float] = {}
        self._now = self._paid = self._waited = self._known = 0.0
        self._idle = self._whole = training.start_seconds
        self._on = [0.0] * (training.machines + 1)
        self._lost_at: float | None = None
        self._again = 0.0
        self._lost_epochs = self._losses = 0
        self._pauses: list[float] = []

    def reach(self, until: float) -> bool:
        """Go on until then, or to the end of the training: whether that is reached."""
        while True:
            step = min(until, *self._coming.values(), self._idle if self._idle > self._now else math.inf)
            end = self._end()
            self._pass(min(step, end))
            if end <= step:
                return True
            self._arrive()
            if step >= until:
                return False

    def result(self) -> Replayed:
        self._note_pause()
        return Replayed(
            self._now,
            self._paid,
            self._losses,
            self._lost_epochs,
            max(self._pauses, default=0.0),
            sum(self._pauses),
            self._waited,
            tuple(self._on),
        )

    def take(self, change: Change) -> None:
        if change.comes:
            self._spare[change.machine] = None
            self._fill()
        elif change.machine in self._working:
            self._lose(change.machine)
        elif change.machine in self._coming:
            del self._coming[change.machine]
            self._losses += 1
            self._fill()
        else:
            del self._spare[change.machine]

    @property
    def _pace(self) -> float:
        return self._training.pace(len(self._working))

    def _end(self) -> float:
        if self._now < self._idle or math.isinf(self._pace):
            return math.inf
        return self._now + self._progress.left(self._pace)

    def _pass(self, until: float) -> None:
        """Let time go by in which no machine comes or goes."""
        spent = until - self._now
        self._paid += (len(self._working) + len(self._coming)) * spent
        if self._now >= self._idle and math.isfinite(self._pace):
            self._note_pause()
            self._progress.work(spent, self._pace)
            self._on[len(self._working)] += spent
        elif self._now >= self._idle:
            self._waited += spent
        self._now = until

    def _arrive(self) -> None:
        """Let machines work that are ready. Where the run stood still for want of them, a lost server's part is done again now."""
        stood = math.isinf(self._pace)
        ready = [machine for machine, at in self._coming.items() if at <= self._now]
        for machine in ready:
            del self._coming[machine]
            self._working.add(machine)
        if stood and ready and math.isfinite(self._pace):
            self._idle = max(self._idle, self._now + self._again)
            self._again = 0.0

    def _lose(self, machine: str) -> None:
        training = self._training
        self._losses += 1
        going = self._now >= self._idle and math.isfinite(self._pace)
        self._working.remove(machine)
        if self._lost_at is None and going:
            self._lost_at = self._now
        if going and training.checkpoint_epochs is not None:
            self._lost_epochs += self._progress.go_back(training.epoch_seconds)
        if training.checkpoint_epochs is None:
            self._again = max(0.0, self._progress.share - training.spared) * training.epoch_seconds
        warm = training.warm and self._now >= self._whole
        self._idle = self._known = self._now + training.detection_seconds
        if math.isfinite(self._pace):
            self._idle += (0.0 if warm else training.start_seconds) + self._again
            self._again = 0.0
        copies = training.copies_seconds
        self._whole = self._idle + (training.start_seconds if copies is None else copies)
        self._fill()

    def _fill(self) -> None:
        """Hold as many machines as the training wants, if there are. A server there is made beside the run."""
        begin = max(self._now, self._known) if math.isinf(self._pace) else self._now
        while self._spare and len(self._working) + len(self._coming) < self._training.machines:
            machine = next(iter(self._spare))
            del self._spare[machine]
            self._coming[machine] = begin + self._training.start_seconds

    def _note_pause(self) -> None:
        if self._lost_at is not None:
            self._pauses.append(self._now - self._lost_at)
            self._lost_at = None
