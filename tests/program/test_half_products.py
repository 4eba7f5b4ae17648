"""Products of bfloat16: what PyTorch's autocast computes, each value rounded once, and float64 as it was."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays
from torch import nn

import siafu
from siafu.program.cache.program_cache import compiled
from siafu.program.execute.numpy_operations import halve
from siafu.program.execute.torch_executor import TorchExecutor
from siafu.program.half_products import half_phase, half_products
from siafu.program.trace.phase import PhasePrograms, RowSpec, trace_phase
from siafu.server.rows.sparse_constants import is_half_factor
from tests.program.phases import KEY, of_module, run_everywhere
from tests.toys import toy_graph


class _TwoMaps(nn.Module):
    """Rows that two products read, and a product of what comes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.last = nn.Linear(6, 5), nn.Linear(6, 5, bias=False), nn.Linear(5, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(torch.relu(self.left(rows) + self.right(rows)))
        return found


def _traced(module: nn.Module) -> PhasePrograms:
    weights = {name: each.detach() for name, each in module.named_parameters()}
    return trace_phase(of_module(module), [RowSpec((6,))], weights, learnt=tuple(weights), differentiated=[0])


def _inputs(module: nn.Module, kind: torch.dtype) -> dict[str, torch.Tensor]:
    weights = {f"weight/{name}": each.detach().to(kind) for name, each in module.named_parameters()}
    rows, gradient = torch.randn(9, 6, dtype=kind), torch.randn(9, 4, dtype=kind)
    return weights | {"rows/0": rows, "gradient/0": gradient, "vertices": torch.arange(9), "key": KEY}


def test_forward_and_gradients_are_those_of_autocast() -> None:
    module = _TwoMaps()
    programs, inputs = half_phase(_traced(module)), _inputs(module, torch.float32)
    rows = inputs["rows/0"].clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = module(rows)
    out.backward(inputs["gradient/0"].to(out.dtype))
    (ours,) = TorchExecutor(programs.forward)(inputs)
    assert torch.allclose(ours, out.float(), atol=0.02)
    assert programs.backward is not None
    found = dict(zip(programs.backward.output_names, TorchExecutor(programs.backward)(inputs), strict=True))
    assert rows.grad is not None
    assert torch.allclose(found["grad/rows/0"], rows.grad, atol=0.04)
    for name, each in module.named_parameters():
        assert each.grad is not None
        assert torch.allclose(found[f"grad/weight/{name}"], each.grad, rtol=0.03, atol=0.06), name


def test_numpy_computes_what_pytorch_computes_and_float64_is_not_rounded() -> None:
    module = _TwoMaps()
    plain = _traced(module)
    for kind in (torch.float64, torch.float32):
        inputs = _inputs(module, kind)
        for program in (plain.forward, plain.backward):
            assert program is not None
            before = TorchExecutor(program)(inputs)
            after = TorchExecutor(half_products(program))(inputs)
            if kind == torch.float64:
                run_everywhere(half_products(program), inputs, 9)
                assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
            else:
                assert not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_each_value_is_rounded_once() -> None:
    programs = half_phase(_traced(_TwoMaps()))
    names = [op.name for op in programs.forward.ops]
    # The rows, three weights, and what the last map reads.
    assert names.count("halve") == 5
    assert names.count("half_mm") + names.count("half_addmm") == 3
    assert not {"mm", "addmm"} & set(names)


@given(
    arrays.arrays(
        np.float32,
        8,
        elements=some.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=True),
    )
)
def test_numpy_rounds_as_pytorch_does(values: np.ndarray) -> None:
    expected = torch.from_numpy(values.copy()).bfloat16().float().numpy()
    np.testing.assert_array_equal(halve(values), expected)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "mixed"])
def test_a_model_has_half_products_where_all_its_layers_ask_for_them(precision: str) -> None:
    graph = toy_graph(40)
    model = siafu.nn.GraphSAGE(graph.num_features, 8, 2, graph.num_classes, precision=precision)  # type: ignore[arg-type]
    program = compiled(model, graph, training=True)
    names = {op.name for phase in program.phases for op in phase.programs.forward.ops}
    assert ("half_mm" in names) == (precision == "mixed")
    assert ("mm" in names) == (precision != "mixed")
    assert any(is_half_factor(program, name) for name in program.constants) == (precision == "mixed")
