"""Gathers of messages that a user's function makes for each edge, some edges at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from siafu.graph import Graph
from siafu.nn.dropout import on_edges
from siafu.nn.gathers.functions import call
from siafu.nn.gathers.gather import Gather, refused_messages
from siafu.nn.recording import recorder
from siafu.nn.tensors import check_rows

_EDGES_AT_ONCE = 1 << 18

EdgeFunction = Callable[..., torch.Tensor]
"""Rows of some edges' sources and targets, and the edges' features if it wants them → messages."""


def gather_messages(
    graph: Graph,
    x: torch.Tensor,
    apply_edge: EdgeFunction,
    parameters: list[torch.Tensor],
    gather: Gather,
    *,
    features: int = 0,
) -> torch.Tensor:
    """Sum, Mean or Max of apply_edge(x[source], x[target]) over each vertex's in-edges.

    The backward pass runs `apply_edge` again, a block of edges at a time, instead of keeping what it made.

    features: columns of what edges have, of which it gets the edges' rows besides (`edge_rows`); 0: it gets none
    """
    if not gather.reduces_messages:
        raise refused_messages(gather)
    who = recorder()
    if who is not None:
        return who.gather_messages(gather, x, apply_edge, parameters, features)
    check_rows("x", x, graph)
    return call(_EdgeFunction, graph, _On(apply_edge, features), gather, x, *parameters)


@dataclass(frozen=True, slots=True)
class _On:
    """An edge function on a range of vertices' in-edges. features: as `gather_messages` takes them"""

    apply_edge: EdgeFunction
    features: int

    def __call__(
        self, graph: Graph, first: int, last: int, source: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        if not self.features:
            return self.apply_edge(source, target)
        which = slice(*graph.indptr[[first, last]])
        return self.apply_edge(source, target, edge_rows(graph, which, source.dtype, self.features))


def edge_columns(graph: Graph) -> int:
    """Columns of all that edges have: features, weight and type."""
    return graph.num_edge_features + (graph.edge_weight is not None) + (graph.edge_type is not None)


def edge_rows(graph: Graph, which: Any, dtype: torch.dtype, columns: int) -> torch.Tensor:
    """[k, columns] of some edges: their features; if more columns are asked for, their weight and their type as well."""
    parts = []
    if graph.edge_attr is not None:
        rows = np.ascontiguousarray(graph.edge_attr[which])
        bits = rows.dtype == np.uint16
        parts.append(
            (torch.from_numpy(rows).view(torch.bfloat16) if bits else torch.from_numpy(rows)).to(dtype)
        )
    if columns > graph.num_edge_features:
        more = [each[which] for each in (graph.edge_weight, graph.edge_type) if each is not None]
        parts += [torch.from_numpy(np.ascontiguousarray(each))[:, None].to(dtype) for each in more]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


class _EdgeFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        graph: Graph,
        apply_edge: _On,
        gather: Gather,
        x: torch.Tensor,
        *parameters: torch.Tensor,
    ) -> torch.Tensor:
        # Dropout must draw the same numbers when the backward pass makes the messages again.
        ctx.settings = graph, apply_edge, gather, torch.get_rng_state()
        ctx.save_for_backward(x, *parameters)
        with on_edges():
            parts = [
                gather.reduce(
                    graph, first, last, apply_edge(graph, first, last, *_ends(graph, x, first, last))
                )
                for first, last in _blocks(graph)
            ]
        return torch.cat(parts) if parts else x.new_zeros((0, x.shape[1]))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        graph, apply_edge, gather, random = ctx.settings
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(random)
            return _EdgeFunction._backward(ctx, graph, apply_edge, gather, gradients[0])

    @staticmethod
    def _backward(ctx: Any, graph: Graph, apply_edge: _On, gather: Gather, gradient: torch.Tensor) -> Any:
        x, *parameters = ctx.saved_tensors
        of_x = torch.zeros_like(x)
        learnt = [parameter for parameter in parameters if parameter.requires_grad]
        of_learnt = [torch.zeros_like(parameter) for parameter in learnt]
        for first, last in _blocks(graph):
            lo, hi = int(graph.indptr[first]), int(graph.indptr[last])
            if lo == hi:
                continue
            with torch.enable_grad():
                source, target = (rows.detach().requires_grad_() for rows in _ends(graph, x, first, last))
                out = gather.reduce(graph, first, last, apply_edge(graph, first, last, source, target))
            found = torch.autograd.grad(
                out, [source, target, *learnt], gradient[first:last], allow_unused=True
            )
            for ids, rows in zip(_edge_ids(graph, first, last), found[:2], strict=True):
                if rows is not None:
                    of_x.index_add_(0, ids, rows)
            for total, part in zip(of_learnt, found[2:], strict=True):
                if part is not None:
                    total += part
        found_gradients = iter(of_learnt)
        back = (next(found_gradients) if parameter.requires_grad else None for parameter in parameters)
        return None, None, None, of_x, *back


def _blocks(graph: Graph) -> Iterator[tuple[int, int]]:
    """Ranges of vertices with up to `_EDGES_AT_ONCE` in-edges each; a vertex with more has a range of its own."""
    first = 0
    while first < graph.num_vertices:
        limit = graph.indptr[first] + _EDGES_AT_ONCE
        last = int(np.searchsorted(graph.indptr, limit, side="right")) - 1
        last = min(max(last, first + 1), graph.num_vertices)
        yield first, last
        first = last


def _edge_ids(graph: Graph, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
    lo, hi = graph.indptr[first], graph.indptr[last]
    source = torch.from_numpy(graph.indices[lo:hi].astype(np.int64))
    target = torch.from_numpy(np.repeat(np.arange(first, last), np.diff(graph.indptr[first : last + 1])))
    return source, target


def _ends(graph: Graph, x: torch.Tensor, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
    source, target = _edge_ids(graph, first, last)
    return x[source], x[target]
