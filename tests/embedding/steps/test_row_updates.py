import numpy as np
import pytest
import torch

from siafu.embedding.embed_options import OPTIMIZERS
from siafu.embedding.steps.row_updates import RowOptimizer, TouchedRows, gather_rows


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_updates_are_those_of_torch(kind: str) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((20, 7))
    parameter = torch.nn.Parameter(torch.tensor(table))
    makers = {"adagrad": torch.optim.Adagrad, "adam": torch.optim.SparseAdam}
    reference = makers[kind]([parameter], lr=0.1)
    ours = RowOptimizer.of(kind, table, 0.1)
    touched = TouchedRows(20)
    for _ in range(5):
        ids, gradients = rng.integers(0, 20, 30), rng.standard_normal((30, 7))
        parameter.grad = torch.sparse_coo_tensor(ids[None], gradients, (20, 7)).coalesce()
        reference.step()
        touched.list(ids)
        ours.update(touched, gradients, ours.begin_step())
    np.testing.assert_allclose(table, parameter.detach().numpy(), rtol=1e-9, atol=1e-11)


def test_parts_of_an_update_make_the_whole_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    table, ids = rng.standard_normal((50, 9)).astype(np.float32), rng.integers(0, 50, 200)
    gradients = rng.standard_normal((200, 9)).astype(np.float32)
    whole, parts = (RowOptimizer.of("adagrad", table.copy(), 0.1) for _ in range(2))
    touched = TouchedRows(50)
    touched.list(ids)
    whole.update(touched, gradients, 1)
    for first in range(0, len(touched), 7):
        parts.update(touched, gradients, 1, first, min(first + 7, len(touched)))
    assert np.array_equal(whole.table, parts.table)


def test_rows_are_listed_once_and_with_all_their_places() -> None:
    touched = TouchedRows(10)
    for ids in ([3, 1, 3, 7, 1, 3], [2, 2, 9]):
        touched.list(np.array(ids))
        found = {
            int(row): touched.order[touched.starts[k] : touched.starts[k + 1]].tolist()
            for k, row in enumerate(touched.rows)
        }
        assert found == {row: [i for i, each in enumerate(ids) if each == row] for row in set(ids)}


def test_rows_can_be_kept_at_length_one() -> None:
    rng = np.random.default_rng(0)
    ours = RowOptimizer.of("adagrad", rng.standard_normal((5, 4)).astype(np.float32), 0.1, unit_rows=True)
    touched = TouchedRows(5)
    touched.list(np.array([1, 3]))
    ours.update(touched, rng.standard_normal((2, 4)).astype(np.float32), 1)
    lengths = np.linalg.norm(ours.table, axis=1)
    np.testing.assert_allclose(lengths[[1, 3]], 1, rtol=1e-6)
    assert not np.isclose(lengths[0], 1)


def test_rows_are_gathered() -> None:
    table = np.arange(12.0).reshape(4, 3)
    out = np.empty((3, 3))
    gather_rows(table, np.array([2, 0, 2]), out)
    assert np.array_equal(out, table[[2, 0, 2]])
