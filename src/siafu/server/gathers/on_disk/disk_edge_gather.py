"""DiskEdgeGather: an edge function whose rows, at both ends of the edges, and gradients are on disk."""

import numpy as np
import torch

from siafu.kernels import Table, add_to_rows
from siafu.nn.tensors import as_rows
from siafu.server.gathers.edgewise.reduction import picked_rows
from siafu.server.gathers.local_gather import Weights, view
from siafu.server.gathers.on_disk.disk_edge_tables import DiskEdgeTables


class DiskEdgeGather(DiskEdgeTables):
    """`EdgeGather` with its tables on disk, equal to it in every bit: the same pieces of edges go through the same programs."""

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> torch.Tensor:
        indptr, picked = self._walks.forward.edges.indptr, self.needed
        out = self._out.begin(first, last)
        self._reduction.begin(first, last)
        for edges, (source, target) in self._picked(self._forth, "forward", first, last):
            made = np.empty((0, self._message_width), self._kind)
            if len(edges.inner):
                made = as_rows(self._program.messages(source, target, weights or {}, self._features(edges)))
            self._reduction.reduce(indptr, picked, edges.first, edges.last, made, edges.weight, out)
        return view(out, first, last, self._message_width)

    def _add_as_sources(self, of_rows: Table, first: int, last: int, weights: Weights) -> None:
        for edges, (target, *given) in self._picked(self._back, "backward", first, last):
            if len(edges.inner):
                (rows,), inner = self._own([self._rows], edges)
                ends, tables = np.arange(len(inner)), [each.numpy() for each in given]
                source = picked_rows(rows, inner, self._width)
                of_source, _, _ = self._of_piece(source, target, weights, ends, tables, edges)
                add_to_rows(as_rows(of_source), edges.inner, of_rows)

    def _add_as_targets(
        self, of_rows: Table, first: int, last: int, weights: Weights
    ) -> dict[str, torch.Tensor]:
        of_weights: dict[str, torch.Tensor] = {}
        for edges, (source, target) in self._picked(self._again, "forward", first, last):
            if len(edges.inner) or not of_weights:
                tables, inner = self._own(self._sent[1:], edges)
                _, of_target, found = self._of_piece(source, target, weights, inner, tables, edges)
                add_to_rows(as_rows(of_target), edges.inner, of_rows)
                for name, part in found.items():
                    of_weights[name] = of_weights[name] + part if name in of_weights else part
        return of_weights
