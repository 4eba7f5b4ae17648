"""siafu.compile: a step of one's own loop, against autograd in float64 and against siafu.train to the bit."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph
from tests.toys import multi_label_graph, toy_graph

MODELS: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
    "gcn with batch norm and jumps": (siafu.nn.GCN, {"norm": "batch_norm", "jk": "cat"}),
    "gat": (siafu.nn.GAT, {"heads": 2}),
    "transformer": (siafu.nn.Transformer, {"heads": 2}),
}


def by_autograd(graph: Graph, model: nn.Module) -> torch.Tensor:
    model.train()
    rows, y = torch.from_numpy(graph.train), torch.from_numpy(graph.y)
    loss = nn.functional.cross_entropy(model(graph)[rows], y[rows])
    loss.backward()
    return loss


@pytest.mark.parametrize("name", MODELS)
def test_loss_gradients_and_running_statistics_are_autograds(name: str) -> None:
    kind, options = MODELS[name]
    graph = toy_graph()
    torch.manual_seed(1)
    ours = kind(graph.num_features, 6, 3, graph.num_classes, **options).double()
    theirs = copy.deepcopy(ours)
    step = siafu.compile(ours, graph, intervals=3)
    for call in (1, 2):  # gradients add up, as in torch
        loss, wanted = step(), by_autograd(graph, theirs)
        assert abs(loss.item() - wanted.item()) < 1e-9
        named = dict(theirs.named_parameters())
        for key, parameter in ours.named_parameters():
            assert torch.allclose(parameter.grad, named[key].grad, rtol=0, atol=1e-9), (call, key)
        for key, buffer in ours.named_buffers():
            assert torch.allclose(buffer, dict(theirs.named_buffers())[key], rtol=0, atol=1e-9), key
    step.close()


def test_with_adam_it_is_siafu_train_to_the_bit() -> None:
    graph = toy_graph()

    def new() -> nn.Module:
        torch.manual_seed(2)
        return siafu.nn.GraphSAGE(graph.num_features, 8, 2, graph.num_classes, dropout=0.4)

    run = siafu.train(graph, new(), epochs=4, lr=0.02, weight_decay=0.0, seed=5, intervals=2)
    model = new()
    step = siafu.compile(model, graph, seed=5, intervals=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses, scores = [], []
    for _ in range(4):
        optimizer.zero_grad()
        losses.append(step().item())
        optimizer.step()
        scores.append(step.evaluate())
    assert losses == [epoch.train_loss for epoch in run.history]
    assert [each["val_accuracy"] for each in scores] == [epoch.val_accuracy for epoch in run.history]
    assert [each["val_loss"] for each in scores] == [epoch.val_loss for epoch in run.history]
    step.close()


def test_a_model_of_pyg_and_any_optimizer() -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    graph = toy_graph()
    torch.manual_seed(0)
    model = pyg.GCN(graph.num_features, 8, 2, graph.num_classes).double()
    theirs = copy.deepcopy(model)
    target = torch.repeat_interleave(torch.arange(graph.num_vertices), torch.from_numpy(graph.indptr).diff())
    edge_index = torch.stack([torch.from_numpy(graph.indices).long(), target])
    rows, y, x = (torch.from_numpy(each) for each in (graph.train, graph.y, graph.x))
    step = siafu.compile(model, graph)
    optimizers = [
        torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9, nesterov=True) for each in (model, theirs)
    ]
    for _ in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = step()
        wanted = nn.functional.cross_entropy(theirs(x.double(), edge_index)[rows], y[rows])
        wanted.backward()
        for optimizer in optimizers:
            optimizer.step()
        assert abs(loss.item() - wanted.item()) < 1e-9


def test_several_labels_and_a_layout() -> None:
    graph = multi_label_graph()
    torch.manual_seed(0)
    model = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes)
    plain, laid = (siafu.compile(model, each)() for each in (graph, graph.reorder("degree")))
    assert torch.allclose(plain, laid, atol=1e-6)


def test_refusals() -> None:
    graph = toy_graph()
    model = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes)
    with pytest.raises(BadInput, match="compile takes no epochs: choose one of memory, objective"):
        siafu.compile(model, graph, epochs=3)
    with pytest.raises(BadInput, match="memory"):
        siafu.compile(model, graph, memory="1MB")
    with pytest.raises(BadInput, match="has no training split"):
        siafu.compile(model, graph.replace(train=None, val=None, test=None))
