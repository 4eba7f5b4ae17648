"""Label propagation and Correct and Smooth, against PyG's."""

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.nn.models import CorrectAndSmooth, LabelPropagation

import siafu
from siafu.base.errors import BadInput
from tests.toys import edge_index, multi_label_graph, toy_graph


def scores(graph: siafu.Graph) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.softmax(torch.randn(graph.num_vertices, graph.num_classes, generator=generator), 1)


def lonely_graph() -> siafu.Graph:
    """With self-loops, parallel edges and vertices without any edge."""
    rng = np.random.default_rng(3)
    ends = rng.integers(0, 80, (2, 300))
    ends[1, :20] = ends[0, :20]
    y = rng.integers(0, 4, 90)
    return siafu.Graph.from_edges(*ends, num_vertices=90, y=y, num_classes=4, train=np.arange(30))


@pytest.mark.parametrize("graph", [toy_graph(), lonely_graph()], ids=["toy", "lonely"])
def test_labels_spread_as_in_pyg(graph: siafu.Graph) -> None:
    theirs = LabelPropagation(num_layers=7, alpha=0.8)
    mask = torch.zeros(graph.num_vertices, dtype=torch.bool)
    mask[torch.from_numpy(graph.train)] = True
    wanted = theirs(torch.from_numpy(graph.y), edge_index(graph), mask=mask)
    assert torch.allclose(siafu.label_propagation(graph, layers=7, alpha=0.8), wanted, atol=1e-5)
    assert torch.allclose(siafu.label_propagation(graph, layers=7, alpha=0.8, rows=mask), wanted, atol=1e-5)


@pytest.mark.parametrize("autoscale", [True, False])
@pytest.mark.parametrize("graph", [toy_graph(), lonely_graph()], ids=["toy", "lonely"])
def test_errors_are_corrected_and_labels_smoothed_as_in_pyg(graph: siafu.Graph, autoscale: bool) -> None:
    theirs = CorrectAndSmooth(6, 0.7, 5, 0.8, autoscale=autoscale, scale=1.5)
    rows, edges, soft = torch.from_numpy(graph.train), edge_index(graph), scores(graph)
    known = torch.from_numpy(graph.y)[rows]
    wanted = theirs.smooth(theirs.correct(soft, known, rows, edges), known, rows, edges)
    found = siafu.correct_and_smooth(
        soft,
        graph,
        correction_layers=6,
        correction_alpha=0.7,
        smoothing_layers=5,
        smoothing_alpha=0.8,
        autoscale=autoscale,
        scale=1.5,
    )
    assert torch.allclose(found, wanted, atol=1e-5)


def test_a_run_is_corrected_by_its_probabilities() -> None:
    graph = toy_graph()
    run = siafu.train(graph, siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes), epochs=3)
    found = siafu.correct_and_smooth(run, graph, correction_layers=3, smoothing_layers=3)
    given = siafu.correct_and_smooth(run.probabilities(graph), graph, correction_layers=3, smoothing_layers=3)
    assert torch.equal(found, given)


def test_several_labels_a_vertex_spread_too() -> None:
    graph = multi_label_graph()
    found = siafu.label_propagation(graph, layers=2)
    assert found.shape == (graph.num_vertices, graph.num_classes)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda g: siafu.label_propagation(g.replace(y=None)), "has no labels: give it y"),
        (lambda g: siafu.label_propagation(g.replace(train=None)), "has no training split: give the rows"),
        (lambda g: siafu.label_propagation(g, rows=[0, 999]), "rows are no vertices of the graph"),
        (lambda g: siafu.label_propagation(g, layers=-1), "-1 layers with alpha 0.9: give"),
        (lambda g: siafu.correct_and_smooth(torch.zeros(3, 2), g), r"the probabilities have shape \[3, 2\]"),
    ],
)
def test_what_cannot_be_is_refused(call: Any, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        call(toy_graph())
