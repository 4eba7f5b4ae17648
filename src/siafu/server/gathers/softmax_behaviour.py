"""Softmax on a server: how it runs, what it costs and holds."""

from dataclasses import replace

import torch

from siafu.nn.gathers.gather import Softmax
from siafu.program.program import GatherStep
from siafu.server.costs.held_array import Grouped, HeldArray
from siafu.server.gathers.attention_gather import AttentionGather, head_columns
from siafu.server.gathers.behaviour import GatherBehaviour
from siafu.server.gathers.by_columns.column_gather import ColumnGather
from siafu.server.gathers.by_columns.column_space import ColumnSlice, ColumnSpace, column_slices
from siafu.server.gathers.by_columns.head_slices import HeadSlices
from siafu.server.gathers.gather_tables import GatherTables
from siafu.server.gathers.local_gather import Mask, stored_size
from siafu.server.gathers.on_disk.disk_attention_gather import DiskAttentionGather


class SoftmaxBehaviour(GatherBehaviour[Softmax]):
    """Softmax."""

    gather = Softmax
    in_memory = AttentionGather
    on_disk = DiskAttentionGather
    blocked = False
    by_columns = True
    sends = 3

    def sliced(
        self,
        gather: Softmax,
        space: ColumnSpace,
        tables: tuple[GatherTables, GatherTables],
        width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> ColumnGather:
        return HeadSlices(gather, space, tables, width, dtype, needed=needed, training=training)

    def flops(self, gather: Softmax, width: int, *, back: bool, weighted: bool) -> int:
        # A logit, its exponential and a weighted sum; back, the products that the logits' gradients are made of.
        return (4 if back else 2) * width + 20 * gather.heads

    def heads(self, gather: Softmax) -> int:
        return gather.heads

    def columns(self, gather: Softmax, width: int) -> int:
        return gather.heads * head_columns(width // gather.heads)

    def resends(self, step: GatherStep) -> bool:
        return True

    def held(self, gather: Softmax, width: int, itemsize: int, *, training: bool) -> tuple[HeldArray, ...]:
        heads, columns = gather.heads, self.columns(gather, width)
        rows = HeldArray(
            "rows",
            "what edges gather",
            "backward",
            columns,
            stored_size(gather, itemsize),
            "forward",
            "all",
            on_disk="source",
            grouped=Grouped(2 * columns + 4 * heads),
        )
        sums = HeldArray(
            "sums",
            "gathered rows, then gradients",
            "backward",
            columns,
            itemsize,
            "own",
            "needed",
            "all",
            passes=True,
        )
        sources = HeldArray(
            "source logits", "read by edges", "backward", heads, itemsize, "forward", "all", aligned=False
        )
        targets = replace(sources, name="target logits", rows="own")
        log_sums = replace(targets, name="denominators", purpose="make weights again", forward="needed")
        arrays = (rows, sums, sources, targets, log_sums)
        if not training:
            return arrays
        of_targets = replace(
            log_sums, name="of target logits", purpose="gradients", forward=None, backward="needed"
        )
        return (
            *arrays,
            replace(sums, name="positive sums", purpose="of edges with positive logits", backward=None),
            replace(log_sums, name="positive shares", purpose="of edges with positive logits"),
            replace(of_targets, name="of source logits", backward="all"),
            of_targets,
            replace(
                rows,
                name="gradients",
                purpose="what edges gather back",
                until="gather",
                rows="backward",
                forward=None,
                backward="needed",
            ),
            # Filled when it is made.
            replace(
                sources,
                name="targets",
                purpose="read by edges",
                until="gather",
                columns=3 * heads,
                rows="backward",
            ),
        )

    def held_for_rows(
        self, gather: Softmax, width: int, servers: int, itemsize: int, *, training: bool
    ) -> tuple[HeldArray, ...]:
        stored, slices = stored_size(gather, itemsize), column_slices(width, gather.heads, servers)
        slots = sum(each.head_count for each in slices)
        rows = HeldArray("rows", "what slices gather", "gather", width, stored, forward="all")
        sums = replace(
            rows,
            name="sums",
            purpose="gathered rows, then gradients",
            until="backward",
            itemsize=itemsize,
            forward="needed",
            backward="all",
        )
        sources = replace(
            rows,
            name="source logits",
            purpose="what slices weigh with",
            columns=gather.heads,
            itemsize=itemsize,
            aligned=False,
        )
        arrays = (rows, sums, sources, replace(sources, name="target logits"))
        if not training:
            return arrays
        means = replace(
            sources,
            name="means",
            purpose="⟨gradient, out⟩ of each slice",
            columns=slots,
            forward=None,
            backward="needed",
        )
        of_sources = replace(
            means, name="of source logits", purpose="gradients, a part of each slice", backward="all"
        )
        back = replace(
            rows,
            name="gradients",
            purpose="what slices gather back",
            forward=None,
            backward="needed",
            over=rows.name,
        )
        return (*arrays, back, means, of_sources, replace(of_sources, name="of target logits"))

    def on_slice(self, gather: Softmax, width: int, servers: int) -> tuple[Softmax, ColumnSlice]:
        _, cut = super().on_slice(gather, width, servers)
        return replace(gather, heads=max(1, cut.head_count)), cut

    def logit_bytes(self, gather: Softmax, itemsize: int, *, made: bool, back: bool) -> int:
        """Forth go logits of sources and of targets, back ⟨gradient, out⟩, and then gradients of those logits."""
        if made == back:
            return 2 * itemsize
        return itemsize if back else 0
