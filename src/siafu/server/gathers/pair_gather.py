"""PairSoftmax on a server: how it runs, what it costs and holds."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.kernels import (
    EdgeTerms,
    Table,
    pack_heads_range,
    pair_range,
    pair_sources_range,
    pair_stats_range,
    pair_targets_range,
    row_list,
)
from siafu.nn.gathers.pair_softmax import PairSoftmax
from siafu.nn.tensors import storage
from siafu.program.program import GatherStep
from siafu.server.costs.extent import Extent
from siafu.server.costs.held_array import Grouped, HeldArray
from siafu.server.edges import ServerEdges
from siafu.server.gathers.behaviour import GatherBehaviour
from siafu.server.gathers.gather_tables import ResultTable
from siafu.server.gathers.local_gather import (
    GatherGradients,
    LocalGather,
    Mask,
    Weights,
    checked,
    stored_size,
    sum_type,
)
from siafu.server.gathers.on_disk.disk_pair_gather import DiskPairGather
from siafu.server.gathers.pair_weights import PairWeights, in_one_place

# With their optional arguments in lists, they cannot be typed.
_forward: Any = pair_range
_to_sources: Any = pair_sources_range
_to_targets: Any = pair_targets_range


class PairGather(LocalGather):
    """Softmax-weighted rows, the logits a function of both ends. `send` takes what `PairSoftmax` says.

    forward_tables:  keys, and values where these are others, with padded heads
    backward_tables: the targets' rows (queries, where there are products), the gradient, and [log_sum, ⟨gradient, out⟩]
                     of each head

    A vertex's gradient comes from two sides, as an edge function's does: over its out-edges as a source, over its in-edges as
    a target, where the weights get theirs.
    """

    resends = True

    def __init__(
        self,
        gather: PairSoftmax,
        server: ServerEdges,
        width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(server, needed)
        self._gather, self._width, self._how = gather, width, gather.settings(width)
        self._columns = self._how.heads * self._how.head_columns
        kind, tables, heads = np.dtype(sum_type(dtype)), self._tables, gather.heads
        self._kind, stored = kind, storage(kind, gather.precision)
        names = ("keys",) if gather.form == "additive" else ("keys", "values")
        columns = self._walks.forward.columns
        self.forward_tables = [tables.source(name, columns, self._columns, stored) for name in names]
        self._out = tables.result("sums", self._columns, kind)
        self._log_sum = np.zeros((server.own, heads), kind)
        self._loops: NDArray[Any] | None = None
        if gather.features:
            for walk, direction in ((self._walks.forward, "forward"), (self._walks.backward, "backward")):
                walk.numbers(direction)  # made now, by one thread
        if gather.sends_loops:
            self._loops = np.zeros((server.own, gather.features), kind)
        if not training:
            self._rows = tables.source("targets", server.own, self._columns, kind)
            return
        columns = self._walks.backward.columns
        self._rows = tables.source("targets sent", columns, self._columns, kind)
        stats = np.zeros((columns, 2 * heads), kind)
        # Nothing comes back along an edge to a row that never sends: its weight is exp(-inf).
        stats[:, :heads] = np.inf
        self.backward_tables = [
            self._rows,
            tables.source("gradients", columns, self._columns, stored),
            stats,
        ]
        # What was gathered for these rows has been used up by then.
        self._of_sources = [tables.result("of keys", self._columns, kind, over=self._out)]
        self._of_sources += [tables.result("of values", self._columns, kind) for _ in names[1:]]
        self._of_rows = tables.result("of targets", self._columns, kind)

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        tables = [*self.forward_tables, self._rows]
        for each, table in zip(sent, tables, strict=False):
            values = checked(each, last - first, self._width)
            pack_heads_range(values, table, self._how.heads, self._how.head_columns, None, first)
        if self._loops is not None:
            self._loops[first:last] = checked(sent[-1], last - first, self._loops.shape[1])

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        walk, out = self._walks.forward, self._out.begin(first, last)
        _forward(
            walk.edges.indptr,
            walk.edges.indices,
            *self._learnt.both_ends(self.forward_tables, self._rows, weights),
            *self._terms(weights, "forward"),
            *self._how._replace(dropout=dropout, seed=seed).arguments,
            row_list(walk.drawn),
            out,
            self._log_sum,
            row_list(self.needed),
            *self._walks.span(first, last),
        )
        return self._joined(out, first, last)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        _, packed, stats = self.backward_tables
        pair_stats_range(
            checked(gradient, end - begin, self._width),
            self._out.table(),
            self._log_sum,
            self._how.heads,
            self._how.head_columns,
            packed,
            stats,
            row_list(self.needed),
            begin,
        )

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        _, gradient, stats = self.backward_tables
        how = self._how._replace(dropout=dropout, seed=seed)
        back, of_sources = self._walks.backward, [each.begin(first, last) for each in self._of_sources]
        _to_sources(
            back.edges.indptr,
            back.edges.indices,
            *self._learnt.both_ends(self.forward_tables, self._rows, weights),
            *self._terms(weights, "backward"),
            gradient,
            stats,
            *how.arguments,
            row_list(back.drawn),
            of_sources[0],
            of_sources[1] if len(of_sources) > 1 else None,
            first,
            last,
        )
        of_rows = self._of_rows.begin(first, last)
        of_rows[first:last] = 0
        of_weights = self._add_as_targets(of_rows, first, last, gradient, stats, how.arguments, weights)
        found = [self._joined(each, first, last) for each in (*of_sources, of_rows)]
        if self._loops is not None:  # which nobody learns
            found.append(torch.zeros_like(torch.from_numpy(self._loops[first:last])))
        return GatherGradients(tuple(found), of_weights)

    def _add_as_targets(
        self,
        of_rows: Table,
        first: int,
        last: int,
        gradient: Table,
        stats: NDArray[Any],
        settings: tuple[Any, ...],
        weights: Weights | None,
    ) -> dict[str, torch.Tensor]:
        """Gradients of the targets' rows; those of the weights are returned."""
        walk, learnt = self._walks.forward, self._learnt
        query, mixed = learnt.begin()
        in_place = in_one_place(query, len(of_rows))
        _to_targets(
            walk.edges.indptr,
            walk.edges.indices,
            *learnt.both_ends(self.forward_tables, self._rows, weights),
            *self._terms(weights, "forward"),
            gradient,
            stats,
            *settings,
            row_list(walk.drawn),
            of_rows if learnt.additive else None,
            in_place if learnt.additive else of_rows,
            mixed,
            row_list(self.needed),
            *self._walks.span(first, last),
        )
        return learnt.gradients(query, mixed, weights)

    @property
    def _learnt(self) -> PairWeights:
        return PairWeights(self._gather, self._how, self._kind, self.weight_names, self.learnt)

    def _terms(self, weights: Weights | None, direction: str) -> EdgeTerms:
        mix = self._learnt.mix(weights)
        if mix is None:
            return EdgeTerms()
        walk = self._walks.forward if direction == "forward" else self._walks.backward
        return EdgeTerms(self.server.graph.edge_attr, walk.numbers(direction), mix, self._loops)

    def _joined(self, out: Table, first: int, last: int) -> torch.Tensor:
        return self._learnt.joined(out, first, last, self._width)

    def _kept(self) -> list[NDArray[Any]]:
        return [self._rows, self._log_sum, *([] if self._loops is None else [self._loops])]

    def _results(self) -> list[ResultTable]:
        if not self.backward_tables:
            return [self._out]
        return [self._out, *self._of_sources, self._of_rows]


class PairBehaviour(GatherBehaviour[PairSoftmax]):
    """PairSoftmax."""

    gather = PairSoftmax
    in_memory = PairGather
    on_disk = DiskPairGather
    blocked = False

    def flops(self, gather: PairSoftmax, width: int, *, back: bool, weighted: bool) -> int:
        # Forward: a logit, its exponential, a weighted sum; back both twice, and the sums of gradients.
        return (16 if back else 6) * width + (40 if back else 20) * gather.heads

    def heads(self, gather: PairSoftmax) -> int:
        return gather.heads

    def columns(self, gather: PairSoftmax, width: int) -> int:
        how = gather.settings(width)
        return how.heads * how.head_columns

    def resends(self, step: GatherStep) -> bool:
        return True

    def edge_bytes(self, step: GatherStep, extent: Extent, *, back: bool) -> int:
        gather, width = step.site.gather, step.site.width
        assert isinstance(gather, PairSoftmax)
        stored = stored_size(gather, extent.itemsize)
        sources = (gather.rows_sent - 1) * stored * width
        return sources + (stored + extent.itemsize) * width if back else sources

    def table_row(self, gather: PairSoftmax, width: int) -> float:
        return (gather.rows_sent - 1) * super().table_row(gather, width)

    def ghost_row(self, gather: PairSoftmax, width: int, *, back: bool) -> float:
        row = sum(self._slabs(gather, width))
        return 2 * row + 8.0 * gather.heads if back else (gather.rows_sent - 1) * row

    def held(
        self, gather: PairSoftmax, width: int, itemsize: int, *, training: bool
    ) -> tuple[HeldArray, ...]:
        heads, columns = gather.heads, self.columns(gather, width)
        # On disk: rows and gradients of targets are read in order beside the keys, and keys beside what goes back.
        keys = HeldArray(
            "keys",
            "what edges gather",
            "backward",
            columns,
            stored_size(gather, itemsize),
            "forward",
            "all",
            on_disk="source",
            grouped=Grouped(2 * columns, collected=True, through=1),
            reads_back=1,
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
        log_sums = HeldArray(
            "denominators", "make weights again", "backward", heads, itemsize, "own", "needed", aligned=False
        )
        targets = HeldArray(
            "targets",
            "read by edges",
            "backward",
            columns,
            itemsize,
            "own",
            "all",
            on_disk="source",
            grouped=Grouped(collected=True, through=1),
        )
        loops: tuple[HeldArray, ...] = ()
        if gather.sends_loops:
            loops = (
                replace(log_sums, name="features of self-loops", columns=gather.features, forward="all"),
            )
        sources = (keys,) if gather.form == "additive" else (keys, replace(keys, name="values"))
        if not training:
            return (*sources, sums, log_sums, targets, *loops)
        of_rows = replace(sums, name="of targets", purpose="gradients", forward=None)
        return (
            *sources,
            sums,
            log_sums,
            *loops,
            replace(
                targets,
                name="targets sent",
                rows="backward",
                grouped=Grouped((len(sources)) * columns, collected=True, through=3),
                beside=True,
            ),
            replace(
                keys,
                name="gradients",
                purpose="what edges gather back",
                until="gather",
                rows="backward",
                forward=None,
                backward="needed",
                grouped=Grouped(collected=True, through=1),
                beside=True,
                reads_back=0,
            ),
            # Filled when it is made.
            HeldArray(
                "denominators sent",
                "read by edges",
                "gather",
                2 * heads,
                itemsize,
                "backward",
                "all",
                aligned=False,
            ),
            *(replace(of_rows, name="of values") for _ in sources[1:]),
            of_rows,
        )
