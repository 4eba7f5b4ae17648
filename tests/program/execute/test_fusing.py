"""Operations that are fused: the values of the operations one by one, to the bit."""

import torch

from siafu.nn.dropout import dropout, kept_scale
from siafu.program.execute.fusing import fused_steps
from siafu.program.execute.numpy_interpreter import NumpyInterpreter
from siafu.program.execute.torch_executor import TorchExecutor
from siafu.program.tensor_program import Op, Ref, RowCount, Spec, TensorProgram

ROWS = RowCount(1)


def _floats(*shape: object) -> Spec:
    return Spec("float", shape)  # type: ignore[arg-type]


def _rectified_and_back() -> TensorProgram:
    """What a GCN's layer computes on its way back: rows dropped again, and the gradient through dropout and ReLU."""
    rows, bias = _floats(ROWS, 5), _floats(5)
    inputs = (
        *(("rows/0", rows), ("weight/bias", bias), ("gradient/0", rows)),
        *(("vertices", Spec("int64", (ROWS,))), ("key", Spec("int64", (2,)))),
    )
    ops = (
        Op("add", (Ref(0), Ref(1)), (rows,)),
        Op("relu", (Ref(5),), (rows,)),
        Op("dropout", (Ref(6), Ref(3), Ref(4), 0.4, 2), (rows,)),
        Op("mul", (Ref(2), kept_scale(0.4)), (rows,)),
        Op("threshold_backward", (Ref(8), Ref(7), 0), (rows,)),
    )
    return TensorProgram(inputs, ops, (("output/0", 7), ("grad/rows/0", 9)))


def _attention(columns: int) -> TensorProgram:
    """Logits of an attention layer with two heads, and a gradient of the rows that they were made of."""
    flat, heads, part = _floats(ROWS, 2 * columns), _floats(ROWS, 2, columns), _floats(ROWS, 2)
    weight, one = _floats(1, 2, columns), _floats(ROWS, 2, 1)
    inputs = (("rows/0", flat), ("weight/a", weight), ("gradient/0", flat), ("gradient/1", part))
    ops = (
        Op("reshape", (Ref(0), (ROWS, 2, columns)), (heads,)),  # 4
        Op("mul", (Ref(4), Ref(1)), (heads,)),
        Op("sum", (Ref(5), (2,), False), (part,)),  # 6
        Op("reshape", (Ref(3), (ROWS, 2, 1)), (one,)),
        Op("expand", (Ref(7), (ROWS, 2, columns)), (heads,)),
        Op("mul", (Ref(8), Ref(4)), (heads,)),  # 9
        Op("mul", (Ref(8), Ref(1)), (heads,)),
        Op("reshape", (Ref(6), (ROWS, 2, 1)), (one,)),
        Op("expand", (Ref(11), (ROWS, 2, columns)), (heads,)),
        Op("mul", (Ref(12), Ref(1)), (heads,)),
        Op("add", (Ref(10), Ref(13)), (heads,)),  # 14
        Op("reshape", (Ref(14), (ROWS, 2 * columns)), (flat,)),
        Op("add", (Ref(2), Ref(15)), (flat,)),  # 16
    )
    return TensorProgram(inputs, ops, (("output/0", 6), ("output/1", 9), ("grad/rows/0", 16)))


def test_dropout_after_bias_and_relu_and_its_way_back_have_the_bits_of_one_operation_after_another() -> None:
    program = _rectified_and_back()
    assert [op.name for op in fused_steps(program).values()] == ["drop_rectified", "undrop"]
    torch.manual_seed(0)
    rows, bias, gradient = torch.randn(40, 5), torch.randn(5), torch.randn(40, 5)
    rows[3, 2] = gradient[4, 1] = torch.nan  # a divergence must be seen
    vertices, key = torch.arange(40) * 3, torch.tensor([7, 1])
    given = {"rows/0": rows, "weight/bias": bias, "gradient/0": gradient, "vertices": vertices, "key": key}
    rectified = torch.relu(rows + bias)
    expected = dropout(rectified, vertices, key, 0.4, 2)
    back = torch.where(rectified <= 0, 0.0, dropout(gradient, vertices, key, 0.4, 2))
    for found, wanted in zip(TorchExecutor(program)(given), (expected, back), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_sums_before_dropout_and_on_its_way_back_are_part_of_one_pass() -> None:
    rows, bias = _floats(ROWS, 5), _floats(5)
    inputs = (
        *(("rows/0", rows), ("rows/1", rows), ("weight/bias", bias)),
        *(("gradient/0", rows), ("vertices", Spec("int64", (ROWS,))), ("key", Spec("int64", (2,)))),
    )
    torch.manual_seed(0)
    wide = torch.randn(40, 8)
    given = {"rows/0": wide[:, :5], "rows/1": torch.randn(40, 5), "weight/bias": torch.randn(5)}
    given |= {"gradient/0": torch.randn(40, 5), "vertices": torch.arange(40), "key": torch.tensor([7, 1])}
    for biased in (False, True):
        sums = [Op("add", (Ref(0), Ref(2)), (rows,)), Op("add", (Ref(1), Ref(6)), (rows,))]
        ops = sums if biased else [Op("add", (Ref(0), Ref(1)), (rows,))]
        end = 6 + len(ops)
        ops += [
            Op("relu", (Ref(end - 1),), (rows,)),
            Op("dropout", (Ref(end), Ref(4), Ref(5), 0.4, 2), (rows,)),
            Op("add", (Ref(3), Ref(0)), (rows,)),
            Op("mul", (Ref(end + 2), kept_scale(0.4)), (rows,)),
            Op("threshold_backward", (Ref(end + 3), Ref(end + 1), 0), (rows,)),
        ]
        program = TensorProgram(inputs, tuple(ops), (("output/0", end + 1), ("grad/rows/0", end + 4)))
        assert [op.name for op in fused_steps(program).values()] == ["drop_rectified", "undrop"]
        start = given["rows/0"] + given["weight/bias"] if biased else given["rows/0"]
        dropped = dropout(torch.relu(start + given["rows/1"]), given["vertices"], given["key"], 0.4, 2)
        back = torch.where(dropped <= 0, 0.0, (given["gradient/0"] + given["rows/0"]) * kept_scale(0.4))
        for found, wanted in zip(TorchExecutor(program)(given), (dropped, back), strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_the_bias_of_a_product_is_added_in_the_same_pass() -> None:
    rows, wide, weight = _floats(ROWS, 20), _floats(ROWS, 32), _floats(20, 32)
    inputs = (
        *(("rows/0", rows), ("weight/w", weight), ("weight/bias", _floats(32))),
        *(("vertices", Spec("int64", (ROWS,))), ("key", Spec("int64", (2,)))),
    )
    ops = (
        Op("addmm", (Ref(2), Ref(0), Ref(1)), (wide,)),
        Op("relu", (Ref(5),), (wide,)),
        Op("dropout", (Ref(6), Ref(3), Ref(4), 0.4, 2), (wide,)),
    )
    program = TensorProgram(inputs, ops, (("output/0", 7),))
    assert [op.name for op in fused_steps(program).values()] == ["mm", "drop_rectified"]
    torch.manual_seed(0)
    given = {"rows/0": torch.randn(600, 20), "weight/w": torch.randn(20, 32), "weight/bias": torch.randn(32)}
    given |= {"vertices": torch.arange(600), "key": torch.tensor([7, 1])}
    (found,) = TorchExecutor(program)(given)
    product = torch.relu(given["rows/0"] @ given["weight/w"] + given["weight/bias"])
    expected = dropout(product, given["vertices"], given["key"], 0.4, 2)
    torch.testing.assert_close(found, expected)
    assert torch.equal(found == 0, expected == 0)
    # A product that is an output, too, keeps its bias.
    shown = TensorProgram(inputs, ops, (*program.outputs, ("output/1", 5)))
    assert [op.name for op in fused_steps(shown).values()] == ["addmm", "relu", "dropout"]


def test_a_value_that_is_read_twice_is_not_fused_away() -> None:
    program = _rectified_and_back()
    shown = TensorProgram(program.inputs, program.ops, (*program.outputs, ("output/1", 6)))
    assert [op.name for op in fused_steps(shown).values()] == ["add", "relu", "dropout", "undrop"]


def test_logits_of_narrow_heads_and_their_way_back_have_the_bits_of_one_operation_after_another() -> None:
    torch.manual_seed(0)
    for columns in (3, 8):
        program = _attention(columns)
        names = [op.name for op in fused_steps(program).values()]
        assert names == ["reshape", "head_sums", "head_products", "add_head_products"]
        x, g, w = torch.randn(30, 2 * columns), torch.randn(30, 2 * columns), torch.randn(1, 2, columns)
        given = {"rows/0": x, "weight/a": w, "gradient/0": g, "gradient/1": torch.randn(30, 2)}
        found = TorchExecutor(program)(given)
        heads, spread = x.view(30, 2, columns), given["gradient/1"][:, :, None]
        sums = (heads * w).sum(2)
        added = g + (spread * w + sums[:, :, None] * w).view(30, 2 * columns)
        for made, wanted in zip(found, (sums, spread * heads, added), strict=True):
            torch.testing.assert_close(made, wanted, rtol=0, atol=0)
        plain = NumpyInterpreter(program)({name: each.numpy() for name, each in given.items()})
        for made, wanted in zip(found, plain, strict=True):
            torch.testing.assert_close(made, torch.from_numpy(wanted))


def test_logits_of_wide_heads_are_left_to_pytorch() -> None:
    assert "head_sums" not in [op.name for op in fused_steps(_attention(16)).values()]


def test_products_whose_columns_nearly_fill_vectors_have_the_numbers_of_pytorchs() -> None:
    torch.manual_seed(0)
    for count, columns in ((600, 47), (600, 48), (600, 50), (3, 47)):
        rows, weight = _floats(ROWS, 20), _floats(columns, 20)
        ops = (
            Op("permute", (Ref(1), (1, 0)), (_floats(20, columns),)),
            Op("mm", (Ref(0), Ref(2)), (_floats(ROWS, columns),)),
        )
        program = TensorProgram((("rows/0", rows), ("weight/w", weight)), ops, (("output/0", 3),))
        x, w = torch.randn(count, 20), torch.randn(columns, 20)
        (found,) = TorchExecutor(program)({"rows/0": x, "weight/w": w})
        torch.testing.assert_close(found, x @ w.t())


def _normed_and_back() -> TensorProgram:
    """A batch norm, ReLU and dropout, and their way back to the rows and to the norm's numbers."""
    rows, numbers = _floats(ROWS, 5), _floats(5)
    inputs = (
        *(("rows/0", rows), ("weight/shift", numbers), ("weight/factor", numbers), ("weight/bias", numbers)),
        *(("gradient/0", rows), ("vertices", Spec("int64", (ROWS,))), ("key", Spec("int64", (2,)))),
    )
    ops = (
        Op("add", (Ref(0), Ref(1)), (rows,)),  # 7
        Op("mul", (Ref(7), Ref(2)), (rows,)),
        Op("add", (Ref(8), Ref(3)), (rows,)),
        Op("relu", (Ref(9),), (rows,)),
        Op("dropout", (Ref(10), Ref(5), Ref(6), 0.4, 2), (rows,)),  # 11
        Op("mul", (Ref(4), kept_scale(0.4)), (rows,)),
        Op("threshold_backward", (Ref(12), Ref(11), 0), (rows,)),  # 13
        Op("sum", (Ref(13), (0,), False), (numbers,)),
        Op("mul", (Ref(13), Ref(7)), (rows,)),
        Op("mul", (Ref(13), Ref(2)), (rows,)),  # 16
        Op("sum", (Ref(15), (0,), False), (numbers,)),
        Op("sum", (Ref(16), (0,), False), (numbers,)),
    )
    gradients = (("grad/rows/0", 16), ("grad/bias", 14), ("grad/factor", 17), ("grad/shift", 18))
    return TensorProgram(inputs, ops, (("output/0", 11), *gradients))


def test_a_batch_norm_is_part_of_the_pass_of_dropout_and_its_way_back_is_one_pass() -> None:
    program = _normed_and_back()
    names = [op.name for op in fused_steps(program).values()]
    assert names == ["drop_rectified", "undrop", "scaled_back", "part", "part", "part", "mul"]
    torch.manual_seed(0)
    # More rows than are added up in their own type, columns that do not fill a vector, and rows that are padded.
    for count, kind in ((70, torch.float64), (1, torch.float64), (70, torch.float32), (0, torch.float64)):
        given = {
            name: torch.randn(5, dtype=kind) for name in ("weight/shift", "weight/factor", "weight/bias")
        }
        given |= {f"{name}/0": torch.randn(count, 8, dtype=kind)[:, :5] for name in ("rows", "gradient")}
        vertices, key = torch.arange(count), torch.tensor([7, 1])
        shift, factor, bias = (
            given[f"weight/{name}"].requires_grad_() for name in ("shift", "factor", "bias")
        )
        rows = given["rows/0"].detach().requires_grad_()
        wanted = dropout(torch.relu((rows + shift) * factor + bias), vertices, key, 0.4, 2)
        found, *back = TorchExecutor(program)({**given, "vertices": vertices, "key": key})
        assert torch.equal(found, wanted.detach())
        expected = torch.autograd.grad(wanted, (rows, bias, factor, shift), given["gradient/0"])
        near = 1e-12 if kind == torch.float64 else 1e-5
        for one, other in zip(back, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=near, atol=near)
