import numpy as np
import torch

from siafu.embedding.steps.float_bits import BRIEF, as_kind, widened
from siafu.embedding.steps.row_updates import RowOptimizer, TouchedRows, gather_rows


def _rows(seed=0):
    return np.random.default_rng(seed).standard_normal((50, 24)).astype(np.float32)


def test_bfloat16_is_rounded_as_pytorch_rounds():
    rows = _rows()
    assert np.array_equal(widened(as_kind(rows, BRIEF)), torch.from_numpy(rows).bfloat16().float().numpy())


def test_rows_of_bfloat16_are_gathered_as_float32():
    brief = as_kind(_rows(), BRIEF)
    out = np.empty((3, 24), np.float32)
    gather_rows(brief, np.array([4, 0, 4]), out)
    assert np.array_equal(out, widened(brief)[[4, 0, 4]])


def test_steps_below_the_last_digit_arrive_in_the_mean():
    found = {}
    for dtype in (np.dtype(np.float32), BRIEF):
        table = RowOptimizer.of("adagrad", as_kind(np.ones((50, 24), np.float32), dtype), lr=1e-4)
        touched = TouchedRows(50)
        touched.list(np.arange(50))
        for step in range(1, 101):
            table.update(touched, np.ones((50, 24), np.float32), step)
        found[dtype] = widened(table.table).mean() - 1, widened(table.moments[0]).mean()
    exact, brief = found.values()
    assert abs(brief[0] / exact[0] - 1) < 0.1  # to the nearest, it would be 0
    assert abs(brief[1] / exact[1] - 1) < 0.02
