"""HeadSlices: attention by columns: a server has whole heads, or some columns of one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.kernels import HEAD_STEP, Table, pack_range, row_list, slot_means_range, target_gradient_range
from siafu.nn.gathers.gather import Softmax
from siafu.nn.tensors import storage
from siafu.server.edges import ServerEdges
from siafu.server.gathers.attention_gather import AttentionGather, head_columns
from siafu.server.gathers.by_columns.column_gather import ColumnGather, Parts
from siafu.server.gathers.by_columns.column_space import ColumnSlice, ColumnSpace, column_slices
from siafu.server.gathers.gather_tables import GatherTables, ResultTable
from siafu.server.gathers.local_gather import GatherGradients, Mask, Weights, checked, sum_type, view


class HeadSlices(ColumnGather):
    """Softmax-weighted rows by columns. `send` takes rows, source logits and target logits.

    Logits are the owners': they come of whole rows, so nothing is added up before the softmax. With more servers than heads, several have columns
    of one head: each makes the head's weights, with the same dropout. What goes back to logits is linear in the columns: each of those servers
    makes a part of it, and the owners add the parts, in the order of the servers.

    A *slot* is a head on one server. What travels, of each row:

        to the slices    its columns, and two logits of each slot         back  gradients of its columns, and ⟨gradient, out⟩ of each slot
        to the owners    the gathered columns                             back  gradients of its columns, and of two logits of each slot
    """

    resends = True

    def __init__(
        self,
        gather: Softmax,
        space: ColumnSpace,
        tables: tuple[GatherTables, GatherTables],
        width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None,
        training: bool,
    ) -> None:
        slices = column_slices(width, gather.heads, space.parts)
        mine = slices[space.server]
        super().__init__(space, needed, gathers=mine.width > 0)
        self._width, self._heads = width, gather.heads
        own, of_slices = tables
        self._slice = HeadSlice(
            gather,
            mine,
            space.whole.placing(of_slices),
            dtype,
            needed=needed,
            training=training,
        )
        cuts = _Cuts(slices, width // gather.heads)
        kind, count = np.dtype(sum_type(dtype)), space.owned.own
        stored = storage(kind, gather.precision)
        self._rows = self._gradients = own.source("rows", count, width, stored)
        self._logits = [np.zeros((count, gather.heads), kind) for _ in range(2)]
        self._out = self._back = own.result("sums", width, kind)
        self._of_slots: list[NDArray[Any]] = []
        part = self._slice
        self.parts_sent = Parts(
            [
                [*cuts.of(self._rows, each), *(logits[:, each.heads] for logits in self._logits)]
                for each in slices
            ],
            [*cuts.sliced(part.forward_tables[0], mine), *part.logits],
        )
        self.parts_made = Parts(
            [cuts.of(self._out.table(), each) for each in slices], cuts.sliced(part.gathered[0].table(), mine)
        )
        self._slots = cuts.slots
        if not training:
            return
        # Whoever sends gradients has heard from all that read the rows.
        self._gradients = own.source("gradients", count, width, stored, over=self._rows)
        self._back = own.result("gradients", width, kind, over=self._out)
        self._means, *self._of_slots = (np.zeros((count, len(cuts.slots)), kind) for _ in range(3))
        self._starts = cuts.starts
        self.parts_sent_back = Parts(
            [[*cuts.of(self._gradients, each), self._means[:, at]] for each, at in cuts.slotted],
            [*cuts.sliced(part.backward_tables[0], mine), part.means],
        )
        self.parts_returned = Parts(
            [
                [*cuts.of(self._back.table(), each), *(table[:, at] for table in self._of_slots)]
                for each, at in cuts.slotted
            ],
            [*cuts.sliced(part.made_back.table(), mine), *part.of_logits],
        )

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        return view(self._out.table(), first, last, self._width)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        rows = view(self._back.table(), first, last, self._width)
        return GatherGradients((rows, *(self._added(each[first:last]) for each in self._of_slots)), {})

    @property
    def held_bytes(self) -> int:
        return super().held_bytes + self._slice.held_bytes

    def _pack(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        rows, *logits = sent
        pack_range(checked(rows, last - first, self._width), None, self._rows, None, first)
        for table, given in zip(self._logits, logits, strict=True):
            table[first:last] = checked(given, last - first, self._heads)

    def _gather(self, first: int, last: int, dropout: float, seed: int) -> None:
        self._slice.gather(first, last, dropout, seed)

    def _pack_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self.walks.span(first, last)
        slot_means_range(
            checked(gradient, end - begin, self._width),
            self._starts,
            self._out.table(),
            self._gradients,
            self._means,
            row_list(self.needed),
            begin,
        )

    def _gather_back(self, first: int, last: int, dropout: float, seed: int) -> None:
        self._slice.gather_back(first, last, dropout, seed)

    def _added(self, slots: NDArray[Any]) -> torch.Tensor:
        """Gradients of logits [n, heads], of their parts."""
        if len(self._slots) == self._heads:
            return torch.from_numpy(slots)
        found = np.zeros((len(slots), self._heads), slots.dtype)
        for slot, head in enumerate(self._slots):
            found[:, head] += slots[:, slot]
        return torch.from_numpy(found)

    def _kept(self) -> list[NDArray[Any]]:
        kept = [self._rows, self._gradients, *self._logits]
        return [*kept, self._means, *self._of_slots] if self._of_slots else kept

    def _results(self) -> list[ResultTable]:
        return [self._out, self._back]


class HeadSlice(AttentionGather):
    """One server's heads, or its columns of one, for all vertices: the owners send what it gathers.

    logits:    [V, heads] of sources and of targets
    means:     [V, heads] ⟨gradient, out⟩ over its columns
    made_back, of_logits: gradients of rows, and of logits
    """

    def __init__(
        self,
        gather: Softmax,
        cut: ColumnSlice,
        server: ServerEdges,
        dtype: torch.dtype,
        *,
        needed: Mask | None,
        training: bool,
    ) -> None:
        heads = max(1, cut.head_count)  # a server may have no column
        super().__init__(
            replace(gather, heads=heads),
            server,
            max(1, cut.width),
            dtype,
            needed=needed,
            training=training,
        )
        self._first_head = int(cut.heads.start)
        self.logits = [each[:, : cut.head_count] for each in (self.forward_tables[1], self._target)]
        self.gathered, self.made_back = (self._out,), self._back
        if training:
            self.means = self.backward_tables[1][:, 2 * heads : 2 * heads + cut.head_count]
            self.of_logits = [each[:, : cut.head_count] for each in (self._of_source, self._of_target)]

    def gather(self, first: int, last: int, dropout: float, seed: int) -> None:
        """Gather for some vertices, and keep what their sources' gradients read of them."""
        self.forward(first, last, dropout=dropout, seed=self._seed(seed))
        if not self.backward_tables:
            return
        begin, end = self._walks.span(first, last)
        rows = slice(begin, end) if self.needed is None else self.needed[begin:end]
        heads, targets = self._how.heads, self.backward_tables[1]
        targets[rows, :heads] = self._target[rows]
        targets[rows, heads : 2 * heads] = self._log_sum[rows]

    def gather_back(self, first: int, last: int, dropout: float, seed: int) -> None:
        """The adjoint, for some vertices as sources, and the gradients of their logits as targets."""
        gradient, targets = self.backward_tables
        assert self._positive is not None, "nothing goes back without training"
        target_gradient_range(
            gradient,
            self._how.heads,
            self._how.head_columns,
            self._how.slope,
            targets,
            self._positive.table(),
            self._positive_share,
            self._of_target,
            row_list(self.needed),
            *self._walks.span(first, last),
        )
        self.backward(first, last, dropout=dropout, seed=self._seed(seed))

    def _seed(self, seed: int) -> int:
        """With which the first of these heads draws what it draws among all."""
        return (seed + self._first_head * int(HEAD_STEP)) % 2**64

    def _joined(self, out: Table, first: int, last: int) -> torch.Tensor:
        """As it is: heads are sent one by one where there are gaps between them."""
        return view(out, first, last, out.shape[1])


class _Cuts:
    """Columns and slots of all servers.

    slots:   for each slot, its head
    slotted: for each server, its slice and its slots
    starts:  for each slot, the first of its columns; and the end of the last one's
    """

    def __init__(self, slices: Sequence[ColumnSlice], head_width: int) -> None:
        self._head_width = head_width
        ends = np.cumsum([0, *(each.head_count for each in slices)]).tolist()
        self.slotted = [(each, slice(*ends[place : place + 2])) for place, each in enumerate(slices)]
        self.slots = [head for each in slices for head in range(each.heads.start, each.heads.stop)]
        widths = [each.width // each.head_count for each in slices for _ in range(each.head_count)]
        self.starts = np.cumsum([0, *widths])

    def of(self, rows: Table, each: ColumnSlice) -> list[Table]:
        """A slice of whole rows: in one piece, or a piece a head where the slice's own table has gaps between them."""
        width = self._head_width
        if not self._apart(each):
            return [rows[:, each.columns]]
        return [
            rows[:, head * width : (head + 1) * width] for head in range(each.heads.start, each.heads.stop)
        ]

    def sliced(self, rows: Table, mine: ColumnSlice) -> list[Table]:
        """The same pieces of the slice's own table."""
        if not self._apart(mine):
            return [rows[:, : mine.width]]
        gap, width = head_columns(self._head_width), self._head_width
        return [rows[:, head * gap : head * gap + width] for head in range(mine.head_count)]

    def _apart(self, each: ColumnSlice) -> bool:
        return each.head_count > 1 and head_columns(self._head_width) > self._head_width
