"""Program: a model compiled to tensor phases and graph phases, in turn."""

import math
from dataclasses import dataclass

from siafu.program.phase_programs import PhasePrograms
from siafu.program.record.cut import Cut
from siafu.program.record.record import GatherSite
from siafu.program.record.statistics import RunningStatistics


@dataclass(frozen=True, eq=False, slots=True)
class TensorPhase:
    """Rows in, rows out, each vertex alone.

    inputs, outputs: names of rows
    weights:         names of the parameters and buffers that it reads, in the programs' order
    learnt:          those of them that get a gradient
    differentiated:  those of `inputs` that get a gradient; constants get none
    programs:        what runs; the last phase's contain the loss
    totals:          names of the statistics over all vertices that it reads
    moved:           those of them that get a gradient
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...]
    learnt: tuple[str, ...]
    differentiated: tuple[str, ...]
    programs: PhasePrograms
    totals: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class ReduceStep:
    """Statistics over the rows of all vertices: sums over intervals, taken together by every server.

    sent:           name of the rows
    out:            name of what comes of them: [1, *shape], their mean, or [2, *shape], their mean and variance
    shape:          of a row
    variance:       whether there is a variance
    differentiated: whether the rows get a gradient
    running:        buffers of the model that follow the statistics, epoch by epoch; None: none do
    """

    sent: str
    out: str
    shape: tuple[int, ...]
    variance: bool
    differentiated: bool
    running: RunningStatistics | None = None

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False, slots=True)
class GatherStep:
    """One gather of a graph phase.

    site:           what it does
    sent:           names of the rows that go along the edges, or that their ends look up
    out:            name of the rows that come of it
    edge:           what runs on edges; None: rows are gathered as they are
    learnt:         the weights of `edge` that get a gradient
    differentiated: those of `sent` that get a gradient
    slices:         laid out by columns: each of so many servers gathers a slice of them for all vertices; 0: by vertices
    """

    site: GatherSite
    sent: tuple[str, ...]
    out: str
    edge: PhasePrograms | None
    learnt: tuple[str, ...]
    differentiated: tuple[str, ...]
    slices: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """phases[0] · gathers[0] and reduces[0] · phases[1] · … · phases[-1], of which the last has the loss.

    Between two phases there are gathers, statistics over all vertices, or both; phases[n] reads the statistics of
    reduces[n - 1], and perhaps earlier ones.

    shapes:    of one row, by the rows' names
    constants: rows that are computed once, in the order of cut.constants
    cut:       where it all came from
    choices:   what was decided on the way and why, for people
    """

    phases: tuple[TensorPhase, ...]
    gathers: tuple[tuple[GatherStep, ...], ...]
    shapes: dict[str, tuple[int, ...]]
    constants: tuple[str, ...]
    cut: Cut
    choices: tuple[str, ...]
    reduces: tuple[tuple[ReduceStep, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.reduces:
            object.__setattr__(self, "reduces", tuple(() for _ in self.gathers))

    @property
    def of_vertices(self) -> frozenset[str]:
        """Names of the weights that have a row for each vertex."""
        return frozenset().union(*(phase.programs.of_vertices for phase in self.phases))

    @property
    def output(self) -> str:
        """The rows that come out of the model."""
        return self.phases[-1].outputs[-1]
