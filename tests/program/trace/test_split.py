"""A program split in two computes what it did whole."""

import numpy as np
import pytest
import torch

from siafu import nn
from siafu.program.compile import compile_model
from siafu.program.execute.numpy_interpreter import NumpyInterpreter
from siafu.program.program import Program
from siafu.program.tensor_program import RowCount, TensorProgram
from siafu.program.trace.split import Halves, split_backward, split_forward, split_last
from tests.toys import toy_graph

MODELS = {"gcn": nn.GCN, "gat": nn.GAT, "sage": nn.GraphSAGE, "gin": nn.GIN}
ROWS = 11


@pytest.fixture(scope="module", params=MODELS)
def program(request: pytest.FixtureRequest) -> Program:
    torch.manual_seed(0)
    graph = toy_graph()
    model = MODELS[request.param](graph.num_features, 8, 3, graph.num_classes, dropout=0.5)
    return compile_model(model, graph, training=True)


def inputs_of(program: TensorProgram) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    given = {}
    for name, spec in program.inputs:
        shape = spec.sizes(ROWS)
        whole = rng.integers(0, 3, shape) if spec.kind == "int64" else rng.normal(size=shape)
        given[name] = whole
    return given


def outputs_of(program: TensorProgram, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = NumpyInterpreter(program)({name: inputs[name] for name in program.input_names}, ROWS)
    return dict(zip(program.output_names, found, strict=True))


def assert_halves_give_the_whole(whole: TensorProgram, halves: Halves) -> None:
    inputs = inputs_of(whole)
    first = outputs_of(halves[0], inputs)
    second = outputs_of(halves[1], {**inputs, **first})
    assert not set(whole.output_names) & set(first) & set(second)
    for name, expected in outputs_of(whole, inputs).items():
        np.testing.assert_array_equal({**first, **second}[name], expected)


@pytest.mark.slow
def test_halves_give_what_the_whole_gives(program: Program) -> None:
    tried = 0
    for phase in program.phases:
        programs = phase.programs
        forward = [split_forward(each) for each in (programs.forward, programs.forward_keeping)]
        back = [each and split_backward(each) for each in (programs.backward, programs.backward_kept)]
        last = programs.last and split_last(programs.last, programs.forward)
        wholes = [programs.forward, programs.forward_keeping, programs.backward, programs.backward_kept]
        for whole, halves in zip([*wholes, programs.last], [*forward, *back, last], strict=True):
            if whole is not None and halves is not None:
                assert_halves_give_the_whole(whole, halves)
                tried += 1
    assert tried >= 4


def test_what_is_handed_on_has_rows(program: Program) -> None:
    for phase in program.phases:
        halves = split_forward(phase.programs.forward)
        if halves is not None:
            handed_on = [spec for name, spec in halves[1].inputs if name in halves[0].output_names]
            assert handed_on
            assert all(isinstance(spec.shape[0], RowCount) for spec in handed_on)


def test_the_loss_is_cut_off_the_last_phase(program: Program) -> None:
    programs = program.phases[-1].programs
    assert programs.last is not None
    halves = split_last(programs.last, programs.forward)
    assert halves is not None
    assert "y" not in halves[0].input_names
    assert "loss" in halves[1].output_names


def test_a_program_without_a_product_stays_whole() -> None:
    graph = toy_graph()
    program = compile_model(nn.GCN(graph.num_features, 8, 2, graph.num_classes), graph, training=True)
    assert split_forward(program.phases[-1].programs.forward) is None
