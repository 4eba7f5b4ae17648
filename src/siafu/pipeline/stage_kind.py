"""StageKind: what the machines and executors need to know of all stages of one sort."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageKind:
    """A kind of stage. How its tasks run and what they cost is told elsewhere (`siafu.server.stages`).

    name:   for people and errors; no two kinds share one
    letter: the first of its stages' names: T0, G1, ∇T0
    remote: whether its tasks may run on Lambdas: they read rows of their own interval, and weights, alone
    reads:  whether it reads rows that other intervals have scattered
    begins: whether a task of it can begin with some of those rows, before the others are there
    """

    name: str
    letter: str
    remote: bool = False
    reads: bool = False
    begins: bool = False

    def __str__(self) -> str:
        return self.name


TENSOR = StageKind("tensor", "T", remote=True)
"""A tensor phase: rows in, rows out, each vertex alone."""

GATHER = StageKind("gather", "G", reads=True, begins=True)
"""A graph phase: every vertex gathers rows along its edges."""

COLUMNS = StageKind("columns", "C", reads=True)
"""A graph phase laid out by columns: a server gathers some columns, for a share of all vertices, and their owners get them."""

FUSED = StageKind("gather and tensor", "GT", reads=True)
"""A graph phase and the tensor phase that reads it, in one task: gathered rows are used up where they are made."""
