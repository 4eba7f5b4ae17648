"""What the machines ask of the runtime, to be done in the order given."""

from dataclasses import dataclass
from typing import Literal

from siafu.pipeline.events import Event, Measures
from siafu.pipeline.ids import Address, Epoch, IntervalId, LaneName, Life, PhaseId, ServerId, StageId, Version
from siafu.pipeline.task import Task

StopReason = Literal["finished", "patience", "diverged", "asked", "told"]


@dataclass(frozen=True, slots=True)
class Instruction:
    pass


@dataclass(frozen=True, slots=True)
class Send(Instruction):
    """Bring `message` to the machine at `to`, at least once.

    With a `RowsArrived` go the rows that it names, with a `GradientArrived` the gradient, with a `WeightsMade`
    the weights, with a `StateMade` the weights and the optimizer's state, with a `Begin` or a `Resume` those of its start, with a
    `RunAhead` the weights of its version.
    What was sent since the last close can be sent again.

    also: the same rows go there, too: to an eager copy; None: to nobody else
    """

    to: Address
    message: Event
    also: Address | None = None


# From graph servers


@dataclass(frozen=True, slots=True)
class Abandon(Instruction):
    """A new incarnation begins: tasks that wait are not run, and what running ones make is thrown away. Nothing may
    be written to the tables on their behalf after this."""


@dataclass(frozen=True, slots=True)
class Adopt(Instruction):
    """A server begins with what it made as an eager copy: its rows and ghosts of the open epoch stay in the tables."""


@dataclass(frozen=True, slots=True)
class RunTask(Instruction):
    """Run a task, as `Task.priority` orders those that are ready, and report it by `TaskDone`.

    version, weights: the weights of a tensor stage, and the weight server that holds them; a gather ignores them
    """

    task: Task
    version: Version
    weights: ServerId


@dataclass(frozen=True, slots=True)
class BeginTask(Instruction):
    """A gather that waits may be begun, where nothing else is to do: rows of its sources before `until` are there.

    Sources are added in the order of `Layout.sources`, each once. `RunTask`, which always follows, ends the gather, and may
    come before it was begun; it reads what was not added until then.
    """

    task: Task
    until: IntervalId


@dataclass(frozen=True, slots=True)
class KeepResult(Instruction):
    """The result of a task that just finished counts: its rows may be stored now. Any other is thrown away."""

    task: Task


@dataclass(frozen=True, slots=True)
class KeepRows(Instruction):
    """The rows that just arrived go to the ghost table; rows that no `KeepRows` names are thrown away."""

    lane: LaneName
    epoch: Epoch
    stage: StageId
    interval: IntervalId


@dataclass(frozen=True, slots=True)
class CompareRows(Instruction):
    """The rows that just arrived came before, from another life of their server: count those that differ."""

    lane: LaneName
    epoch: Epoch
    stage: StageId
    interval: IntervalId


@dataclass(frozen=True, slots=True)
class ForgetGradients(Instruction):
    """Gradients of the epochs before `before` need not be sent again."""

    before: Epoch


# From weight servers


@dataclass(frozen=True, slots=True)
class Restore(Instruction):
    """Hold `version`, as the run has it after `epochs` epochs, and nothing else: no other version and no gradient. The
    optimizer's state of the parameters whose home this is, too.

    held: an earlier version, which an evaluation uses that is run again; None: there is none
    """

    epochs: Epoch
    version: Version
    held: Version | None = None


@dataclass(frozen=True, slots=True)
class Accumulate(Instruction):
    """Add an interval's gradient to the sum that will make a phase's `version`. In sync and pipe these come in the
    order of the intervals, so that sums are equal bit by bit."""

    phase: PhaseId
    version: Version
    epoch: Epoch
    interval: IntervalId


@dataclass(frozen=True, slots=True)
class Update(Instruction):
    """Make `version` of the parameters whose home this is, from the one before and the sums; report `UpdateDone`.

    By then both versions are held; the instructions that follow the report free what is not needed.

    rates: of each group of parameters, as `RatesSet` has them; (): those of the settings
    norms: of all parameters' gradients, by the parameters' places in the model; (): nothing is clipped
    """

    version: Version
    rates: tuple[float, ...] = ()
    norms: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TellNorms(Instruction):
    """Tell every home, this one too, the norms of the gradients that were gathered here for `version`: `NormsTold`."""

    version: Version


@dataclass(frozen=True, slots=True)
class KeepWeights(Instruction):
    """The part of a version that just arrived is held here; one that no `KeepWeights` names is thrown away."""

    home: ServerId
    version: Version


@dataclass(frozen=True, slots=True)
class FreeWeights(Instruction):
    """No one here needs `version` any more, nor the parts of it that came."""

    version: Version


@dataclass(frozen=True, slots=True)
class KeepBest(Instruction):
    """Copy `version` of all phases, which is still held: the best model so far, evaluated after `epoch`.

    From the run where it has every version's state, else from a weight server.
    """

    epoch: Epoch
    version: Version


# From the run


@dataclass(frozen=True, slots=True)
class RecordEpoch(Instruction):
    """An epoch is trained, and evaluated if that was its turn. They come in the order of the epochs.

    training:   the measures of its training
    evaluation: those of its evaluation, of `version`; None: it had none
    """

    epoch: Epoch
    training: Measures
    evaluation: Measures | None
    version: Version | None


@dataclass(frozen=True, slots=True)
class KeepState(Instruction):
    """A home's part of `version`, and the optimizer's state of it, which just came: the version after `epochs` epochs."""

    home: ServerId
    version: Version
    epochs: Epoch


@dataclass(frozen=True, slots=True)
class CloseEpochs(Instruction):
    """The run begins again after `epochs` epochs, with `version`, if a server is lost from now on.

    States of earlier versions may go.

    held: but not of this one, which an evaluation uses; None: no earlier one is in use
    """

    epochs: Epoch
    version: Version
    held: Version | None


@dataclass(frozen=True, slots=True)
class HoldCheckpoint(Instruction):
    """Hold what the run has after `epochs` epochs, which were closed just now: a checkpoint once they are recorded."""

    epochs: Epoch
    version: Version


@dataclass(frozen=True, slots=True)
class SaveCheckpoint(Instruction):
    """Save `version` and the optimizers' state.

    In an exact run they were held, and training goes on. Else they stand still now: report it by `CheckpointSaved`.
    """

    epochs: Epoch
    version: Version


@dataclass(frozen=True, slots=True)
class Rewind(Instruction):
    """A server is lost. What was recorded after `epochs` epochs is void; exact epochs that are recorded stay.

    to_checkpoint: the run goes on from its last checkpoint, whose best model holds; else from the epochs that are closed
    """

    epochs: Epoch
    to_checkpoint: bool


@dataclass(frozen=True, slots=True)
class Replace(Instruction):
    """Start another server in place of a lost one, in that life.

    within: the others go on within the open epoch; else all begin again
    """

    server: Address
    life: Life
    within: bool = False


@dataclass(frozen=True, slots=True)
class Stop(Instruction):
    """The run has ended.

    epochs:  how many are done
    version: the weights after them, which every weight server holds; None: it diverged
    best:    the epoch whose weights were kept; None: none was evaluated
    """

    reason: StopReason
    epochs: Epoch
    version: Version | None
    best: Epoch | None
