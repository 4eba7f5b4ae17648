"""GatherBehaviour: how gathers of one type run on a server, what they cost, and which arrays they hold."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch

from siafu.kernels import MAX_TILE
from siafu.nn.gathers.gather import Gather, refused_messages
from siafu.nn.tensors import is_halved
from siafu.program.program import GatherStep
from siafu.program.tensor_program import TensorProgram
from siafu.server.costs.extent import Extent
from siafu.server.costs.held_array import HeldArray
from siafu.server.costs.program_work import row_work
from siafu.server.costs.work import Work
from siafu.server.edges import ServerEdges
from siafu.server.gathers.by_columns.column_gather import ColumnGather
from siafu.server.gathers.by_columns.column_space import ColumnSlice, ColumnSpace, column_slices, widest_slice
from siafu.server.gathers.by_columns.row_slices import RowSlices
from siafu.server.gathers.edgewise.reduction import Reduction
from siafu.server.gathers.gather_tables import DiskTables, GatherTables
from siafu.server.gathers.local_gather import LocalGather, Mask, stored_size

_FLOAT = 4
_LINE = 64  # bytes: rows of a table start on a cache line

G = TypeVar("G", bound=Gather)


class GatherBehaviour(ABC, Generic[G]):
    """One type of gather. What is not overridden is that of a sum of rows.

    gather:  the type; its subclasses behave the same, unless one has a behaviour of its own
    in_memory: what runs it on a server (`local` may be overridden instead)
    on_disk: the same with its tables on disk; None: they are in memory even where others are on disk
    blocked: whether it may go block by block where edges are dense
    by_columns: whether it can be laid out by columns
    sends:   how many tensors it takes
    """

    gather: type[G]
    in_memory: Callable[..., LocalGather]
    on_disk: Callable[..., LocalGather] | None = None
    blocked: bool = True
    by_columns: bool = False
    sends: int = 1

    def local(
        self,
        gather: G,
        server: ServerEdges,
        width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> LocalGather:
        """How it runs: one graph phase on one server (`local_gather` in `registry` says what is given)."""
        tables = server.tables
        if self.on_disk is not None and isinstance(tables, DiskTables):
            return self.on_disk(gather, server, width, dtype, tables.disk, needed=needed, training=training)
        return self.in_memory(gather, server, width, dtype, needed=needed, training=training)

    def sliced(
        self,
        gather: G,
        space: ColumnSpace,
        tables: tuple[GatherTables, GatherTables],
        width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> ColumnGather:
        """The same laid out by columns; tables: for own rows, and for slices of all vertices'."""
        own, of_slices = tables

        def make(server: ServerEdges, width: int) -> LocalGather:
            placed = server.placing(own if server is space.owned else of_slices)
            return self.local(gather, placed, width, dtype, needed=needed, training=training)

        return RowSlices(make, space, width, needed=needed, training=training)

    @abstractmethod
    def held(self, gather: G, width: int, itemsize: int, *, training: bool) -> tuple[HeldArray, ...]:
        """The arrays that `local` makes."""

    def held_for_rows(
        self, gather: G, width: int, servers: int, itemsize: int, *, training: bool
    ) -> tuple[HeldArray, ...]:
        """The arrays that `sliced` makes for own rows."""
        return self.held(gather, width, itemsize, training=training)

    def held_for_slice(
        self, gather: G, width: int, servers: int, itemsize: int, *, training: bool
    ) -> tuple[HeldArray, ...]:
        """The arrays that `sliced` makes for the widest slice of all vertices' rows."""
        mine, cut = self.on_slice(gather, width, servers)
        return self.held(mine, cut.width, itemsize, training=training)

    def on_slice(self, gather: G, width: int, servers: int) -> tuple[G, ColumnSlice]:
        """The gather of the server with the widest slice, and the slice."""
        return gather, widest_slice(width, self.heads(gather), servers)

    def reduction(self, gather: G, server: ServerEdges, width: int, dtype: torch.dtype) -> Reduction:
        """How messages of an edge function become rows; refused by gathers that take none."""
        raise refused_messages(gather)

    def held_by_reduction(self, width: int, itemsize: int, *, training: bool) -> tuple[HeldArray, ...]:
        """The arrays that `reduction` needs besides those of every edge function."""
        return ()

    def resends(self, step: GatherStep) -> bool:
        """Whether what goes back is made of what was gathered (`LocalGather.resends`)."""
        return False

    def flops(self, gather: G, width: int, *, back: bool, weighted: bool) -> int:
        """Of one edge, besides what an edge function does; weighted: the graph's edges have weights."""
        return 2 * width if weighted and getattr(gather, "weighted", False) else width

    def heads(self, gather: G) -> int:
        """Softmaxes an edge."""
        return 0

    def columns(self, gather: G, width: int) -> int:
        """Of a table's row, padded as kernels want it."""
        return width

    def edge_bytes(self, step: GatherStep, extent: Extent, *, back: bool) -> int:
        """Of the rows that an edge reads."""
        stored = 2 if is_halved(step.site.gather.precision) and extent.itemsize == 4 else extent.itemsize
        sent = sum(extent.widths(step.sent))
        if step.edge is not None:
            return stored * (2 * sent + step.site.width if back else 2 * sent)
        return stored * (step.site.width if back else sent)

    def table_row(self, gather: G, width: int) -> float:
        """Bytes of a vertex's row in the tables of one direction."""
        return sum(self._slabs(gather, width)) + 4.0 * _FLOAT * self.heads(gather)

    def ghost_row(self, gather: G, width: int, *, back: bool) -> float:
        """Bytes that travel to a ghost: a table's row, and logits."""
        return sum(self._slabs(gather, width)) + self.heads(gather) * _FLOAT * (3 if back else 1)

    def column_bytes(self, gather: G, itemsize: int, *, made: bool, back: bool, training: bool) -> int:
        """Bytes of one column of a row that travels, where it is laid out by columns: to a slice, or from it (`made`)."""
        return itemsize if made else stored_size(gather, itemsize)

    def logit_bytes(self, gather: G, itemsize: int, *, made: bool, back: bool) -> int:
        """Bytes that travel with these columns for each head of the slice."""
        return 0

    def slice_bytes(
        self, gather: G, width: int, servers: int, itemsize: int, *, made: bool, back: bool, training: bool
    ) -> tuple[int, ...]:
        """Bytes of a row that travels to each slice, or from it (`made`)."""
        a_column = self.column_bytes(gather, itemsize, made=made, back=back, training=training)
        a_head = self.logit_bytes(gather, itemsize, made=made, back=back)
        slices = column_slices(width, self.heads(gather), servers)
        return tuple(a_column * each.width + a_head * each.head_count for each in slices)

    def work(self, step: GatherStep, rows: float, edges: float, *, back: bool) -> Work:
        """Of so many rows and edges."""
        gather, width = step.site.gather, step.site.width
        assert isinstance(gather, self.gather)
        program = edge_program(step, back=back)
        on_edges = Work(0.0) if program is None else row_work(program).times(edges)
        return Work(
            rows=rows,
            edges=edges,
            widths_in=(width,),
            widths_out=(width,),
            products=on_edges.products,
            moved=on_edges.moved,
            functions=on_edges.functions,
            streamed=rows * _FLOAT * width,
            row_bytes=tuple(self._slabs(gather, width)),
            blocked=self.blocked,
            heads=self.heads(gather),
            back=back,
        )

    def _slabs(self, gather: G, width: int) -> Sequence[float]:
        """The bytes of a row that are gathered together: whole cache lines, up to a tile of columns at a time."""
        columns = self.columns(gather, width)
        widths = [min(MAX_TILE, columns - first) for first in range(0, columns, MAX_TILE)]
        return [float(-(-width * _FLOAT // _LINE) * _LINE) for width in widths]


def edge_program(step: GatherStep, *, back: bool) -> TensorProgram | None:
    """The function that runs on the edges; None: rows are gathered as they are."""
    if step.edge is None:
        return None
    return (step.edge.backward or step.edge.forward) if back else step.edge.forward
