"""Tensor programs as data."""

import json
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from siafu.base.errors import BadInput
from siafu.program.execute.numpy_interpreter import NumpyInterpreter
from siafu.program.execute.torch_executor import TorchExecutor
from siafu.program.operations import OPERATIONS
from siafu.program.tensor_program import Op, Ref, RowCount, Spec, TensorProgram, prune
from siafu.program.trace.phase import RowSpec, trace_phase
from tests.program.phases import of_rows

LINEAR = TensorProgram(
    inputs=(("x", Spec("float", (RowCount(), 6))), ("w", Spec("float", (6, 3))), ("b", Spec("float", (3,)))),
    ops=(
        Op("addmm", (Ref(2), Ref(0), Ref(1)), (Spec("float", (RowCount(), 3)),)),
        Op("clamp", (Ref(3), None, math.inf), (Spec("float", (RowCount(), 3)),)),
    ),
    outputs=(("out", 4), ("before", 3)),
)


def test_a_program_survives_json() -> None:
    again = TensorProgram.from_json(LINEAR.to_json())
    assert again == LINEAR
    assert again.hash == LINEAR.hash


def before_only() -> TensorProgram:
    """The part of LINEAR that gives "before"."""
    return prune(LINEAR.inputs, LINEAR.ops, [each for each in LINEAR.outputs if each[0] == "before"])


def test_the_hash_is_that_of_the_program_wherever_it_is_computed() -> None:
    script = "import sys; from siafu.program.tensor_program import TensorProgram; print(TensorProgram.from_json(sys.stdin.read()).hash)"
    found = subprocess.run(
        [sys.executable, "-c", script], input=LINEAR.to_json(), capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == LINEAR.hash
    assert before_only().hash != LINEAR.hash


def test_tracing_twice_gives_the_same_hash() -> None:
    def gelu() -> str:
        return trace_phase(of_rows(F.gelu), [RowSpec((6,))], {}, differentiated=[0]).forward_keeping.hash

    assert gelu() == gelu()


def test_only_some_outputs_cost_only_their_operations() -> None:
    part = before_only()
    assert [op.name for op in part.ops] == ["addmm"]
    assert part.output_names == ("before",)


def test_flops_grow_with_the_rows() -> None:
    assert LINEAR.flops(10) == 10 * (2 * 6 * 3 + 3) + 10 * 3
    assert LINEAR.flops(0) == 0


def test_it_reads_line_by_line() -> None:
    assert str(LINEAR).splitlines() == [
        "x: float[rows, 6]",
        "w: float[6, 3]",
        "b: float[3]",
        "%3 = addmm(b, x, w): float[rows, 3]",
        "%4 = clamp(%3, None, inf): float[rows, 3]",
        "out ← %4",
        "before ← %3",
    ]


def _changed(change: dict[str, Any]) -> str:
    return json.dumps(json.loads(LINEAR.to_json()) | change)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nonsense",
        "{}",
        '{"format": 1}',
        _changed({"format": 2}),
        _changed({"more": 1}),
        _changed({"inputs": [["x", ["float", [-1]]]]}),
        _changed({"inputs": [["x", ["complex", [1]]]]}),
        _changed({"inputs": [["x", ["float", []]], ["x", ["float", []]]]}),
        _changed({"inputs": [[1, ["float", []]]]}),
        _changed({"outputs": [["out", 9]]}),
        _changed({"outputs": [["out", True]]}),
        _changed({"outputs": [["out", -1]]}),
        _changed({"ops": [["system", [], [None]]]}),
        _changed({"ops": [["mm", [{"value": 0}], [None]]]}),
        _changed({"ops": [["mm", [{"value": 0}, {"value": 7}], [None]]]}),
        _changed({"ops": [["mm", [{"value": 0}, 1], [None]]]}),
        _changed({"ops": [["mm", [{"value": 0}, {"other": 1}], [None]]]}),
        _changed({"ops": [["mm", [{"value": 0}, {"value": 1, "rows": 1}], [None]]]}),
        _changed({"ops": [["relu", [{"value": 0}], []]]}),
        _changed({"ops": [["relu", [{"value": 0.5}], [None]]]}),
        _changed({"ops": [["full", [[1], {"number": "huge"}, "float"], [None]]]}),
        _changed({"ops": [["full", [["rows"], 1, "float"], [None]]]}),
        _changed({"ops": 3}),
        "[" * 100_000,
    ],
)
def test_what_is_no_program_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadInput) as refusal:
        TensorProgram.from_json(text)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("run", [TorchExecutor, NumpyInterpreter])
def test_a_missing_input_is_named(run: Any) -> None:
    with pytest.raises(BadInput, match="'w'"):
        run(LINEAR)({"x": np.zeros((2, 6)), "b": np.zeros(3)})


@pytest.mark.parametrize("run", [TorchExecutor, NumpyInterpreter])
def test_inputs_that_disagree_on_the_rows_are_refused(run: Any) -> None:
    spec = Spec("float", (RowCount(), 2))
    both = TensorProgram((("a", spec), ("b", spec)), (Op("add", (Ref(0), Ref(1)), (spec,)),), (("out", 2),))
    with pytest.raises(BadInput, match="1 rows of 'b' and 2"):
        run(both)({"a": torch.zeros(2, 2).numpy(), "b": torch.zeros(1, 2).numpy()})


def test_both_executors_know_every_operation() -> None:
    from siafu.program.execute.numpy_operations import FUNCTIONS
    from siafu.program.execute.torch_executor import _FUNCTIONS, _SHAPED

    assert set(_FUNCTIONS) | set(_SHAPED) == set(OPERATIONS)
    assert set(FUNCTIONS) | set(_SHAPED) == set(OPERATIONS)


def test_values_are_freed_after_their_last_use() -> None:
    """A chain of a hundred operations holds a few tables, not a hundred."""
    import tracemalloc

    spec = Spec("float", (RowCount(), 1000))
    ops = tuple(Op("add", (Ref(k), 1.0), (spec,)) for k in range(100))
    program = TensorProgram((("x", spec),), ops, (("out", 100),))
    x = np.zeros((100, 1000))
    tracemalloc.start()
    NumpyInterpreter(program)({"x": x})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * x.nbytes


def test_the_interpreter_needs_neither_pytorch_nor_numba() -> None:
    script = """
import json, sys
import numpy as np
from siafu.program.execute.numpy_interpreter import NumpyInterpreter
from siafu.program.tensor_program import TensorProgram
program = TensorProgram.from_json(sys.stdin.read())
out, _ = NumpyInterpreter(program)({"x": np.ones((2, 6)), "w": np.ones((6, 3)), "b": np.ones(3)})
print(json.dumps([out.tolist(), sorted(name for name in ("torch", "numba") if name in sys.modules)]))
"""
    found = subprocess.run(
        [sys.executable, "-c", script], input=LINEAR.to_json(), capture_output=True, text=True, check=True
    )
    assert json.loads(found.stdout) == [[[7.0] * 3] * 2, []]
