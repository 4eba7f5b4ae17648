"""Products with rows that are held without their zeros."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.program.execute.sparse_rows import SparseRows


def bag_of_words(rows: int, columns: int, density: float, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(rows, columns, dtype=dtype) * (torch.rand(rows, columns) < density)


sizes = st.integers(0, 40)


@settings(max_examples=40, deadline=None)
@given(sizes, st.integers(1, 40), st.integers(1, 40), st.floats(0, 1), st.integers(0, 99), st.booleans())
def test_products_are_those_of_the_dense_rows(
    rows: int, columns: int, width: int, density: float, seed: int, single: bool
) -> None:
    dtype = torch.float32 if single else torch.float64
    dense = bag_of_words(rows, columns, density, dtype, seed)
    sparse = SparseRows.of(dense)
    right, left = torch.randn(width, columns, dtype=dtype).t(), torch.randn(rows, width, dtype=dtype).t()
    near = {"rtol": 1e-5, "atol": 1e-5} if single else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(sparse.times(right), dense @ right, **near)
    torch.testing.assert_close(sparse.times_from_left(left), left @ dense, **near)
    assert torch.equal(sparse.dense(), dense)


@pytest.mark.parametrize("width", [5, 16, 64])
def test_some_rows_are_the_same_rows_of_the_whole_to_the_bit(width: int) -> None:
    sparse = SparseRows.of(bag_of_words(200, 70, 0.1, torch.float32))
    matrix = torch.randn(70, width)
    whole = sparse.times(matrix)
    assert torch.equal(sparse.rows(30, 170).times(matrix), whole[30:170])
    which = torch.tensor([190, 3, 3, 77])
    assert torch.equal(sparse.pick(which.numpy()).times(matrix), whole[which])


def test_rows_that_are_asked_for_again_are_the_same_object() -> None:
    sparse = SparseRows.of(bag_of_words(20, 7, 0.3, torch.float32))
    assert sparse.rows(5, 9) is sparse.rows(5, 9)
    assert sparse.rows(0, 20) is sparse


def test_memory_follows_the_nonzeros() -> None:
    dense = bag_of_words(1000, 500, 0.02, torch.float32)
    assert SparseRows.of(dense).nbytes < dense.nbytes / 5
