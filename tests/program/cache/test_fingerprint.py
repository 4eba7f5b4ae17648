"""Fingerprints: models that are compiled to different programs have different ones, and code of others has none."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from siafu import Graph, nn
from siafu.objective.registry import OBJECTIVES
from siafu.objective.vertex_classes import VertexClasses
from siafu.program.cache import fingerprint as module
from siafu.program.cache.fingerprint import fingerprint
from tests.toys import multi_label_graph, toy_graph


def named(model: torch.nn.Module, graph: Graph | None = None, **options: object) -> str | None:
    given: dict[str, object] = {"training": True, "loss_scale": 1.0} | options
    return fingerprint(model, graph or toy_graph(), OBJECTIVES["classes"], **given)  # type: ignore[arg-type]


def gcn(**options: object) -> nn.GCN:
    graph = toy_graph()
    return nn.GCN(graph.num_features, 8, 2, graph.num_classes, **options)  # type: ignore[arg-type]


def without_bias() -> nn.GCN:
    model = gcn()
    model.convs[0].bias = None
    return model


def frozen() -> nn.GCN:
    model = gcn()
    next(model.parameters()).requires_grad_(False)
    return model


def square(tied: bool) -> nn.GCN:
    model = nn.GCN(8, 3, 2, 3)
    if tied:
        model.convs[1].bias = model.convs[0].bias
    return model


def test_equal_models_have_equal_ones_whatever_their_weights() -> None:
    assert named(gcn()) == named(gcn())


OTHERS: dict[str, Callable[[], torch.nn.Module]] = {
    "dropout": lambda: gcn(dropout=0.25),
    "activation": lambda: gcn(act="elu"),
    "normalisation": lambda: gcn(norm="layer_norm"),
    "residual": lambda: gcn(residual=True),
    "precision of gathers": lambda: gcn(precision="bf16"),
    "kind of layer": lambda: nn.GIN(8, 8, 2, 3),
    "precision": lambda: gcn().double(),
    "a weight that is not trained": frozen,
    "a weight that is not there": without_bias,
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_model_has_another(what: str) -> None:
    assert named(OTHERS[what]()) not in (None, named(gcn()))


def test_a_weight_that_two_layers_share_counts() -> None:
    assert named(square(True)) not in (None, named(square(False)))


def test_what_it_is_compiled_for_counts() -> None:
    model, graph = gcn(), toy_graph()
    several = multi_label_graph()
    found = [
        named(model),
        named(model, training=False),
        named(model, loss_scale=0.5),
        named(model, graph.replace(x=graph.x[:, :2])),  # type: ignore[index]
        fingerprint(model, several, OBJECTIVES["labels"], training=True, loss_scale=1.0),
    ]
    assert None not in found
    assert len(set(found)) == len(found)


class Own(nn.GCN):
    """A model of somebody else's code."""


class OwnObjective(VertexClasses):
    """An objective of somebody else's code."""


def hooked() -> nn.GCN:
    model = gcn()
    model.convs[0].register_forward_hook(lambda module, given, out: 2 * out)
    return model


def changed() -> nn.GCN:
    model = gcn()
    model.forward = lambda graph, x=None: x  # type: ignore[method-assign]
    return model


def within() -> nn.GCN:
    model = gcn()
    model.convs[0].lin = Linear(8, 8)
    return model


class Linear(torch.nn.Linear):
    """A part of somebody else's code."""


@pytest.mark.parametrize("make", [lambda: Own(8, 8, 2, 3), hooked, changed, within])
def test_code_of_others_has_none(make: Callable[[], torch.nn.Module]) -> None:
    assert named(make()) is None


def test_an_objective_of_others_has_none() -> None:
    assert fingerprint(gcn(), toy_graph(), OwnObjective(), training=True, loss_scale=1.0) is None


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the code that decides."""
    for room in module._DECIDING:
        shutil.copytree(module._PACKAGE / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(module, "_PACKAGE", tmp_path)
    module._code_told.cache_clear()
    yield tmp_path
    module._code_told.cache_clear()


def test_changed_code_changes_every_one(code: Path) -> None:
    before = named(gcn())
    changed = code / "nn" / "layers" / "gcn.py"
    changed.write_text(changed.read_text() + "GCNConv.message = None\n")
    module._code_told.cache_clear()
    assert named(gcn()) not in (None, before)
