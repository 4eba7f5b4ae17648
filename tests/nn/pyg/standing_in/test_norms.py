"""Norms of PyG over all vertices, recorded and trained in parts: losses, weights and running statistics are PyG's own."""

import copy

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn import functional as F

import siafu
from tests.nn.pyg.documented import Mapped, mapped_layers
from tests.nn.test_against_pyg import wild_graph
from tests.training_runs import train_in_pipeline

EPOCHS = 3


class Sized(nn.Module):
    """Norms that look at the size of the graph, and at messages."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = pyg.GCNConv(8, 8), pyg.GCNConv(8, 5)
        self.size, self.message = pyg.GraphSizeNorm(), pyg.MessageNorm(learn_scale=True)
        self.centre = pyg.MeanSubtractionNorm()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.message(x, self.first(x, edge_index))
        out: Tensor = self.last(self.size(torch.tanh(self.centre(hidden))), edge_index)
        return out


def labelled_graph() -> tuple[siafu.Graph, Tensor, Tensor, Tensor]:
    graph, edge_index, _ = wild_graph(3)
    x = np.random.default_rng(0).normal(size=(graph.num_vertices, 8)).astype(np.float32)
    y = np.arange(graph.num_vertices) % 5
    train = np.arange(0, graph.num_vertices, 2)
    graph = graph.replace(x=x, y=y, train=train, num_classes=5)
    return graph, edge_index, torch.from_numpy(x).double(), torch.from_numpy(y)


NORMED = [
    each
    for each in mapped_layers()
    if "norm=" in each.call and "norm=None" not in each.call and "features" not in each.edges
]


@pytest.mark.slow
@pytest.mark.parametrize("call", [*(each.call for each in NORMED if "MLP" not in each.call), "Sized()"])
def test_a_norm_is_trained_as_pyg_trains_it(call: str) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        theirs = Sized() if call == "Sized()" else Mapped(call, False, frozenset()).build()
        ours = copy.deepcopy(theirs)
        graph, edge_index, x, y = labelled_graph()
        rows = torch.from_numpy(graph.train)
        # Gradients of a bias before a norm are zero but for rounding, which Adam would make as large as any other.
        optimizer, losses = torch.optim.SGD(theirs.parameters(), lr=0.1), []
        for _ in range(EPOCHS):
            optimizer.zero_grad()
            loss = F.cross_entropy(theirs(x, edge_index)[rows], y[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found = train_in_pipeline(
            graph,
            ours,
            epochs=EPOCHS,
            optimizer="sgd",
            lr=0.1,
            weight_decay=0.0,
            mode="pipe",
            servers=2,
            intervals=2,
        )
    finally:
        torch.set_default_dtype(before)
    np.testing.assert_allclose(found.losses, losses, rtol=1e-9)
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(found.weights[name], weight, rtol=1e-9, atol=1e-9, msg=name)
