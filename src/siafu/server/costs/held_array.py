"""HeldArray: an array of rows that a stage or a gather holds on one server, known before it is allocated."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from siafu.kernels import table_row_bytes


class RowCounts(NamedTuple):
    """Rows of a server's arrays: own ones; with the ghosts that its gathers read, forward and backward; all of the graph."""

    own: int
    forward: int
    backward: int
    every: int


class Grouped(NamedTuple):
    """Numbers that groups of rows hold while they are gathered from disk.

    rows:  for each row, while the group is made and until its rows were used
    types: for each row and type of its edges, in a table whose rows stay as `rows` do; the gathered rows are in the threads' buffers
    collected: the rows that a group's edges read are collected, before any is gathered; the gathered rows are in the threads' buffers.
           `rows` are then of own rows that a thread reads at a time
    through: times that own rows are read in order in an epoch, where others are collected
    """

    rows: int = 0
    types: int = 0
    collected: bool = False
    through: int = 0


@dataclass(frozen=True, slots=True)
class HeldArray:
    """An array of rows on one graph server.

    name:     for people, unique in its stage
    purpose:  why it is there
    until:    when its rows of one epoch are used up: after the "gather" that follows, or in the "backward" pass
    columns, itemsize: numbers in a row, and bytes of each
    rows:     which rows it has: the server's own, those with the ghosts of one direction, or every vertex's
    forward, backward: the own rows that each pass writes: "all" or only those that are "needed"; None: it writes none
    aligned:  rows start on cache lines and have spare columns, as kernels want it
    on_threads: it is there only where the stage's tasks run on threads: Lambdas keep theirs
    passes:   it is there only where the rows that are gathered have a table
    on_disk:  it may be on disk: "source", what edges read, or "rows", what stays at its vertices
    grouped:  numbers that groups of rows hold while they are gathered from disk; None: for each row as many as columns
    beside:   on disk, what goes back is gathered from it and from the forward tables at the same time
    reads_back: times that a gather from disk goes through it on the way back, where it is a forward table
    over:     the array whose place it takes where gradients take the place of rows; None: none
    """

    name: str
    purpose: str
    until: Literal["gather", "backward"]
    columns: int
    itemsize: int
    rows: Literal["own", "forward", "backward", "every"] = "own"
    forward: Literal["all", "needed"] | None = None
    backward: Literal["all", "needed"] | None = None
    aligned: bool = True
    on_threads: bool = False
    passes: bool = False
    on_disk: Literal["source", "rows"] | None = None
    over: str | None = None
    grouped: Grouped | None = None
    beside: bool = False
    reads_back: int = 0

    @property
    def row_bytes(self) -> int:
        """Of one row, with what is spare."""
        if self.aligned:
            return table_row_bytes(self.columns, self.itemsize)
        return self.columns * self.itemsize

    @property
    def is_collected(self) -> bool:
        """Whether rows that edges read of it are collected, group by group, where it is on disk."""
        return self.grouped is not None and self.grouped.collected

    def of(self, what: str) -> "HeldArray":
        """The same array with a name that says whose it is."""
        return replace(self, name=f"{what} {self.name}")

    def bytes(self, counts: RowCounts) -> int:
        """Of the whole array."""
        return self.row_bytes * int(getattr(counts, self.rows))

    def filled(self, *, all_needed: bool, goes_back: bool) -> bool:
        """Whether every own row is written in an epoch.

        all_needed: whether all rows of what is gathered are needed
        goes_back:  whether a backward pass comes to this gather
        """
        passes = (self.forward, self.backward if goes_back else None)
        return "all" in passes or (all_needed and "needed" in passes)


def total_bytes(arrays: Iterable[HeldArray], counts: RowCounts) -> int:
    """Of all of them on one server."""
    return sum(each.bytes(counts) for each in arrays)
