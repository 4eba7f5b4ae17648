"""Replay: a training on machines that come and go, epoch by epoch."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from siafu.base.errors import BadInput
from siafu.planning.spot.trace import Change

_LONGEST = 3600 * 24 * 365


@dataclass(frozen=True, slots=True)
class SpotTraining:
    """A training, and what a loss does to it.

    machines:          that may be lost; the run stands still while one of them is missing
    start_seconds:     until a server that begins, or takes another's place, can work: process, model, its part of the graph
    detection_seconds: until a machine is known to be lost
    checkpoint_epochs: epochs from one checkpoint to the next: a loss takes the run back there; None: every epoch that has
                       ended stays, as in `sync` and `pipe`
    checkpoint_seconds: that a checkpoint takes
    """

    machines: int
    epochs: int
    epoch_seconds: float
    start_seconds: float
    detection_seconds: float
    checkpoint_epochs: int | None = None
    checkpoint_seconds: float = 0.0

    @property
    def undisturbed_seconds(self) -> float:
        """From start to end if no machine is lost, without checkpoints."""
        return self.start_seconds + self.epochs * self.epoch_seconds


@dataclass(frozen=True, slots=True)
class Replayed:
    """Outcome of one replay.

    seconds:         from the start to the end of the last epoch
    machine_seconds: of machines that were held, and paid for
    losses:          of machines that were held
    epochs_lost:     epochs that had ended, and were trained again
    longest_pause:   the longest time, in seconds, from a loss until all work again
    paused:          all those times together
    """

    seconds: float
    machine_seconds: float
    losses: int
    epochs_lost: int
    longest_pause: float
    paused: float


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
        if run.ends_before(change.seconds):
            break
        if change.seconds > _LONGEST:
            raise BadInput(
                f"the training does not end within a year: there are too seldom {training.machines} machines at once for long "
                "enough; ask for fewer servers, or shorter epochs"
            )
        run.take(change)
    return run.result()


class _Run:
    def __init__(self, training: SpotTraining) -> None:
        self._training = training
        self._spare: dict[str, None] = {}
        self._held: set[str] = set()
        self._now = self._paid = 0.0
        self._working_from = math.inf
        self._lost_at: float | None = None
        self._known_at = 0.0
        self._done = self._lost_epochs = self._losses = 0
        self._pauses: list[float] = []

    def ends_before(self, seconds: float) -> bool:
        return self._end() <= seconds

    def result(self) -> Replayed:
        end = self._end()
        self._pay(end)
        self._note_pause()
        return Replayed(
            end,
            self._paid,
            self._losses,
            self._lost_epochs,
            max(self._pauses, default=0.0),
            sum(self._pauses),
        )

    def take(self, change: Change) -> None:
        self._pay(change.seconds)
        if change.comes:
            self._spare[change.machine] = None
            self._fill()
        elif change.machine in self._held:
            self._lose(change.machine)
        else:
            del self._spare[change.machine]

    def _lose(self, machine: str) -> None:
        self._losses += 1
        self._held.remove(machine)
        if self._now >= self._working_from:
            self._note_pause()
            self._lost_at = self._now
            self._stop_working()
        self._working_from = math.inf
        self._known_at = self._now + self._training.detection_seconds
        self._fill()

    def _stop_working(self) -> None:
        """Count the epochs that have ended since the run went on last, and stay."""
        ended = self._ended(self._now - self._working_from)
        every = self._training.checkpoint_epochs
        kept = ended if every is None else ended // every * every
        self._done += kept
        self._lost_epochs += ended - kept

    def _fill(self) -> None:
        """Hold as many machines as the training needs, if there are."""
        if len(self._held) == self._training.machines:
            return
        while self._spare and len(self._held) < self._training.machines:
            machine = next(iter(self._spare))
            del self._spare[machine]
            self._held.add(machine)
        if len(self._held) == self._training.machines:
            self._working_from = max(self._now, self._known_at) + self._training.start_seconds

    def _end(self) -> float:
        left = self._training.epochs - self._done
        every = self._training.checkpoint_epochs
        saved = 0 if every is None else (left - 1) // every
        work = left * self._training.epoch_seconds + saved * self._training.checkpoint_seconds
        return self._working_from + work

    def _ended(self, seconds: float) -> int:
        """Number of epochs that end in a stretch of work."""
        every, epoch = self._training.checkpoint_epochs, self._training.epoch_seconds
        if every is None:
            return int(seconds / epoch)
        group = every * epoch + self._training.checkpoint_seconds
        whole = int(seconds / group)
        return whole * every + min(every, int((seconds - whole * group) / epoch))

    def _note_pause(self) -> None:
        if self._lost_at is not None:
            self._pauses.append(self._working_from - self._lost_at)
            self._lost_at = None

    def _pay(self, until: float) -> None:
        self._paid += len(self._held) * (until - self._now)
        self._now = until
