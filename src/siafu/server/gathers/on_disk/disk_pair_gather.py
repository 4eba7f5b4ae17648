"""DiskPairGather: PairSoftmax where the rows at both ends of the edges, and the gradients, are on disk."""

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
    window,
)
from siafu.nn.gathers.pair_softmax import PairSoftmax
from siafu.nn.tensors import storage
from siafu.server.edges import ServerEdges
from siafu.server.gathers.local_gather import GatherGradients, LocalGather, Mask, Weights, checked, sum_type
from siafu.server.gathers.on_disk.collected_sources import Collected, CollectedSources, own_rows
from siafu.server.gathers.pair_weights import PairWeights, in_one_place
from siafu.server.memory.disk_share import DiskShare

# With their optional arguments in lists, they cannot be typed.
_forward: Any = pair_range
_to_sources: Any = pair_sources_range
_to_targets: Any = pair_targets_range


class DiskPairGather(LocalGather):
    """`PairGather` with its tables on disk, equal to it in every bit: the same kernels run on the sources of a group of rows.

    Denominators, and what goes back of them, are in memory: a few numbers a head.
    """

    resends = True

    def __init__(
        self,
        gather: PairSoftmax,
        server: ServerEdges,
        width: int,
        dtype: torch.dtype,
        disk: DiskShare,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> None:
        super().__init__(server, needed)
        self._gather, self._width, self._how = gather, width, gather.settings(width)
        self._disk, self._columns = disk, self._how.heads * self._how.head_columns
        self._kind, walks, heads = np.dtype(sum_type(dtype)), self._walks, gather.heads
        stored, kept = storage(self._kind, gather.precision), gather.rows_sent - 1
        self._keys = [self._sources(disk, walks.forward, self._columns, stored) for _ in range(kept)]
        self.forward_on_disk = self._keys
        self._forth = CollectedSources(walks.forward, self._keys, disk)
        self._collected = [self._forth]
        self._out = self._tables.result("sums", self._columns, self._kind)
        self._log_sum = np.zeros((server.own, heads), self._kind)
        self._loops: NDArray[Any] | None = None
        if gather.features:
            for walk, direction in ((walks.forward, "forward"), (walks.backward, "backward")):
                walk.numbers(direction)  # made now, by one thread
        if gather.sends_loops:
            self._loops = np.zeros((server.own, gather.features), self._kind)
        if not training:
            self._rows = disk.sources(server.own, server.own, (), self._columns, self._kind)
            return
        self._rows = self._sources(disk, walks.backward, self._columns, self._kind)
        self._gradients = self._sources(disk, walks.backward, self._columns, stored)
        stats = np.zeros((walks.backward.columns, 2 * heads), self._kind)
        # Nothing comes back along an edge to a row that never sends: its weight is exp(-inf).
        stats[:, :heads] = np.inf
        self._stats = stats
        self.backward_on_disk, self.backward_tables = [self._rows, self._gradients], [stats]
        self._back = CollectedSources(walks.backward, self.backward_on_disk, disk, [stats])
        self._again = CollectedSources(walks.forward, self._keys, disk)
        self._collected += [self._back, self._again]
        names = ("of keys", "of values")[:kept]
        self._of_sources = [self._tables.result(name, self._columns, self._kind) for name in names]
        self._of_rows = self._tables.result("of targets", self._columns, self._kind)

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        for each, table in zip(sent, [*self._keys, self._rows], strict=False):
            rows = self._disk.writer.buffer(table, first, last - first)
            values = checked(each, last - first, self._width)
            pack_heads_range(values, rows, self._how.heads, self._how.head_columns, None, 0)
            self._disk.writer.put(table, first, rows)
        if self._loops is not None:
            self._loops[first:last] = checked(sent[-1], last - first, self._loops.shape[1])

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        walk, learnt, out = self._walks.forward, self._learnt, self._out.begin(first, last)
        settings, mix = self._how._replace(dropout=dropout, seed=seed).arguments, learnt.mix(weights)
        for group, low, high in self._forth.parts(first, last):
            rows = group.placed(own_rows(self._rows, low, high), low, high)
            _forward(
                group.indptr,
                group.indices,
                *learnt.both_ends(group.sources, rows, weights),
                *self._terms(group, mix, "forward"),
                *settings,
                row_list(group.drawn(walk, dropout)),
                group.placed(out[low:high], low, high),
                self._log_sum[group.first : group.last],
                *group.picked(self.needed, low, high),
            )
        return learnt.joined(out, first, last, self._width)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        packed = self._disk.writer.zeros(self._gradients, first, last - first)
        pair_stats_range(
            checked(gradient, end - begin, self._width),
            self._out.table(),
            self._log_sum,
            self._how.heads,
            self._how.head_columns,
            window(packed, first, last),
            self._stats,
            row_list(self.needed),
            begin,
        )
        self._disk.writer.put(self._gradients, first, packed)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        settings, learnt = self._how._replace(dropout=dropout, seed=seed).arguments, self._learnt
        of_sources = self._of_ends(first, last, settings, dropout, weights)
        of_rows = self._of_rows.begin(first, last)
        of_rows[first:last] = 0
        of_weights = self._add_as_targets(of_rows, first, last, settings, dropout, weights)
        found = [learnt.joined(each, first, last, self._width) for each in (*of_sources, of_rows)]
        if self._loops is not None:  # which nobody learns
            found.append(torch.zeros_like(torch.from_numpy(self._loops[first:last])))
        return GatherGradients(tuple(found), of_weights)

    def begin_anew(self) -> None:
        self._disk.writer.flush()
        for each in self._collected:
            each.begin_anew()

    @property
    def _learnt(self) -> PairWeights:
        return PairWeights(self._gather, self._how, self._kind, self.weight_names, self.learnt)

    def _of_ends(
        self, first: int, last: int, settings: tuple[Any, ...], dropout: float, weights: Weights | None
    ) -> list[Table]:
        """Gradients of keys and values, over the out-edges."""
        walk, learnt, mix = self._walks.backward, self._learnt, self._learnt.mix(weights)
        out = [each.begin(first, last) for each in self._of_sources]
        for group, low, high in self._back.parts(first, last):
            keys = [group.placed(own_rows(each, low, high), low, high) for each in self._keys]
            rows, gradient = group.sources
            of_keys, *of_values = (group.placed(each[low:high], low, high) for each in out)
            _to_sources(
                group.indptr,
                group.indices,
                *learnt.both_ends(keys, rows, weights),
                *self._terms(group, mix, "backward"),
                gradient,
                *group.beside,
                *settings,
                row_list(group.drawn(walk, dropout)),
                of_keys,
                of_values[0] if of_values else None,
                low - group.first,
                high - group.first,
            )
        return out

    def _add_as_targets(
        self,
        of_rows: Table,
        first: int,
        last: int,
        settings: tuple[Any, ...],
        dropout: float,
        weights: Weights | None,
    ) -> dict[str, torch.Tensor]:
        """Gradients of the targets' rows; those of the weights are returned, added up row after row."""
        walk, learnt, mix = self._walks.forward, self._learnt, self._learnt.mix(weights)
        query, mixed = learnt.begin()
        for group, low, high in self._again.parts(first, last):
            rows, gradient = (
                group.placed(own_rows(each, low, high), low, high) for each in (self._rows, self._gradients)
            )
            of_targets = group.placed(of_rows[low:high], low, high)
            in_place = in_one_place(query, high - group.first)
            _to_targets(
                group.indptr,
                group.indices,
                *learnt.both_ends(group.sources, rows, weights),
                *self._terms(group, mix, "forward"),
                gradient,
                self._stats[group.first : group.last],
                *settings,
                row_list(group.drawn(walk, dropout)),
                of_targets if learnt.additive else None,
                in_place if learnt.additive else of_targets,
                mixed,
                *group.picked(self.needed, low, high),
            )
        return learnt.gradients(query, mixed, weights)

    def _terms(self, group: Collected, mix: NDArray[Any] | None, direction: str) -> EdgeTerms:
        if mix is None:
            return EdgeTerms()
        walk = self._walks.forward if direction == "forward" else self._walks.backward
        numbers, features = walk.numbers(direction), self.server.graph.edge_attr
        assert features is not None
        if numbers is None:
            features = features[group.edges]
        loops = None if self._loops is None else self._loops[group.first : group.last]
        return EdgeTerms(features, group.of_edges(numbers), mix, loops)

    def _kept(self) -> list[NDArray[Any]]:
        return [self._log_sum, *([] if self._loops is None else [self._loops])]
