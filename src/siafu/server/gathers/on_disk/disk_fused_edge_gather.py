"""DiskFusedEdgeGather: an edge function that works element by element, whose rows and gradients are on disk."""

from typing import Any

import numpy as np
import torch

from siafu.kernels import CodeTables, EdgeCode, Table, run_code
from siafu.server.gathers.edgewise.edge_code import EdgeCodes
from siafu.server.gathers.local_gather import GatherGradients, Weights, view
from siafu.server.gathers.on_disk.collected_sources import Collected, own_rows
from siafu.server.gathers.on_disk.disk_edge_tables import DiskEdgeTables


class DiskFusedEdgeGather(DiskEdgeTables):
    """`FusedEdgeGather` with its tables on disk, equal to it in every bit: what the edge machine makes of a row depends on no range."""

    def __init__(self, reduction: Any, program: Any, codes: EdgeCodes, *given: Any, **options: Any) -> None:
        super().__init__(reduction, program, *given, **options)
        self._codes = codes

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        out, reduction = self._out.begin(first, last), self._reduction
        reduction.begin(first, last)
        for group, low, high in self._forth.by_group(first, last):
            (rows,) = group.sources
            ties = None if reduction.ties is None else reduction.ties.table()
            run_code(
                self._edges_of(group, "forward"),
                *group.picked(self.needed, low, high),
                self._codes.messages,
                CodeTables(rows, rows, rows, rows, targets_own=True),
                group.placed(out[low:high], low, high),
                None if ties is None else group.placed(ties[low:high], low, high),
                None if reduction.scale is None else reduction.scale[group.first : group.last],
                fresh=True,
            )
        return view(out, first, last, self._message_width)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        to_source, to_target = self._codes.to_source, self._codes.to_target
        assert to_source is not None and to_target is not None
        of_rows = self._of_rows.begin(first, last)
        of_rows[first:last] = 0
        if len(to_source.stores):
            self._add_as_sources_by(to_source, of_rows, first, last)
        if len(to_target.stores):
            self._add_as_targets_by(to_target, of_rows, first, last)
        return GatherGradients((view(of_rows, first, last, self._width),), {})

    def _add_as_sources_by(self, code: EdgeCode, of_rows: Table, first: int, last: int) -> None:
        for group, low, high in self._back.parts(first, last):
            targets, *given = group.sources
            rows = group.placed(own_rows(self._rows, low, high), low, high)
            tables = CodeTables(targets, rows, given[0], given[-1], targets_own=False)
            span = low - group.first, high - group.first
            out = group.placed(of_rows[low:high], low, high)
            run_code(self._edges_of(group, "backward"), None, *span, code, tables, out, fresh=False)

    def _add_as_targets_by(self, code: EdgeCode, of_rows: Table, first: int, last: int) -> None:
        for group, low, high in self._again.parts(first, last):
            (rows,) = group.sources
            given = [group.placed(own_rows(each, low, high), low, high) for each in self._sent[1:]]
            tables = CodeTables(rows, rows, given[0], given[-1], targets_own=True)
            out, picked = (
                group.placed(of_rows[low:high], low, high),
                group.picked(self.needed, low, high),
            )
            run_code(self._edges_of(group, "forward"), *picked, code, tables, out, fresh=False)

    def _edges_of(self, group: Collected, direction: str) -> tuple[Any, np.ndarray[Any, Any], Any]:
        _, _, weights = self._edges(direction)
        return group.indptr, group.indices, group.of_edges(weights)
