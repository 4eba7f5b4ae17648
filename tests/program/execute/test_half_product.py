"""Products of bfloat16 are those of PyTorch, in few different shapes."""

import pytest
import torch
from torch import Tensor

from siafu.program.execute import half_product as products
from siafu.program.execute.half_product import half_product, halved, rounded_length


@pytest.mark.parametrize("rows", [0, 1, 31, 32, 33, 1000, 2049, 5000])
def test_rows_times_weights_and_sums_over_rows_are_those_of_plain_products(rows: int) -> None:
    draws = torch.Generator().manual_seed(0)
    x, gradient, weight = (
        torch.randn(shape, generator=draws) for shape in ((rows, 24), (rows, 16), (24, 16))
    )
    for a, b in ((x, weight), (gradient, weight.t()), (x.t(), gradient)):
        flat = (halved(each) if each.is_contiguous() else halved(each.t()).t() for each in (a, b))
        torch.testing.assert_close(half_product(*flat), torch.mm(a.bfloat16(), b.bfloat16()))


def test_rows_of_a_table_are_multiplied_as_they_are() -> None:
    table, other = halved(torch.randn(40, 8)), halved(torch.randn(30, 4))
    torch.testing.assert_close(half_product(table[:30].t(), other), torch.mm(table[:30].t(), other))
    torch.testing.assert_close(half_product(table[10:].t(), other), torch.mm(table[10:].t(), other))


def test_blocks_of_many_lengths_are_multiplied_in_few_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: set[tuple[torch.Size, torch.Size]] = set()

    def counted(a: Tensor, b: Tensor) -> Tensor:
        shapes.add((a.shape, b.shape))
        return a.new_zeros((len(a), b.shape[1]))

    monkeypatch.setattr(products.torch, "mm", counted)
    weight = halved(torch.zeros(8, 4))
    for rows in range(1, 2000):
        x = halved(torch.zeros(rows, 8))
        assert half_product(x, weight).shape == (rows, 4)
        half_product(x.t(), x)
    assert len(shapes) < 200


def test_a_length_grows_by_a_sixteenth_at_most() -> None:
    for rows in range(1, 70_000, 7):
        found = rounded_length(rows)
        assert rows <= found < rows + max(32, rows / 16 + 1)
