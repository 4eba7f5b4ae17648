"""What happens to the machines. A message between two machines is an event of the one that gets it.

No event holds rows or weights: it names them, and the runtime carries them beside it, and a `Stamp`: events of another
incarnation, or from or for an earlier life, do not reach the machine. A message may come late, twice and out of order, but
it comes: the transport sends again until it is acknowledged.
"""

from dataclasses import dataclass

from siafu.pipeline.ids import (
    Address,
    Anchor,
    Epoch,
    Incarnation,
    IntervalId,
    LaneName,
    Life,
    PhaseId,
    ServerId,
    StageId,
    Version,
)
from siafu.pipeline.task import Task

Measures = tuple[float, ...]
"""Sums over an interval's rows, added over the intervals; the first is the loss. The runtime gives them a meaning."""


@dataclass(frozen=True, slots=True)
class Event:
    pass


# From the run to the servers


@dataclass(frozen=True, slots=True)
class Begin(Event):
    """Forget everything and stand at `start`; answer `Ready`. The first event of an incarnation.

    exact:      every epoch makes one version from here on; else only the first epoch is exact
    evaluation: one that was under way, and will be run again: its weight server holds its version from the start
    lives:      of the servers that are not in their first
    """

    incarnation: Incarnation
    start: Anchor
    exact: bool
    evaluation: "EvaluationStarted | None" = None
    lives: tuple[tuple[Address, Life], ...] = ()


@dataclass(frozen=True, slots=True)
class Resume(Begin):
    """Stand at `start`, where the others are, in place of a lost server, and do nothing yet; answer `Ready`."""


@dataclass(frozen=True, slots=True)
class TakenOver(Event):
    """A server was lost, and another stands in its place: send it again what it needs; answer `Noted`.

    start:      where it stands: the open epoch, and that epoch's version
    evaluation: the epoch whose evaluation is under way; None: there is none
    """

    server: Address
    life: Life
    start: Anchor
    evaluation: Epoch | None


@dataclass(frozen=True, slots=True)
class Proceed(Event):
    """Graph server: intervals may enter the epochs before `until`.

    exact:  from here on every epoch uses one version and gathers read their own epoch; None: asynchronous
    closed: nobody asks for what was made in the epochs before this one
    """

    until: Epoch
    exact: Anchor | None
    closed: Epoch = Epoch(0)


@dataclass(frozen=True, slots=True)
class Closed(Event):
    """Weight server: epochs are closed. Hold the versions from `oldest` on, and no others.

    held: but this one too, which an evaluation uses; None: no earlier one is in use
    """

    oldest: Version
    held: Version | None


@dataclass(frozen=True, slots=True)
class RatesSet(Event):
    """Weight server: make `version` with these rates.

    rates: as `siafu.weights.groups.Rates` are sent: four numbers of each group of parameters
    """

    version: Version
    rates: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class EvaluationStarted(Event):
    """Graph server: pass every interval through the evaluation with `version`, which `weights` holds."""

    epoch: Epoch
    version: Version
    weights: ServerId


@dataclass(frozen=True, slots=True)
class CopyStands(Event):
    """Graph server: an eager copy of another stands in that life: send it the rows that its server reads, too.

    there: False: it is gone
    """

    copy: Address
    life: Life
    there: bool = True


@dataclass(frozen=True, slots=True)
class RunAhead(Event):
    """Eager copy: run the forward tasks of the open epoch with `version`, whose weights come with the message."""

    epoch: Epoch
    version: Version


@dataclass(frozen=True, slots=True)
class Settle(Event):
    """Weight server: no gradient is on its way. Apply what is left so that `anchor` holds; then answer `Settled`.

    exact: from here on every epoch makes one version
    """

    anchor: Anchor
    exact: bool


# To graph servers


@dataclass(frozen=True, slots=True)
class TaskDone(Event):
    """A task's result is there. A relaunched task may finish twice."""

    task: Task
    measures: Measures = ()


@dataclass(frozen=True, slots=True)
class TaskStarted(Event):
    """A gather begins to read its rows: how old they are is counted now. Other tasks need not be told of."""

    task: Task


@dataclass(frozen=True, slots=True)
class RowsArrived(Event):
    """Another server's interval sent its rows of a stage."""

    lane: LaneName
    epoch: Epoch
    stage: StageId
    interval: IntervalId


@dataclass(frozen=True, slots=True)
class ServerAdvanced(Event):
    """The slowest interval of another graph server has come to this stage of this epoch."""

    server: ServerId
    epoch: Epoch
    stage: StageId


@dataclass(frozen=True, slots=True)
class WeightsGranted(Event):
    """A weight server holds `version` for the one that asked until it is released.

    interval: None where the run asked, for an evaluation
    load:     how many hold a version there
    """

    server: ServerId
    interval: IntervalId | None
    epoch: Epoch
    version: Version
    load: int


@dataclass(frozen=True, slots=True)
class GradientTaken(Event):
    """The home of a phase's parameters has this gradient. It is told of one that came before, too."""

    epoch: Epoch
    phase: PhaseId
    interval: IntervalId


# To weight servers


@dataclass(frozen=True, slots=True)
class WeightsAsked(Event):
    """Hold a version for (interval, epoch).

    sender:   who asks and gets the answer
    interval: None: the run asks, for the evaluation of `epoch`
    version:  exactly this one, as soon as it is there; None: the latest
    oldest:   the latest, but none older than this one: wait for it; None: the latest that is there
    """

    sender: Address
    interval: IntervalId | None
    epoch: Epoch
    version: Version | None
    oldest: Version | None = None


@dataclass(frozen=True, slots=True)
class WeightsReleased(Event):
    """(interval, epoch) is done with its version.

    best: an evaluation's: keep a copy, it is the best model so far
    """

    interval: IntervalId | None
    epoch: Epoch
    best: bool = False


@dataclass(frozen=True, slots=True)
class GradientArrived(Event):
    """An interval's gradient for the parameters of a phase, whose home this is."""

    epoch: Epoch
    phase: PhaseId
    interval: IntervalId


@dataclass(frozen=True, slots=True)
class UpdateDone(Event):
    """The optimizer has made `version` of the parameters whose home this is."""

    version: Version


@dataclass(frozen=True, slots=True)
class WeightsMade(Event):
    """A weight server has made `version` of the parameters whose home it is; the message carries them."""

    home: ServerId
    version: Version


@dataclass(frozen=True, slots=True)
class NormsTold(Event):
    """Norms of the gradients that a home has gathered for `version`.

    norms: (place of the parameter in the model, norm), of each of its parameters
    """

    home: ServerId
    version: Version
    norms: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class UpdateDue(Event):
    """A home has the gradients of `version` but there is no room for it: let no one enter on an older one."""

    version: Version


@dataclass(frozen=True, slots=True)
class RoomMade(Event):
    """A weight server can take every version up to `version`."""

    server: ServerId
    version: Version


# To the run


@dataclass(frozen=True, slots=True)
class Ready(Event):
    """A server has begun."""

    sender: Address


@dataclass(frozen=True, slots=True)
class Noted(Event):
    """A server knows that another was replaced, in that life, and has sent again what it had for it."""

    sender: Address
    server: Address
    life: Life


@dataclass(frozen=True, slots=True)
class EpochFinished(Event):
    """All intervals of a graph server have passed `epoch`, and their gradients are where they belong.

    measures: their sums
    """

    lane: LaneName
    server: ServerId
    epoch: Epoch
    measures: Measures


@dataclass(frozen=True, slots=True)
class StateMade(Event):
    """A home has made its part of `version`; the message carries that and the optimizer's state of it.

    gradients:     in the versions that it has made
    versions_peak: as it has counted them until now
    """

    home: ServerId
    version: Version
    gradients: int
    versions_peak: int


@dataclass(frozen=True, slots=True)
class Settled(Event):
    """A weight server holds all of the version that it was asked to settle at."""

    server: ServerId
    settle: Settle


@dataclass(frozen=True, slots=True)
class BestKept(Event):
    """A weight server has a copy of the best model so far, evaluated after `epoch`."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class EpochClosed(Event):
    """The run's owner has seen the record of `epoch`, and the rates of the next are decided.

    incarnation: in which the record was made
    stop:        the run ends here
    """

    incarnation: Incarnation
    epoch: Epoch
    stop: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointAsked(Event):
    """Someone wants a checkpoint at the next epoch's end that allows one."""


@dataclass(frozen=True, slots=True)
class CheckpointSaved(Event):
    """The checkpoint after `epochs` epochs can be started from."""

    epochs: Epoch


@dataclass(frozen=True, slots=True)
class StopAsked(Event):
    """Someone wants the run to end soon: after a checkpoint."""


@dataclass(frozen=True, slots=True)
class HandOverAsked(Event):
    """Another is to take a server's place at the end of the open epoch, when there is nothing to do again.

    Where all would begin again after a loss, nothing comes of it.
    """

    server: Address


@dataclass(frozen=True, slots=True)
class ServerGone(Event):
    """A server is lost, in that life, with all it held."""

    server: Address
    life: Life


@dataclass(frozen=True, slots=True)
class CopyMade(Event):
    """An eager copy of a graph server waits to begin, in that life."""

    copy: Address
    life: Life


@dataclass(frozen=True, slots=True)
class CopyGone(Event):
    """An eager copy, in that life, is lost, or takes its server's place."""

    copy: Address
    life: Life
