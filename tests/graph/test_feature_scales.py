"""Columns of features that differ much in scale."""

import numpy as np

from siafu.graph.bf16 import to_bf16
from siafu.graph.feature_scales import told_scales


def people(income: float) -> np.ndarray:
    return np.array([[31, income, 0], [45, 2 * income, 0], [28, -income, 0]], np.float32)


def test_columns_that_are_a_hundred_times_apart_are_told_by_name() -> None:
    told = told_scales(people(41_000), ["age", "income", "never"])
    assert told is not None
    assert "income reaches 82,000, age reaches 45" in told
    assert "x.mean(0)" in told


def test_columns_without_names_have_numbers_and_bf16_is_read_as_such() -> None:
    told = told_scales(to_bf16(people(41_000)))
    assert told is not None and "column 1 reaches" in told


def test_columns_that_are_alike_are_not_told() -> None:
    assert told_scales(people(100)) is None
    assert told_scales(None) is None
    assert told_scales(np.zeros((5, 3), np.float32)) is None
    assert told_scales(np.zeros((0, 3), np.float32)) is None
