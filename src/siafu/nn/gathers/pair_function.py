"""PairSoftmax over a whole graph as an autograd function."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from siafu.base.threads import run_all
from siafu.graph import Graph
from siafu.kernels import (
    EVERY,
    EdgeTerms,
    Table,
    empty_table,
    equal_chunks,
    pack_heads,
    pair_range,
    pair_sources_range,
    pair_stats_range,
    pair_targets_range,
    zero_table,
)
from siafu.nn.gathers.pair_softmax import PairSoftmax, joined, loops_table, mix_of, of_mix, one_row, unpadded
from siafu.nn.tensors import as_rows, storage

# With their optional arguments in lists, they cannot be typed.
_forward: Any = pair_range
_to_sources: Any = pair_sources_range
_to_targets: Any = pair_targets_range
_CHUNKS = 32  # as many sums of the weights' gradients, whatever the number of threads: so bits are the same


class PairFunction(torch.autograd.Function):
    """Gradients of what was sent and of the parameters; of the self-loops' features there is none."""

    @staticmethod
    def forward(
        ctx: Any, graph: Graph, gather: PairSoftmax, dropout: float, seed: int, *given: torch.Tensor
    ) -> torch.Tensor:
        pair = _Pair(graph, gather, dropout, seed, given)
        out = empty_table(graph.num_vertices, pair.width, pair.kind)
        log_sum = np.empty((graph.num_vertices, gather.heads), pair.kind)
        _over(
            graph.indptr,
            lambda first, last: _forward(
                graph.indptr,
                graph.indices,
                *pair.rows,
                *pair.terms(None),
                *pair.settings,
                out,
                log_sum,
                EVERY,
                first,
                last,
            ),
        )
        ctx.settings = pair, out, log_sum
        ctx.save_for_backward(*given)
        return joined(out, pair.how, pair.columns).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        pair, out, log_sum = ctx.settings
        given = ctx.saved_tensors
        return None, None, None, None, *pair.backward(given, out, log_sum, gradients[0])


class _Pair:
    """One call: its settings, and its rows as kernels want them."""

    def __init__(
        self, graph: Graph, gather: PairSoftmax, dropout: float, seed: int, given: tuple[torch.Tensor, ...]
    ) -> None:
        self.graph, self.gather = graph, gather
        self.columns = given[0].shape[1] // gather.heads
        self.how = how = gather.settings(given[0].shape[1], dropout, seed)
        self.width = how.heads * how.head_columns
        self.settings: Any = (*how.arguments, EVERY)
        first = as_rows(given[0])
        self.kind = first.dtype
        self.stored = storage(first.dtype, gather.precision)
        rows = [as_rows(each) for each in given[: gather.rows_sent]]
        keys = pack_heads(rows[0], how.heads, how.head_columns, self.stored)
        parameters = given[gather.rows_sent + gather.sends_loops :]
        self.rows: Any
        if gather.form == "additive":
            targets = pack_heads(rows[1], how.heads, how.head_columns, self.kind)
            query = one_row(parameters[0], graph.num_vertices, how, self.kind)
            self.rows = keys, None, targets, query
        else:
            values = pack_heads(rows[1], how.heads, how.head_columns, self.stored)
            self.rows = keys, values, None, pack_heads(rows[2], how.heads, how.head_columns, self.kind)
        self._mix = mix_of(parameters[-1], how, self.kind) if gather.features else None
        self._loops = loops_table(given[gather.rows_sent] if gather.sends_loops else None)

    def terms(self, numbers: Any) -> Any:
        if self._mix is None:
            return EdgeTerms()
        return EdgeTerms(self.graph.edge_attr, numbers, self._mix, self._loops)

    def backward(
        self, given: tuple[torch.Tensor, ...], out: Table, log_sum: Any, gradient: torch.Tensor
    ) -> list[torch.Tensor | None]:
        graph, how, count = self.graph, self.how, self.graph.num_vertices
        values = as_rows(gradient.contiguous())
        packed = empty_table(count, self.width, self.stored)
        stats = np.empty((count, 2 * how.heads), self.kind)
        pair_stats_range(values, out, log_sum, how.heads, how.head_columns, packed, stats, EVERY, 0)
        of_keys = empty_table(count, self.width, self.kind)
        of_values = None if self.rows[1] is None else empty_table(count, self.width, self.kind)
        back = graph.out_edges
        numbers = graph.out_numbers if self._mix is not None else None
        common: Any = (packed, stats, *self.settings)
        _over(
            back.indptr,
            lambda first, last: _to_sources(
                back.indptr,
                back.indices,
                *self.rows,
                *self.terms(numbers),
                *common,
                of_keys,
                of_values,
                first,
                last,
            ),
        )
        of_rows, of_query, mixes = self._targets(common)
        rows: list[torch.Tensor | None] = [
            joined(each, how, self.columns) for each in (of_keys, of_values, of_rows) if each is not None
        ]
        rows += [None] * self.gather.sends_loops
        if of_query is not None:
            rows.append(unpadded(of_query, how, given[self.gather.rows_sent + self.gather.sends_loops]))
        if mixes is not None:
            rows.append(of_mix(mixes, how, given[-1]))
        return rows

    def _targets(self, common: Any) -> tuple[Table, Any, Any]:
        """Gradients of the targets' rows (of queries, where there are products), of the one query, of the mix."""
        graph = self.graph
        additive = self.gather.form == "additive"
        of_rows = empty_table(graph.num_vertices, self.width, self.kind)
        chunks = equal_chunks(graph.indptr, _CHUNKS)

        def part(chunk: Any) -> tuple[Any, Any]:
            query = np.zeros(self.width, self.kind)
            mixed = None if self._mix is None else zero_table(len(self._mix), self.width, self.kind)
            in_place = np.lib.stride_tricks.as_strided(
                query, (graph.num_vertices, self.width), (0, self.kind.itemsize)
            )
            _to_targets(
                graph.indptr,
                graph.indices,
                *self.rows,
                *self.terms(None),
                *common,
                of_rows if additive else None,
                in_place if additive else of_rows,
                mixed,
                EVERY,
                *chunk,
            )
            return query, mixed

        found = run_all(part, chunks)
        query = sum((each for each, _ in found), np.zeros(self.width, self.kind)) if additive else None
        if self._mix is None:
            return of_rows, query, None
        return of_rows, query, sum((each for _, each in found), np.zeros_like(self._mix))


def _over(indptr: Any, work: Callable[[int, int], None]) -> None:
    run_all(lambda chunk: work(*chunk), equal_chunks(indptr, _CHUNKS))
