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
    heads:             softmaxes of each of its gathers; (): none has any
    """

    phase: int
    widths: tuple[int, ...]
    vertices: float
    columns: float
    heads: tuple[int, ...] = ()


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
                tuple(_heads(step) for step in self.program.gathers[phase - 1]),
            )
            for phase in column_phases(self.program)
        )

    def _sum(self, phase: int, of: Callable[[GatherStep, Crossings, bool], float]) -> float:
        group = self.program.gathers[phase - 1]
        found = self.last if phase == len(self.program.gathers) else self.whole
        ways = (False, True) if self.training and any(step.differentiated for step in group) else (False,)
        return sum(of(step, found, back) for step in group for back in ways)

    def _by_vertices(self, step: GatherStep, found: Crossings, back: bool) -> float:
        """Rows of ghosts, and logits: forth those of sources, back those of targets, denominators and ⟨gradient, out⟩."""
        ghosts, gather = found.backward if back else found.forward, step.site.gather
        behaviour = behaviour_of(gather)
        a_column = behaviour.column_bytes(
            gather, self.itemsize, made=False, back=back, training=self.training
        )
        logits = _heads(step) * self.itemsize * (3 if back else 1)
        return ghosts * (a_column * padded(behaviour.columns(gather, step.site.width)) + logits)

    def _by_columns(self, step: GatherStep, found: Crossings, back: bool) -> float:
        """Rows go to the slices, and what comes of them goes to the owners; the last gather's are those that are needed."""
        there, again = (found, self.whole) if back else (self.whole, found)
        return self._moved(step, there, made=False, back=back) + self._moved(
            step, again, made=True, back=back
        )

    def _moved(self, step: GatherStep, found: Crossings, *, made: bool, back: bool) -> float:
        """Bytes of rows that are on another server than their slice."""
        gather, vertices = step.site.gather, found.vertices
        sizes = behaviour_of(gather).slice_bytes(
            gather,
            step.site.width,
            len(vertices),
            self.itemsize,
            made=made,
            back=back,
            training=self.training,
        )
        at_home = sum(own * size for own, size in zip(vertices, sizes, strict=True))
        return sum(vertices) * sum(sizes) - at_home


def _heads(step: GatherStep) -> int:
    return behaviour_of(step.site.gather).heads(step.site.gather)
