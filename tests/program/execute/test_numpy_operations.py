"""Operations in NumPy that are written for speed: the results of the plain way."""

import numpy as np
import pytest

from siafu.program.execute.numpy_operations import either, elu, elu_backward


def some(dtype: str, shape: tuple[int, ...] = (37, 5)) -> np.ndarray:
    found = 3 * np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)
    found.flat[:5] = [np.nan, np.inf, -np.inf, 0.0, -0.0]
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_either_has_the_bits_of_where(dtype: str) -> None:
    yes, no = some(dtype), some(dtype)[::-1]
    for condition in (yes > 0, np.zeros(yes.shape, bool), np.ones(yes.shape, bool)):
        assert either(condition, yes, no).tobytes() == np.where(condition, yes, no).tobytes()


def test_either_of_a_row_and_a_table_is_a_table() -> None:
    table, row = some("float32"), some("float32", (5,))
    np.testing.assert_array_equal(either(row > 0, table, row), np.where(row > 0, table, row))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("alpha", "scale", "inner"), [(1.0, 1.0, 1.0), (1.7, 1.05, 0.5)])
def test_elu_is_what_its_two_branches_are(dtype: str, alpha: float, scale: float, inner: float) -> None:
    x, g = some(dtype), some(dtype)[::-1].copy()
    before = x.copy(), g.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        made = np.where(x > 0, x * scale, np.expm1(x * inner) * (alpha * scale))
        np.testing.assert_array_equal(elu(x, alpha, scale, inner), made)
        for is_result in (True, False):
            slope = inner * (x + alpha * scale) if is_result else inner * alpha * scale * np.exp(x * inner)
            back = np.where(x > 0, g * scale, g * slope)
            np.testing.assert_array_equal(elu_backward(g, alpha, scale, inner, is_result, x), back)
    for given, kept in zip((x, g), before, strict=True):
        assert given.tobytes() == kept.tobytes()
