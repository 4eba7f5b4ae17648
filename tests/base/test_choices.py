"""Names that are refused before PyTorch is loaded are those that there are."""

from typing import get_args

import pytest
from torch.optim import lr_scheduler

from siafu.base import choices
from siafu.base.dataset_names import GENERATED_NAMES
from siafu.base.errors import BadInput
from siafu.graph.generate.shapes import SHAPES
from siafu.graph.partition import METHODS
from siafu.nn import MODELS
from siafu.nn.layers.norms import _NORMS
from siafu.nn.model import _ACTIVATIONS
from siafu.nn.tensors import Precision
from siafu.objective.registry import OBJECTIVES, objective_named


def test_names_are_those_of_the_tables_that_need_pytorch() -> None:
    assert tuple(MODELS) == choices.MODEL_NAMES
    assert get_args(Precision) == choices.PRECISION_NAMES
    assert tuple(_ACTIVATIONS) == choices.ACTIVATION_NAMES
    assert tuple(_NORMS) == choices.NORM_NAMES
    assert tuple(OBJECTIVES) == choices.OBJECTIVE_NAMES
    assert choices.PARTITION_METHODS == METHODS
    assert tuple(SHAPES) == GENERATED_NAMES


def test_schedulers_are_found_in_the_source_of_pytorch() -> None:
    known = {name for name, each in vars(lr_scheduler).items() if isinstance(each, type)}
    public = {name for name in lr_scheduler.__all__ if name in known}
    assert public <= set(choices.scheduler_names())


@pytest.mark.parametrize("text", ["stp", "StpLR(3)", "(", "a.b()", "3"])
def test_what_names_no_scheduler_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="give a class of torch"):
        choices.refuse_other_scheduler(text)


def test_the_nearest_scheduler_is_named() -> None:
    with pytest.raises(BadInput, match="did you mean StepLR"):
        choices.refuse_other_scheduler("StpLR(3)")


def test_names_that_a_user_adds_are_names() -> None:
    choices.refuse_other_model("mine", [*choices.MODEL_NAMES, "mine"])
    choices.refuse_other_objective("mine", [*choices.OBJECTIVE_NAMES, "mine"])
    OBJECTIVES["mine"] = OBJECTIVES["classes"]
    try:
        assert objective_named("mine") is OBJECTIVES["classes"]
    finally:
        del OBJECTIVES["mine"]
