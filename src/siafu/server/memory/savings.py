"""Savings: how a run spares memory. None of them changes a result, not in the last bit."""

from dataclasses import dataclass

from siafu.server.memory.disk_share import DiskCut


@dataclass(frozen=True, slots=True)
class Savings:
    """How a run spares memory; without any, everything has a table of its own.

    fused:  gathers, by place (G1 is 0), whose rows have no table: they are one stage with the tensor phase that reads them.
            One that cannot be is left as it is
    remade: tensor phases that keep nothing for their backward pass, which computes the products again
    in_place: gradients take the place of rows that nobody reads any more
    shared: evaluations use the training's tables, and neither runs beside the other
    disk:   tables that edges read are on disk, of gathers that are `fused` and can be so; None: all are in memory
    """

    fused: frozenset[int] = frozenset()
    remade: frozenset[int] = frozenset()
    in_place: bool = False
    shared: bool = False
    disk: DiskCut | None = None

    @property
    def reads_all(self) -> bool:
        """Whether a gather waits for the rows of all intervals: those on disk are read partition after partition."""
        return self.disk is not None and self.disk.tables

    @property
    def rows_in_place(self) -> bool:
        """Whether gradients take the place of rows that stay at their vertices; on disk each have their own."""
        return self.in_place and (self.disk is None or not self.disk.rows)

    def __or__(self, other: "Savings") -> "Savings":
        """Both together."""
        return Savings(
            self.fused | other.fused,
            self.remade | other.remade,
            self.in_place or other.in_place,
            self.shared or other.shared,
            self.disk or other.disk,
        )
