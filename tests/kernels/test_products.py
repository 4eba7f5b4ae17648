"""Products of tall tables: against NumPy in float64, for any shape, with padded rows, and row by row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.kernels.products import row_products, summed_products

SIZES = st.integers(1, 70)


def _table(rng: np.random.Generator, rows: int, columns: int, padding: int) -> np.ndarray:
    return rng.standard_normal((rows, columns + padding)).astype(np.float32)[:, :columns]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 600), SIZES, SIZES, st.integers(0, 5), st.booleans(), st.integers(0, 2**31))
def test_products_are_those_of_float64(
    rows: int, left: int, right: int, padding: int, turned: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a, b = _table(rng, rows, left, padding), _table(rng, rows, right, padding)
    weights = rng.standard_normal((right, left) if turned else (left, right)).astype(np.float32)
    weights = weights.T if turned else weights

    np.testing.assert_allclose(row_products(a, weights), a.astype(float) @ weights, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(summed_products(a, b), a.astype(float).T @ b, rtol=1e-4, atol=1e-4)


def test_of_nothing_comes_nothing() -> None:
    nothing, weights = np.empty((30, 0), np.float32), np.empty((0, 20), np.float32)
    np.testing.assert_array_equal(row_products(nothing, weights), np.zeros((30, 20)))
    np.testing.assert_array_equal(summed_products(nothing, np.ones((30, 32), np.float32)), np.zeros((0, 32)))
    np.testing.assert_array_equal(summed_products(weights, weights), np.zeros((20, 20)))


@pytest.mark.parametrize("columns", [16, 47, 128])
def test_a_row_has_the_same_bits_in_any_block(columns: int) -> None:
    rng = np.random.default_rng(0)
    rows, weights = _table(rng, 1000, 90, 0), _table(rng, 90, columns, 0)
    whole = row_products(rows, weights)
    for first, last in ((0, 1), (3, 17), (500, 998)):
        np.testing.assert_array_equal(row_products(rows[first:last], weights), whole[first:last])


def test_what_is_not_a_number_stays_in_its_row() -> None:
    rng = np.random.default_rng(0)
    rows, weights = _table(rng, 40, 24, 0), _table(rng, 24, 20, 0)
    rows[7, 3], rows[9, 0] = np.nan, np.inf
    found = row_products(rows, weights)
    assert np.isnan(found[7]).all()
    assert np.isinf(found[9]).all()
    assert np.isfinite(np.delete(found, [7, 9], 0)).all()
