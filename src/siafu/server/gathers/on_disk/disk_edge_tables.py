"""DiskEdgeTables: the tables of an edge function's gather on disk, and what collects the rows that its edges read."""

from collections.abc import Iterator
from contextlib import closing
from itertools import repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.kernels import Table, copy_range, edge_ends, pack_range, window
from siafu.server.gathers.edgewise.edge_gather import EdgeGather, PieceEdges
from siafu.server.gathers.edgewise.reduction import picked_rows
from siafu.server.gathers.gather_tables import DiskTables
from siafu.server.gathers.local_gather import checked
from siafu.server.gathers.on_disk.collected_sources import Collected, CollectedSources, own_rows

Ids = NDArray[np.int64]


class DiskEdgeTables(EdgeGather):
    """An edge function whose tables are on disk; its walks are those of `DiskEdgeGather` and `DiskFusedEdgeGather`.

    The rows at the edges' other ends are collected for a group of rows at a time; own rows are read beside them.
    """

    def _make_sources(self) -> None:
        assert isinstance(self._tables, DiskTables)
        disk, walks = self._tables.disk, self._walks
        self._disk = disk
        self._rows = self._sources(disk, walks.forward, self._width, self._kind)
        self._sent = [self._sources(disk, walks.backward, width, self._kind) for width in self._back_widths]
        self.forward_on_disk, self.backward_on_disk = [self._rows], self._sent
        self._forth = CollectedSources(walks.forward, [self._rows], disk)
        self._collected = [self._forth]
        if self._sent:
            self._back = CollectedSources(walks.backward, self._sent, disk)
            self._again = CollectedSources(walks.forward, [self._rows], disk)
            self._collected += [self._back, self._again]

    def send(self, first: int, last: int, sent: tuple[torch.Tensor, ...]) -> None:
        (x,) = sent
        rows = self._disk.writer.buffer(self._rows, first, last - first)
        pack_range(checked(x, last - first, self._width), None, rows, None, 0)
        self._disk.writer.put(self._rows, first, rows)

    def send_back(self, first: int, last: int, gradient: torch.Tensor) -> None:
        begin, end = self._walks.span(first, last)
        values = checked(gradient, end - begin, self._message_width)
        made = [self._disk.writer.zeros(table, first, last - first) for table in self._sent]
        rows, *tables = (window(each, first, last) for each in made)
        read = window(own_rows(self._rows, first, last), first, last)
        copy_range(read, rows, self.needed, begin, end)
        self._reduction.send_back(values, self._out, tables, self.needed, begin)
        for table, each in zip(self._sent, made, strict=True):
            self._disk.writer.put(table, first, each)

    def begin_anew(self) -> None:
        self._disk.writer.flush()
        for each in self._collected:
            each.begin_anew()

    def _picked(
        self, sources: CollectedSources, direction: str, first: int, last: int
    ) -> Iterator[tuple[PieceEdges, list[torch.Tensor]]]:
        """Pieces of the edges of rows first:last, as in memory; and of each table the rows at the edges' other ends.

        Of in-edges last the rows at their own ends, which are in the same table.
        """
        forth = direction == "forward"
        picked, span = (self.needed, self._walks.span(first, last)) if forth else (None, (first, last))
        widths = [each.columns for each in sources.tables]
        with closing(sources.by_group(first, last)) as groups:
            group: Collected | None = None
            high = first
            for edges in self._pieces(direction, picked, *span):
                at, parts = edges.first, []
                while at < edges.last:
                    if group is None or at >= _place(picked, high):
                        group, _, high = next(groups)
                        continue
                    end = min(edges.last, _place(picked, high))
                    outer, inner = _ends(group, picked, at, end)
                    tables = [
                        *zip(group.sources, widths, repeat(outer)),
                        *([(group.sources[0], widths[0], inner)] if forth else []),
                    ]
                    parts.append([picked_rows(table, ids, width) for table, width, ids in tables])
                    at = end
                yield (
                    edges,
                    [_together(each) for each in zip(*parts, strict=True)] or self._none(widths, forth),
                )
            for _ in groups:  # rows that are not needed
                pass

    def _none(self, widths: list[int], forth: bool) -> list[torch.Tensor]:
        return [torch.zeros(0, width, dtype=self._dtype) for width in [*widths, *widths[:forth]]]

    def _own(self, tables: list[Any], edges: PieceEdges) -> tuple[list[Table], Ids]:
        """Own rows of a piece, of each table; and for each edge which it is."""
        if not len(edges.inner):
            return [np.zeros((0, each.columns), self._kind) for each in tables], edges.inner
        first, last = int(edges.inner[0]), int(edges.inner[-1]) + 1
        return [own_rows(each, first, last) for each in tables], edges.inner - first


def _place(picked: Ids | None, row: int) -> int:
    """Where rows from `row` on begin in a list of rows; None stands for all."""
    return row if picked is None else int(np.searchsorted(picked, row))


def _ends(group: Collected, picked: Ids | None, first: int, last: int) -> tuple[Ids, Ids]:
    """Other and own ends of some rows' edges, as the group numbers them: of those that picked[first:last] names."""
    rows = None if picked is None else picked[first:last] - group.first
    span = (first - group.first, last - group.first) if picked is None else (0, last - first)
    outer, inner, _ = edge_ends(group.indptr, group.indices, None, rows, *span)
    return outer, inner


def _together(parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
