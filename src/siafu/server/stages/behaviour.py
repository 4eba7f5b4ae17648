"""StageBehaviour: how stages of one kind run, what they cost and how they are described. LocalStage: one on one server."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from siafu.pipeline.schedule import Stage
from siafu.pipeline.stage_kind import StageKind
from siafu.program.program import Program
from siafu.server.costs.extent import Extent
from siafu.server.costs.held_array import HeldArray
from siafu.server.costs.stage_cost import StageCost
from siafu.server.costs.work import Work
from siafu.server.lane import Done, Lane, Weights
from siafu.server.remote import TaskInputs, TaskSettings
from siafu.server.scattered import Scattered
from siafu.server.stages.draws import Draws


class LocalStage(ABC):
    """One stage of a lane on one graph server. Intervals are counted from the server's first.

    scattered: rows that go to other servers after a task of it
    begins:    a task can begin with some of the rows that it gathers
    """

    scattered: Sequence[Scattered] = ()
    begins: bool = False

    @abstractmethod
    def run(self, interval: int, weights: Weights, epoch: int) -> Done:
        """Run a task in the calling thread; what it gives besides rows."""

    def begin(self, interval: int, epoch: int, until: int) -> None:
        """Begin a task with the rows of its sources before `until`, or go on with it; of stages that begin only."""
        raise NotImplementedError

    def task_inputs(self, interval: int, epoch: int, settings: TaskSettings) -> TaskInputs:
        """What to compute elsewhere for a task; of remote kinds only."""
        raise NotImplementedError

    def finish(self, interval: int, outputs: Mapping[str, Tensor]) -> Done:
        """Take what was computed elsewhere; what the task gives besides rows."""
        raise NotImplementedError

    def begin_anew(self) -> None:  # noqa: B027  (most stages leave nothing but a lane's rows)
        """Forget what tasks have left for others."""


class StageBehaviour(ABC):
    """One kind of stage.

    kind: what the machines know of it, which do the same with all kinds
    """

    kind: StageKind

    def place(self, program: Program, stages: Iterable[Stage], *, training: bool) -> Iterable[Stage]:
        """The stages of a pass with those of this kind put where they belong; ids and reads are numbered afterwards."""
        return stages

    @abstractmethod
    def local(self, lane: Lane, stage: Stage, draws: Draws) -> LocalStage:
        """How it runs; made once for each server, lane and stage. draws: what dropout is drawn from."""

    @abstractmethod
    def cost(self, extent: Extent, stage: Stage) -> StageCost:
        """What it costs and how it is described, for people."""

    def work(self, extent: Extent, stage: Stage) -> Work:
        """What it costs in virtual time."""
        return self.cost(extent, stage).work()

    def held(self, extent: Extent, stage: Stage) -> tuple[HeldArray, ...]:
        """The arrays of rows that it holds on a server, each named by one stage only."""
        return ()
