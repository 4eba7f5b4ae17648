"""Extent: a program on a graph: how much its stages go over."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from siafu.pipeline.schedule import Stage
from siafu.program.program import GatherStep, Program
from siafu.program.tensor_program import RowCount, Spec
from siafu.server.memory.savings import Savings


@dataclass(frozen=True, slots=True, eq=False)
class Extent:
    """A program on a graph, as costs see it. Of a graph that is only planned, shares may be fractions.

    program:  what runs
    numbers:  how many each of its weights has, by name
    vertices, edges: of the graph
    needed_rows:  that the last phase computes
    needed_edges: that lead to those rows: the last gather goes over no others
    training: whether a backward pass follows
    itemsize: bytes of a number
    weighted: whether the graph's edges have weights
    savings:  how memory is spared
    """

    program: Program
    numbers: Mapping[str, int]
    vertices: float
    edges: float
    needed_rows: float
    needed_edges: float
    training: bool
    itemsize: int = 4
    weighted: bool = False
    savings: Savings = Savings()

    @property
    def last(self) -> int:
        """The last tensor phase, which makes the loss or measures."""
        return len(self.program.phases) - 1

    def rows_of(self, stage: Stage) -> float:
        """Rows that a tensor stage computes."""
        return self.needed_rows if stage.phase == self.last else self.vertices

    def edges_of(self, stage: Stage) -> float:
        """Edges that a gather goes over."""
        return self.needed_edges if stage.phase == self.last else self.edges

    def steps(self, stage: Stage) -> tuple[GatherStep, ...]:
        """The gathers of a graph phase."""
        return self.program.gathers[stage.phase - 1]

    def widths(self, names: Iterable[str]) -> tuple[int, ...]:
        """Numbers in a row of each."""
        return tuple(math.prod(self.program.shapes[name]) for name in names)

    def bytes(self, names: Iterable[str]) -> float:
        """Of one row of all of them."""
        return float(self.itemsize * sum(self.widths(names)))

    def parameters(self, names: Iterable[str]) -> int:
        """Numbers in these weights."""
        return sum(self.numbers[name] for name in names)

    def row_bytes(self, specs: Iterable[Spec | None], rows: int) -> int:
        """Of all that has as many rows; what has none counts nothing."""
        kinds = {"float": self.itemsize, "int64": 8}
        return sum(
            kinds.get(spec.kind, 1) * cast(int, math.prod(spec.sizes(rows)))
            for spec in specs
            if spec is not None and any(isinstance(size, RowCount) for size in spec.shape)
        )
