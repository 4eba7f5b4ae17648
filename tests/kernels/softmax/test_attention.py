"""Softmax attention against plain PyTorch over a list of edges."""

import numpy as np
import pytest
import torch

from siafu.graph.csr import Csr, from_coo, transpose
from siafu.kernels import Attention, gather_attention, gather_attention_adjoint, pack_heads
from siafu.kernels.softmax.attention import keep_factor


def edge_list(csr: Csr, *, self_loops: bool) -> tuple[torch.Tensor, torch.Tensor]:
    vertices = len(csr.indptr) - 1
    dst = np.repeat(np.arange(vertices), np.diff(csr.indptr))
    src = csr.indices.astype(np.int64)
    if self_loops:
        other = src != dst
        src = np.concatenate([src[other], np.arange(vertices)])
        dst = np.concatenate([dst[other], np.arange(vertices)])
    return torch.from_numpy(src), torch.from_numpy(dst)


def plain_attention(
    csr: Csr, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor, how: Attention
) -> torch.Tensor:
    src, dst = edge_list(csr, self_loops=how.self_loops)
    vertices = len(x)
    z = torch.nn.functional.leaky_relu(source[src] + target[dst], how.slope)
    where = dst[:, None].expand_as(z)
    top = torch.full((vertices, how.heads), -torch.inf, dtype=z.dtype).scatter_reduce(0, where, z, "amax")
    e = (z - top.detach()[dst]).exp()
    a = e / torch.zeros_like(top).index_add(0, dst, e)[dst]
    if how.dropout:
        keeps = [
            [keep_factor(np.uint64(how.seed), int(i), int(j), h, how.dropout) for h in range(how.heads)]
            for j, i in zip(src, dst, strict=True)
        ]
        a = a * torch.tensor(keeps, dtype=a.dtype)
    messages = a[:, :, None] * x.unflatten(1, (how.heads, -1))[src]
    return torch.zeros_like(x).index_add(0, dst, messages.flatten(1))


@pytest.mark.parametrize("heads,columns", [(1, 1), (1, 41), (8, 8), (3, 13), (2, 100), (16, 3)])
@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_outputs_and_gradients_are_those_of_plain_pytorch(
    heads: int, columns: int, self_loops: bool, dropout: float
) -> None:
    rng = np.random.default_rng(heads * 100 + columns)
    vertices = 30
    hub = np.zeros(150, np.int64)
    src = np.concatenate([rng.integers(0, vertices, 300), rng.integers(0, vertices, 150)])
    dst = np.concatenate([rng.integers(0, vertices - 3, 300), hub])
    csr = from_coo(src, dst, None, vertices)
    how = Attention(heads, -(-columns // 8) * 8, 0.2, self_loops, dropout, seed=11)
    x, gradient = (torch.from_numpy(rng.standard_normal((vertices, heads * columns))) for _ in range(2))
    source, target = (torch.from_numpy(3 * rng.standard_normal((vertices, heads))) for _ in range(2))
    leaves = [tensor.clone().requires_grad_() for tensor in (x, source, target)]
    expected = plain_attention(csr, *leaves, how)
    expected.backward(gradient)

    def padded(values: torch.Tensor) -> np.ndarray:
        return pack_heads(values.detach().numpy(), heads, how.head_columns, np.float64)

    def joined(table: np.ndarray) -> np.ndarray:
        used = table[:, : heads * how.head_columns].reshape(vertices, heads, how.head_columns)
        return used[:, :, :columns].reshape(vertices, -1)

    found = gather_attention(
        csr.indptr, csr.indices, padded(x), source.numpy(), target.numpy(), how, adjoint_follows=True
    )
    np.testing.assert_allclose(joined(found.out), expected.detach().numpy(), rtol=1e-9, atol=1e-12)

    by_head = (vertices, heads, columns)
    g = gradient.numpy().reshape(by_head)
    mean = (g * joined(found.out).reshape(by_head)).sum(-1)
    turned = transpose(csr)
    of_x, of_source = gather_attention_adjoint(
        turned.indptr,
        turned.indices,
        padded(x),
        source.numpy(),
        np.concatenate([target.numpy(), found.log_sum, mean], axis=1),
        padded(gradient),
        how,
    )
    np.testing.assert_allclose(joined(of_x), leaves[0].grad.numpy(), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(of_source, leaves[1].grad.numpy(), rtol=1e-9, atol=1e-11)
    above = (g * joined(found.positive).reshape(by_head)).sum(-1)
    of_target = (1 - how.slope) * (above - mean * found.positive_share)
    np.testing.assert_allclose(of_target, leaves[2].grad.numpy(), rtol=1e-9, atol=1e-11)


def test_logits_far_apart_neither_overflow_nor_vanish() -> None:
    csr = from_coo(np.array([1, 2, 3]), np.array([0, 0, 0]), None, 4)
    source = np.array([[0.0], [500.0], [499.0], [-500.0]], np.float32)
    rows = pack_heads(np.eye(4, 8, dtype=np.float32), 1, 8, np.float32)
    how = Attention(1, 8, 0.2, self_loops=False)
    out = gather_attention(
        csr.indptr, csr.indices, rows, source, np.zeros((4, 1), np.float32), how, adjoint_follows=False
    ).out
    np.testing.assert_allclose(out[0, :4], [0, 1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1)), 0], rtol=1e-5)
    assert (out[1:] == 0).all()


def test_float32_weights_are_right_to_a_few_units_in_the_last_place() -> None:
    """One neighbour at a time against a fixed one: the ratio of the two weights is the exponential."""
    drops = np.linspace(0, 80, 4001).astype(np.float32)
    count = len(drops)
    source = np.concatenate([[0.0], -drops]).astype(np.float32)[:, None]
    dst = np.repeat(np.arange(1, count + 1), 2)
    src = np.stack([np.zeros(count, np.int64), np.arange(1, count + 1)], axis=1).ravel()
    csr = from_coo(src, dst, None, count + 1)
    rows = np.zeros((count + 1, 8), np.float32)
    rows[0, 0] = 1
    rows[1:, 1] = 1
    how = Attention(1, 8, slope=1.0, self_loops=False)
    packed = pack_heads(rows, 1, 8, np.float32)
    zeros = np.zeros((count + 1, 1), np.float32)
    out = gather_attention(csr.indptr, csr.indices, packed, source, zeros, how, adjoint_follows=False).out
    np.testing.assert_allclose(out[1:, 1] / out[1:, 0], np.exp(-drops.astype(np.float64)), rtol=5e-7)


def test_dropout_keeps_the_share_it_should_and_the_mean() -> None:
    keeps = np.array([keep_factor(np.uint64(5), i, j, 0, 0.6) for i in range(100) for j in range(100)])
    assert abs((keeps == 0).mean() - 0.6) < 0.02
    assert abs(keeps.mean() - 1) < 0.05


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [8, 24])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.slow
def test_eight_heads_have_the_bits_of_the_same_heads_among_sixteen(
    kind: type, columns: int, dropout: float
) -> None:
    # Eight heads fill a vector and have loops of their own.
    rng = np.random.default_rng(columns)
    degrees = np.concatenate(
        [np.arange(70), np.zeros(2, np.int64)]
    )  # shorter and longer than a block of edges
    src = np.concatenate([rng.choice(len(degrees), degree, replace=False) for degree in degrees])
    csr = from_coo(src, np.repeat(np.arange(len(degrees)), degrees), None, len(degrees))
    x, gradient = (rng.standard_normal((len(degrees), 16 * columns)).astype(kind) for _ in range(2))
    source, target, mean = (rng.standard_normal((len(degrees), 16)).astype(kind) for _ in range(3))
    found = []
    for heads in (8, 16):
        how = Attention(heads, columns, 0.2, True, dropout, seed=5)
        rows, packed = (
            pack_heads(each[:, : heads * columns], heads, columns, kind) for each in (x, gradient)
        )
        own, other = (np.ascontiguousarray(each[:, :heads]) for each in (source, target))
        made = gather_attention(*csr[:2], rows, own, other, how, adjoint_follows=True)
        ends = np.concatenate([other, made.log_sum, mean[:, :heads]], 1)
        back = gather_attention_adjoint(*csr[:2], rows, own, ends, packed, how)
        found.append((*made, *back))
    for few, many in zip(*found, strict=True):
        assert few is not None and many is not None
        np.testing.assert_array_equal(few, many[:, : few.shape[1]])
