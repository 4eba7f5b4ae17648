"""The max gather against PyTorch's amax, ties included."""

import numpy as np
import pytest
import torch

from siafu.graph.csr import from_coo, transpose
from siafu.kernels import gather_max, gather_max_adjoint, pack


@pytest.mark.parametrize("width", [1, 7, 16, 64, 65, 130])
def test_values_and_gradients_are_those_of_amax(width: int) -> None:
    rng = np.random.default_rng(width)
    vertices = 40
    src, dst = rng.integers(0, vertices, 500), rng.integers(0, vertices - 4, 500)
    csr = from_coo(src, dst, None, vertices)
    # Few different values: many ties.
    x = rng.integers(-2, 2, (vertices, width)).astype(np.float32)
    reference = torch.from_numpy(x.copy()).requires_grad_()
    where = torch.from_numpy(dst)[:, None].expand(-1, width)
    # Started from a value that none reaches: PyTorch's gradient counts the start as a tie even if it is left out.
    start = torch.full((vertices, width), -9.0)
    greatest = start.scatter_reduce(0, where, reference[torch.from_numpy(src)], "amax", include_self=False)
    expected = greatest.where(greatest > -9, 0.0)
    gradient = rng.standard_normal((vertices, width)).astype(np.float32)
    expected.backward(torch.from_numpy(gradient))

    rows = pack(x, None, np.float32)
    out, ties = gather_max(csr.indptr, csr.indices, rows)
    np.testing.assert_array_equal(out[:, :width], expected.detach().numpy())

    shares = pack(gradient / np.maximum(ties[:, :width], 1), None, np.float32)
    turned = transpose(csr)
    back = gather_max_adjoint(turned.indptr, turned.indices, rows, out, shares)
    np.testing.assert_allclose(back[:, :width], reference.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_ties_count_parallel_edges_and_are_zero_without_edges() -> None:
    csr = from_coo(np.array([1, 1, 2]), np.array([0, 0, 0]), None, 3)
    _, ties = gather_max(csr.indptr, csr.indices, pack(np.ones((3, 2), np.float32), None, np.float32))
    np.testing.assert_array_equal(ties[:, :2], [[3, 3], [0, 0], [0, 0]])
