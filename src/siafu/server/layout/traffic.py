"""RowTraffic: bytes that servers send each other in one pass over a program, graph phase by graph phase, in either layout."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from siafu.graph import Graph
from siafu.graph.partition import Partition
from siafu.graph.partition.quality import PartitionQuality, measure
from siafu.kernels import padded
from siafu.program.program import GatherStep, Program
from siafu.server.gathers.column_space import slices_of
from siafu.server.gathers.registry import behaviour_of
from siafu.server.layout.layouts import column_phases


@dataclass(frozen=True, slots=True)
class Crossings:
    """Vertices whose rows cross from server to server; of a graph that is only planned, these may be fractions.

    vertices:          of each server
    forward, backward: ghosts of all servers together
    balance:           the most edges of a server over the mean
    """

    vertices: Sequence[float]
    forward: float
    backward: float
    balance: float = 1.0

    @classmethod
    def of(cls, found: PartitionQuality) -> "Crossings":
        """Those of a partition that was measured."""
        forward, backward = int(found.forward_ghosts.sum()), int(found.backward_ghosts.sum())
        return cls(found.vertices.tolist(), forward, backward, found.edge_balance)


@dataclass(frozen=True, slots=True)
class PhaseTraffic:
    """One graph phase G(phase), forth and, in a training, back.

    widths:            numbers in a row of each of its gathers
    vertices, columns: bytes that all servers send, in either layout
    """

    phase: int
    widths: tuple[int, ...]
    vertices: float
    columns: float


@dataclass(frozen=True, slots=True)
class RowTraffic:
    """Bytes of a program's rows between servers.

    whole: vertices that cross
    last:  those of them that the last gather's rows need
    """

    program: Program
    itemsize: int
    training: bool
    whole: Crossings
    last: Crossings

    @classmethod
    def of(
        cls,
        graph: Graph,
        partition: Partition,
        program: Program,
        needed: Iterable[Tensor],
        itemsize: int,
        *,
        training: bool,
    ) -> "RowTraffic":
        """Counted in a partition, to the byte; needed: vertices whose rows the last phase computes."""
        rows = np.unique(np.concatenate([each.numpy() for each in needed]))
        whole, last = (Crossings.of(measure(graph, partition, needed=each)) for each in (None, rows))
        return cls(program, itemsize, training, whole, last)

    def phases(self) -> tuple[PhaseTraffic, ...]:
        """Of the graph phases that can be laid out by columns."""
        return tuple(
            PhaseTraffic(
                phase,
                tuple(step.site.width for step in self.program.gathers[phase - 1]),
                self._sum(phase, self._by_vertices),
                self._sum(phase, self._by_columns),
            )
            for phase in column_phases(self.program)
        )

    def _sum(self, phase: int, of: Callable[[GatherStep, Crossings, bool], float]) -> float:
        group = self.program.gathers[phase - 1]
        found = self.last if phase == len(self.program.gathers) else self.whole
        ways = (False, True) if self.training and any(step.differentiated for step in group) else (False,)
        return sum(of(step, found, back) for step in group for back in ways)

    def _by_vertices(self, step: GatherStep, found: Crossings, back: bool) -> float:
        ghosts = found.backward if back else found.forward
        return ghosts * self._column(step, made=False, back=back) * padded(step.site.width)

    def _by_columns(self, step: GatherStep, found: Crossings, back: bool) -> float:
        """Rows go to the slices, and what comes of them goes to the owners; the last gather's are those that are needed."""
        every, some = (_moved(each.vertices, step.site.width) for each in (self.whole, found))
        there, again = (some, every) if back else (every, some)
        made = again * self._column(step, made=True, back=back)
        return there * self._column(step, made=False, back=back) + made

    def _column(self, step: GatherStep, *, made: bool, back: bool) -> int:
        gather, training = step.site.gather, self.training
        behaviour = behaviour_of(gather)
        return behaviour.column_bytes(gather, self.itemsize, made=made, back=back, training=training)


def _moved(vertices: Sequence[float], width: int) -> float:
    """Numbers of all vertices' rows that are on another server than their slice."""
    cuts = slices_of(width, len(vertices))
    at_home = [own * int(cut.stop - cut.start) for own, cut in zip(vertices, cuts, strict=True)]
    return sum(vertices) * width - sum(at_home)
