"""Phases to trace, and the judge of what they become: plain PyTorch with autograd."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from siafu.nn.dropout import CountedDropout
from siafu.program.execute.numpy_interpreter import NumpyInterpreter
from siafu.program.execute.torch_executor import TorchExecutor
from siafu.program.tensor_program import TensorProgram
from siafu.program.trace.phase import PhaseFunction, PhasePrograms, RowSpec, trace_phase

KEY = torch.tensor([7, 3])


def of_module(module: nn.Module) -> PhaseFunction:
    """`module(*rows)` as a phase, its dropout counted."""

    def function(
        rows: list[Tensor], weights: dict[str, Tensor], vertices: Tensor, key: Tensor
    ) -> list[Tensor]:
        with CountedDropout(key, vertices):
            out = torch.func.functional_call(module, weights, tuple(rows))
        return list(out) if isinstance(out, (tuple, list)) else [out]

    return function


def of_rows(function: Callable[..., Any]) -> PhaseFunction:
    """`function(*rows)` as a phase without weights."""

    def phase(rows: list[Tensor], weights: dict[str, Tensor], vertices: Tensor, key: Tensor) -> list[Tensor]:
        out = function(*rows)
        return list(out) if isinstance(out, (tuple, list)) else [out]

    return phase


def state_of(module: nn.Module) -> dict[str, Tensor]:
    return {
        name: each.detach().double() for name, each in [*module.named_parameters(), *module.named_buffers()]
    }


def run_everywhere(program: TensorProgram, inputs: dict[str, Tensor], rows: int) -> list[Tensor]:
    """What PyTorch makes of it, once NumPy was seen to make the same, to nearly all digits."""
    needed = {name: inputs[name].detach() for name in program.input_names}
    again = TensorProgram.from_json(program.to_json())
    assert again == program
    ours = TorchExecutor(again)(needed, rows)
    theirs = NumpyInterpreter(again)({name: each.numpy() for name, each in needed.items()}, rows)
    for (name, number), tensor, array in zip(program.outputs, ours, theirs, strict=True):
        spec = program.specs[number]
        assert spec is not None
        assert tuple(tensor.shape) == array.shape == spec.sizes(rows), name
        assert tensor.numpy().dtype == array.dtype, name
        tight = 1e-10 if tensor.dtype == torch.float64 else 2e-4
        np.testing.assert_allclose(array, tensor.numpy(), rtol=tight, atol=tight, err_msg=name)
    return ours


def check_phase(
    function: PhaseFunction,
    rows: Sequence[RowSpec],
    weights: dict[str, Tensor],
    *,
    learnt: Sequence[str] = (),
    differentiated: Sequence[int] = (),
    counts: Sequence[int] = (1, 2, 0, 60),
    draw: Callable[..., Tensor] = torch.randn,
) -> PhasePrograms:
    """Trace a phase; its programs must give autograd's numbers, in float64, for each count of rows."""
    programs = trace_phase(function, rows, weights, learnt=learnt, differentiated=differentiated)
    for count in counts:
        inputs = _inputs(rows, weights, count, draw)
        leaves = [f"rows/{k}" for k in differentiated] + [f"weight/{name}" for name in learnt]
        for name in leaves:
            inputs[name].requires_grad_()
        expected = function(*_arguments(inputs, len(rows), weights))
        _same(run_everywhere(programs.forward, inputs, count), expected)
        found = run_everywhere(programs.forward_keeping, inputs, count)
        _same(found[: len(expected)], expected)
        if programs.backward is None:
            continue
        assert programs.backward_kept is not None
        inputs |= {f"gradient/{k}": torch.randn_like(out) for k, out in enumerate(expected)}
        inputs |= dict(zip(programs.forward_keeping.output_names, found, strict=True))
        judge = _autograd(expected, [inputs[name] for name in leaves], inputs)
        for program in (programs.backward, programs.backward_kept):
            assert program.output_names == tuple(f"grad/{name}" for name in leaves)
            _same(run_everywhere(program, inputs, count), judge)
    return programs


def check_last(
    function: PhaseFunction,
    rows: Sequence[RowSpec],
    weights: dict[str, Tensor],
    loss: Callable[[list[Tensor], Tensor], Tensor],
    target: RowSpec,
    y: Callable[[int], Tensor],
    *,
    learnt: Sequence[str] = (),
    differentiated: Sequence[int] = (),
) -> PhasePrograms:
    """The same for a last phase, with its loss."""
    programs = trace_phase(
        function, rows, weights, learnt=learnt, differentiated=differentiated, loss=loss, target=target
    )
    assert programs.last is not None
    for count in (1, 2, 0, 60):
        inputs = _inputs(rows, weights, count, torch.randn) | {"y": y(count)}
        leaves = [f"rows/{k}" for k in differentiated] + [f"weight/{name}" for name in learnt]
        for name in leaves:
            inputs[name].requires_grad_()
        value = loss(function(*_arguments(inputs, len(rows), weights)), inputs["y"])
        judge = _autograd([value], [inputs[name] for name in leaves], {"gradient/0": torch.ones_like(value)})
        assert programs.last.output_names == ("loss", *(f"grad/{name}" for name in leaves))
        _same(run_everywhere(programs.last, inputs, count), [value, *judge])
    return programs


def names_in(program: TensorProgram | None) -> list[str]:
    assert program is not None
    return [op.name for op in program.ops]


def _inputs(
    rows: Sequence[RowSpec], weights: dict[str, Tensor], count: int, draw: Callable[..., Tensor]
) -> dict[str, Tensor]:
    inputs = {f"rows/{k}": draw(count, *spec.shape, dtype=torch.float64) for k, spec in enumerate(rows)}
    inputs |= {f"weight/{name}": each.detach().clone() for name, each in weights.items()}
    return inputs | {"vertices": torch.arange(count) * 3 + 5, "key": KEY}


def _arguments(inputs: dict[str, Tensor], count: int, weights: dict[str, Tensor]) -> tuple[Any, ...]:
    given = [inputs[f"rows/{k}"] for k in range(count)]
    return given, {name: inputs[f"weight/{name}"] for name in weights}, inputs["vertices"], inputs["key"]


def _autograd(outputs: list[Tensor], leaves: list[Tensor], inputs: dict[str, Tensor]) -> list[Tensor]:
    ends = [(out, inputs[f"gradient/{k}"]) for k, out in enumerate(outputs) if out.requires_grad]
    found = torch.autograd.grad(
        [out for out, _ in ends], leaves, [gradient for _, gradient in ends], allow_unused=True
    )
    return [
        torch.zeros_like(leaf) if gradient is None else gradient
        for leaf, gradient in zip(leaves, found, strict=True)
    ]


def _same(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert len(found) == len(expected)
    for ours, judge in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, judge.detach(), rtol=1e-11, atol=1e-11)
