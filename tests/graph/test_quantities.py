"""Labels that are numbers to come close to."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph


def ring(y: Any, **more: Any) -> Graph:
    return Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0], num_vertices=4, y=y, **more)


@pytest.mark.parametrize(
    ("y", "kind", "count"),
    [
        ([0.5, 1.0, 2.0, np.nan], "quantities", 1),
        ([[0.5], [1.0], [2.0], [3.0]], "quantities", 1),
        ([-2.0, 1.0, 0.0, 3.0], "quantities", 1),
        ([20_000.0, 35_000.0, 1.0, 2.0], "quantities", 1),
        ([[0.5, 1.0], [1.0, 0.0], [2.0, 1.0], [np.nan, 1.0]], "quantities", 2),
        ([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]], "labels", 2),
        ([0.0, 1.0, 2.0, np.nan], "classes", 3),
    ],
)
def test_floats_are_quantities_unless_they_can_be_classes_or_labels(y: Any, kind: str, count: int) -> None:
    graph = ring(np.array(y, np.float32))
    assert (graph.kind_of_labels, graph.num_classes) == (kind, count)
    assert graph.has_quantities == (kind == "quantities")


def test_quantities_keep_their_precision_and_are_read_from_a_store(tmp_path: Path) -> None:
    y = np.array([[1 / 3, 2.0], [0.1, np.nan], [1.0, 1.0], [2.0, 2.0]])
    ring(y, train=[0], val=[2]).save(tmp_path / "store")
    found = siafu.load(str(tmp_path / "store"))
    assert found.y is not None
    np.testing.assert_array_equal(found.y, y)
    assert "2 quantities" in repr(found)


@pytest.mark.parametrize(
    ("y", "more", "message"),
    [
        ([0.5, np.inf, 1.0, 1.0], {}, "y has infinite numbers"),
        ([0.5, np.nan, 1.0, 1.0], {"train": [1]}, "vertex 1 is in train but has no label"),
        ([[0.5, 1.0], [np.nan, 1.0], [1.0, 1.0], [1.0, 1.0]], {"val": [1]}, "vertex 1 is in val"),
        ([0.5, 1.0, 2.0, 3.0], {"num_classes": 4}, "y holds fractions"),
        (np.ones((4, 5000)) / 2, {}, "y has 5,000 quantities a vertex"),
    ],
)
def test_bad_quantities_are_refused(y: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ring(np.array(y), **more)


def test_a_split_is_drawn_among_known_quantities_and_not_by_class() -> None:
    graph = ring(np.array([0.5, np.nan, 1.5, 2.5]))
    assert np.isin(1, graph.split(1.0).train).item() is False
    with pytest.raises(BadInput, match="stratified split needs one class"):
        graph.split(1.0, stratified=True)


@pytest.mark.parametrize("objective", ["classes", "labels"])
def test_another_objective_is_refused_with_the_one_to_choose(objective: str) -> None:
    graph = ring(np.array([0.5, 1.5, 2.5, 3.5]), x=np.eye(4), train=[0, 1])
    with pytest.raises(BadInput, match="choose regression, or leave the objective out"):
        siafu.train(graph, siafu.nn.GCN(4, 4, 2, 1), epochs=1, objective=objective)
    with pytest.raises(BadInput, match="this one is regression"):
        siafu.train(graph, siafu.nn.GCN(4, 4, 2, 1), epochs=1, label_smoothing=0.1)


@pytest.mark.slow
def test_float_targets_of_pyg_are_learnt_as_pytorch_learns_them(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 6, generator=generator)
    data = Data(
        x=x,
        edge_index=torch.randint(0, 40, (2, 160), generator=generator),
        y=torch.stack([x[:, 0] * 2, x[:, 1] - 1], 1),
        train_mask=torch.arange(40) < 20,
        val_mask=torch.arange(40) >= 30,
    )
    model = siafu.nn.GraphSAGE(6, 8, 2, 2)
    graph = Graph.from_pyg(data)
    with torch.no_grad():
        first = torch.nn.functional.mse_loss(model(graph)[:20], data.y[:20]).item()
    run = siafu.train(data, model, epochs=8, lr=0.02, out=tmp_path / "run")
    assert run.history[0].train_loss == pytest.approx(first, rel=1e-5)
    again = siafu.Run.load(tmp_path / "run")
    expected = (run.model(graph)[30:] - data.y[30:]).square().mean().sqrt().item()
    assert again.evaluate(data)["val"]["accuracy"] == pytest.approx(expected, rel=1e-5)
