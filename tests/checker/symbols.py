"""Symbols: what stands for rows, gradients and weights in a simulated run: where they come from."""

from dataclasses import dataclass

from siafu.pipeline.ids import Epoch, Incarnation, IntervalId, LaneName, PhaseId, ServerId, StageId, Version
from siafu.pipeline.task import Task

RowsKey = tuple[LaneName, StageId, IntervalId]


@dataclass(frozen=True, slots=True)
class Rows:
    """An interval's rows of a stage, or sums over them: made in this epoch, with this version."""

    incarnation: Incarnation
    epoch: Epoch
    version: Version
    interval: IntervalId


@dataclass(frozen=True, slots=True)
class Gradient:
    """An interval's gradient for the parameters of a phase, computed with `version`."""

    incarnation: Incarnation
    epoch: Epoch
    phase: PhaseId
    interval: IntervalId
    version: Version


@dataclass(frozen=True, slots=True)
class Part:
    """One home's part of a version: what was added to the version before."""

    incarnation: Incarnation
    home: ServerId
    version: Version
    gradients: tuple[Gradient, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """What a task found in a table when it began, and whether it was still there when it ended."""

    key: RowsKey
    rows: Rows | None
    unchanged: bool


@dataclass(frozen=True, slots=True)
class Result:
    """What a task made: rows, and of what."""

    task: Task
    rows: Rows
    reads: tuple[Read, ...]


class Tables:
    """The rows that a graph server holds, its own and ghosts. Nothing is cleared: what is not overwritten stays."""

    def __init__(self) -> None:
        self.rows: dict[RowsKey, Rows] = {}


class Shelf:
    """What a weight server holds: parts of versions, and sums of gradients.

    lost: the server died, with all of it
    """

    def __init__(self) -> None:
        self.lost = False
        self.parts: dict[Version, dict[ServerId, Part]] = {}
        self.sums: dict[tuple[PhaseId, Version], list[Gradient]] = {}

    def clear(self) -> None:
        self.parts.clear()
        self.sums.clear()
