"""Setup: what all machines of a run must agree on."""

from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from siafu.base.errors import SiafuError
from siafu.pipeline.ids import Address, Mode, PhaseId, ServerId
from siafu.pipeline.layout import Layout
from siafu.pipeline.schedule import Schedule
from siafu.weights.policy import VersionPolicy


@dataclass(frozen=True)
class Setup:
    """What all machines of a run must agree on.

    staleness:    async: no interval may be more than this many epochs ahead of the slowest
    update_every: async: how many intervals' gradients make an update, whoever's they are; None: those of one epoch
    rows_stay:    rows can be sent again until their epoch is closed: one that takes a lost server's place gets them again.
                  Else all begin the open epoch again
    gather_parts: pipe: into about how many parts a gather may be cut that begins before all its rows are there; 0: it waits
    alternate:    evaluations use the training's tables: training waits for their end, as they wait for the epoch's
    paced:        the run sends the rates of every version; else the optimizer's settings hold
    clipped:      an update needs the norms of all homes' gradients
    """

    training: Schedule
    evaluation: Schedule
    layout: Layout
    weight_servers: int
    mode: Mode
    policy: VersionPolicy
    staleness: int = 0
    update_every: int | None = None
    alternate: bool = False
    paced: bool = False
    clipped: bool = False
    gather_parts: int = 0
    rows_stay: bool = True

    def __post_init__(self) -> None:
        if not self.training.parameters:
            raise SiafuError("the training schedule gives no gradient: no version would ever be made")
        if self.weight_servers < 1 or self.staleness < 0 or self.gradients_an_update < 1:
            raise SiafuError(
                f"weight_servers is {self.weight_servers}, staleness {self.staleness}, update_every {self.update_every}: "
                "give at least 1, 0 and 1"
            )
        if self.gather_parts < 0 or (self.gather_parts and self.mode != "pipe"):
            raise SiafuError(
                f"gathers of a {self.mode} run in {self.gather_parts} parts: none of them can begin early"
            )
        if self.alternate and self.mode == "async":
            raise SiafuError(
                "intervals of an asynchronous run are never all at an epoch's end: evaluate beside it"
            )

    @cached_property
    def gradients_an_update(self) -> int:
        return self.layout.num_intervals if self.update_every is None else self.update_every

    @cached_property
    def homes(self) -> dict[PhaseId, ServerId]:
        """The weight server that gathers a phase's gradients and updates its parameters."""
        return {
            phase: ServerId(place % self.weight_servers)
            for place, phase in enumerate(self.training.parameters)
        }

    @cached_property
    def parts(self) -> frozenset[ServerId]:
        """The weight servers that are a home: each makes its part of every version."""
        return frozenset(self.homes.values())

    @cached_property
    def graph_addresses(self) -> tuple[Address, ...]:
        return tuple(Address("graph", ServerId(each)) for each in range(self.layout.num_servers))

    @cached_property
    def weight_addresses(self) -> tuple[Address, ...]:
        return tuple(Address("weight", ServerId(each)) for each in range(self.weight_servers))

    @property
    def exact(self) -> bool:
        """Whether every epoch makes one version and reads its own rows."""
        return self.mode != "async"

    @property
    def closes(self) -> bool:
        """Whether every epoch makes one version, which the run keeps: after a loss no recorded epoch is done again."""
        return self.exact or self.update_every is None

    @cached_property
    def ahead(self) -> Schedule | None:
        """The stages of an epoch that an eager copy runs: those before the loss is made. None: it can run none."""
        forward = tuple(takewhile(lambda stage: stage.direction == "forward", self.training.stages))
        return Schedule(forward) if forward and self.resumes else None

    @cached_property
    def resumes(self) -> bool:
        """Whether a loss is mended within the open epoch. Of gathers by columns, gradients take the place of sums."""
        by_columns = any(stage.everywhere for stage in (*self.training.stages, *self.evaluation.stages))
        return self.exact and self.rows_stay and not by_columns
