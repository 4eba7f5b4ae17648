"""The gathers as autograd functions: kernels forth over in-edges, their adjoints back over out-edges."""

from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch.autograd.function import once_differentiable

from siafu.graph import Csr, Graph
from siafu.kernels import (
    LANES,
    MAX_TILE,
    Attention,
    Blocks,
    Table,
    block_edges,
    block_size,
    empty_table,
    gather_attention,
    gather_attention_adjoint,
    gather_max,
    gather_max_adjoint,
    gather_sum,
    pack,
    pack_heads,
)
from siafu.nn.sample_graph import SampleGraph
from siafu.nn.tensors import Precision, as_rows, as_tensor, storage

if TYPE_CHECKING:
    from siafu.nn.gathers.gather import Scaling, Softmax


def call(function: type[torch.autograd.Function], *arguments: Any) -> torch.Tensor:
    """`function.apply`, which PyTorch leaves untyped."""
    return cast(torch.Tensor, function.apply(*arguments))


class SumFunction(torch.autograd.Function):
    """post · (A + diag(self_weight)) · pre · x, and back with A's transpose and the factors' roles swapped."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, graph: Graph, weighted: bool, scaling: "Scaling", precision: Precision
    ) -> torch.Tensor:
        ctx.settings = graph, weighted, scaling, precision
        edges = graph.in_edges
        if isinstance(graph, SampleGraph):
            edges, scaling = (
                graph.first_rows(edges),
                scaling._replace(
                    post=_first(scaling.post, graph.rows), self_weight=_first(scaling.self_weight, graph.rows)
                ),
            )
        return _sum(x, graph, edges, weighted, scaling, precision)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        graph, weighted, scaling, precision = ctx.settings
        swapped, gradient = scaling._replace(pre=scaling.post, post=scaling.pre), gradients[0]
        if isinstance(graph, SampleGraph) and scaling.self_weight is None:
            swapped = swapped._replace(pre=_first(scaling.post, graph.rows))
        elif len(gradient) < graph.num_vertices:  # a self-loop reads a row of every vertex
            gradient = torch.nn.functional.pad(gradient, (0, 0, 0, graph.num_vertices - len(gradient)))
        back = _sum(gradient, graph, graph.out_edges, weighted, swapped, precision)
        return back, None, None, None, None


class MaxFunction(torch.autograd.Function):
    """The greatest value of each column; equal ones share the gradient evenly."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, graph: Graph, precision: Precision) -> torch.Tensor:
        values = as_rows(x)
        rows = pack(values, None, storage(values.dtype, precision))
        out, ties = gather_max(graph.indptr, graph.indices, rows)
        ctx.settings = graph, rows, out, ties
        result = as_tensor(out, x.shape[1])
        _watch(ctx, (x, rows), (result, out))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        graph, rows, maxima, ties = _unchanged(ctx)
        gradient = as_rows(gradients[0])
        columns = gradient.shape[1]
        shares = empty_table(len(gradient), columns, maxima.dtype)
        shares[:, columns:] = 0
        np.divide(gradient, np.maximum(ties[:, :columns], 1), out=shares[:, :columns])
        edges = graph.out_edges
        back = gather_max_adjoint(edges.indptr, edges.indices, rows, maxima, shares)
        return as_tensor(back, columns), None, None


class AttentionFunction(torch.autograd.Function):
    """Softmax attention; the gradients of rows and of both logits."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        source: torch.Tensor,
        target: torch.Tensor,
        graph: Graph,
        gather: "Softmax",
        dropout: float,
        seed: int,
    ) -> torch.Tensor:
        columns = x.shape[1] // gather.heads
        how = Attention(
            gather.heads, -(-columns // LANES) * LANES, gather.slope, gather.self_loops, dropout, seed
        )
        values = as_rows(x)
        rows = pack_heads(values, how.heads, how.head_columns, storage(values.dtype, gather.precision))
        logits = as_rows(source.contiguous()), as_rows(target.contiguous())
        attended = gather_attention(
            graph.indptr, graph.indices, rows, *logits, how, adjoint_follows=any(ctx.needs_input_grad)
        )
        ctx.settings = graph, rows, logits, attended, how, columns
        result = _join_heads(attended.out, how, columns)
        _watch(ctx, (x, rows), (source, logits[0]), (target, logits[1]), (result, attended.out))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        graph, rows, (source, target), attended, how, columns = _unchanged(ctx)
        given = as_rows(gradients[0])
        exact = pack_heads(given, how.heads, how.head_columns, given.dtype)
        packed = exact if rows.dtype == exact.dtype else pack(exact, None, rows.dtype)
        mean = _head_dots(exact, attended.out, how)
        edges = graph.out_edges
        targets = np.concatenate([target, attended.log_sum, mean], axis=1)
        back, of_source = gather_attention_adjoint(
            edges.indptr, edges.indices, rows, source, targets, packed, how
        )
        bent = _head_dots(exact, attended.positive, how) - mean * attended.positive_share
        of_target = (1 - how.slope) * bent
        return (
            _join_heads(back, how, columns),
            torch.from_numpy(of_source),
            torch.from_numpy(of_target.astype(of_source.dtype)),
            None,
            None,
            None,
            None,
        )


def _first(factors: NDArray[Any] | None, count: int) -> NDArray[Any] | None:
    return None if factors is None else factors[:count]


def _watch(ctx: Any, *kept: tuple[torch.Tensor, NDArray[Any]]) -> None:
    """Let PyTorch watch the tensors whose memory the backward pass will read: a change in between is an error."""
    ctx.save_for_backward(
        *(tensor for tensor, array in kept if np.may_share_memory(tensor.detach().numpy(), array))
    )


def _unchanged(ctx: Any) -> Any:
    """What forward kept, after PyTorch has made sure that nobody changed it since."""
    _ = ctx.saved_tensors
    return ctx.settings


def _sum(
    x: torch.Tensor, graph: Graph, edges: Csr, weighted: bool, scaling: "Scaling", precision: Precision
) -> torch.Tensor:
    values = as_rows(x)
    kind = storage(values.dtype, precision)
    counted = edges._replace(weights=_weights(edges, values) if weighted else None)
    out = empty_table(len(edges.indptr) - 1, values.shape[1], values.dtype)
    # A slab of columns at a time: the packed copy of a wide table stays small.
    for c in range(0, values.shape[1], MAX_TILE):
        rows = pack(values[:, c : c + MAX_TILE], scaling.pre, kind)
        gather_sum(
            *counted,
            rows,
            self_weight=scaling.self_weight,
            scale=scaling.post,
            blocks=_blocks(graph, counted, rows, self_loops=scaling.self_weight is None),
            out=out[:, c : c + rows.shape[1]],
        )
        del rows  # before the next is packed: one slab at a time is what the memory list counts
    return as_tensor(out, x.shape[1])


def _weights(edges: Csr, values: NDArray[Any]) -> NDArray[Any] | None:
    return None if edges.weights is None else edges.weights.astype(values.dtype, copy=False)


_known_blocks: WeakKeyDictionary[Graph, dict[Any, Blocks]] = WeakKeyDictionary()


def forget_blocks(graph: Graph) -> None:
    """Let go of the edges that gathers over `graph` have put in order; they will be again when needed."""
    _known_blocks.pop(graph, None)


def _blocks(graph: Graph, edges: Csr, rows: Table, *, self_loops: bool) -> Blocks | None:
    """`edges` in the blocks that suit rows this wide, if any; put in order once for a graph."""
    size = block_size(graph.num_vertices, graph.num_edges, rows.strides[0])
    if size is None or isinstance(graph, SampleGraph):  # a sample is gathered over too few times
        return None
    known = _known_blocks.setdefault(graph, {})
    weighed = None if edges.weights is None else edges.weights.dtype
    key = edges.indices is graph.indices, size, weighed, self_loops
    if key not in known:
        known[key] = block_edges(*edges, size, self_loops=self_loops)
    return known[key]


def _join_heads(table: Table, how: Attention, columns: int) -> torch.Tensor:
    """[V, heads · columns] of a table whose heads may be padded."""
    used = as_tensor(table, how.heads * how.head_columns)
    if columns == how.head_columns:
        return used
    return used.reshape(len(used), how.heads, how.head_columns)[:, :, :columns].flatten(1)


def _head_dots(a: Table, b: Table, how: Attention) -> NDArray[Any]:
    """⟨a_i, b_i⟩ of each head, [V, heads]."""
    width = how.heads * how.head_columns
    shape = (len(a), how.heads, how.head_columns)
    products = torch.from_numpy(a)[:, :width] * torch.from_numpy(b)[:, :width]
    sums: NDArray[Any] = products.reshape(shape).sum(-1).numpy()
    return sums
