"""The oracle is judged too: by PyG, by hand, and by itself."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import models as pyg

from siafu import Graph, nn
from tests.oracle import train_plainly
from tests.toys import edge_index, multi_label_graph, toy_graph


@pytest.fixture
def graph() -> Graph:
    return toy_graph()


def small_model(graph: Graph, dropout: float = 0.0, kind: type[nn.GNN] = nn.GCN) -> nn.GNN:
    return kind(graph.num_features, 8, 2, graph.num_classes, dropout)


@pytest.mark.parametrize("kind", [nn.GCN, nn.GAT, nn.GraphSAGE, nn.GIN])
def test_it_learns_with_every_model(graph: Graph, kind: type[nn.GNN]) -> None:
    history = train_plainly(graph, small_model(graph, 0.2, kind), epochs=60, lr=0.02)
    assert history.losses[-1] < history.losses[0] / 2
    assert history.scores[-1]["test_accuracy"] > 0.85


def test_its_losses_and_weights_are_those_of_a_loop_around_pyg(graph: Graph) -> None:
    model = small_model(graph)
    peer = pyg.GCN(graph.num_features, 8, 2, graph.num_classes)
    peer.load_state_dict(model.state_dict())
    peer = peer.double()
    optimizer = torch.optim.Adam(peer.parameters(), lr=0.01, weight_decay=5e-4)
    x, edges, y = torch.from_numpy(graph.x).double(), edge_index(graph), torch.from_numpy(graph.y)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(peer(x, edges)[graph.train], y[graph.train])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    history = train_plainly(graph, model, epochs=20, weight_decay=5e-4, dtype=torch.float64)
    np.testing.assert_allclose(history.losses, losses, rtol=1e-10)
    for name, weight in peer.state_dict().items():
        torch.testing.assert_close(history.weights[name], weight, rtol=1e-9, atol=1e-11)


def test_it_agrees_with_itself_to_the_last_bit_and_leaves_the_model_alone(graph: Graph) -> None:
    model = small_model(graph, dropout=0.5)
    before = copy.deepcopy(model.state_dict())
    first, second = (train_plainly(graph, model, epochs=5, seed=3) for _ in range(2))
    assert first.losses == second.losses
    assert first.scores == second.scores
    assert all(torch.equal(first.weights[name], second.weights[name]) for name in before)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_dropout_is_of_the_seed(graph: Graph) -> None:
    model = small_model(graph, dropout=0.5)
    assert (
        train_plainly(graph, model, epochs=1, seed=0).losses
        != train_plainly(graph, model, epochs=1, seed=1).losses
    )


def test_dropout_is_another_in_every_epoch(graph: Graph) -> None:
    history = train_plainly(graph, small_model(graph, dropout=0.5), epochs=3, lr=1e-12, dtype=torch.float64)
    assert np.ptp(history.losses) > 1e-3


def test_single_precision_follows_double(graph: Graph) -> None:
    model = small_model(graph, dropout=0.3)
    single = train_plainly(graph, model, epochs=10)
    double = train_plainly(graph, model, epochs=10, dtype=torch.float64)
    np.testing.assert_allclose(single.losses, double.losses, rtol=1e-5)
    assert {weight.dtype for weight in double.weights.values()} == {torch.float64}


def test_scores_are_of_the_weights_after_the_update_without_dropout(graph: Graph) -> None:
    model = small_model(graph, dropout=0.5)
    history = train_plainly(graph, model, epochs=3)
    model.load_state_dict(history.weights)
    model.eval()
    out, y = model(graph).detach(), torch.from_numpy(graph.y)
    for split in ("train", "val", "test"):
        rows = getattr(graph, split)
        assert history.scores[-1][f"{split}_loss"] == pytest.approx(
            F.cross_entropy(out[rows], y[rows]).item()
        )
        right = np.mean(out.argmax(1).numpy()[rows] == graph.y[rows])
        assert history.scores[-1][f"{split}_accuracy"] == pytest.approx(right)


def test_gradients_are_those_of_the_first_epoch(graph: Graph) -> None:
    """Plain SGD steps along them."""
    model = small_model(graph)
    history = train_plainly(graph, model, epochs=1, lr=0.5, optimizer="sgd")
    assert set(history.gradients) == {name for name, _ in model.named_parameters()}
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(history.weights[name], weight - 0.5 * history.gradients[name])


def test_decay_of_the_first_layer_is_of_that_alone(graph: Graph) -> None:
    model = small_model(graph)
    with_decay, without = (
        train_plainly(graph, model, epochs=1, optimizer="sgd", weight_decay=decay, decay="first").weights
        for decay in (0.1, 0.0)
    )
    changed = {name for name in without if not torch.equal(with_decay[name], without[name])}
    assert changed == {"convs.0.lin.weight"}  # the bias begins at zero


def test_labels_outside_the_training_rows_do_not_matter() -> None:
    graph = toy_graph()
    scrambled = graph.y.copy()
    scrambled[graph.test] = 0
    model = small_model(graph)
    first = train_plainly(graph, model, epochs=3)
    second = train_plainly(toy_graph(y=scrambled), model, epochs=3)
    assert first.losses == second.losses
    assert first.scores != second.scores


def test_normalized_features_are_shares(graph: Graph) -> None:
    model = small_model(graph)
    shares = graph.x / np.abs(graph.x).sum(axis=1, keepdims=True)
    given = train_plainly(toy_graph(x=shares), model, epochs=3, dtype=torch.float64)
    made = train_plainly(graph, model, epochs=3, dtype=torch.float64, normalize_features=True)
    np.testing.assert_allclose(made.losses, given.losses, rtol=1e-6)


def test_several_labels_are_learnt_and_scored_by_micro_f1() -> None:
    graph = multi_label_graph()
    model = nn.GraphSAGE(graph.num_features, 16, 2, graph.num_classes)
    history = train_plainly(graph, model, epochs=100, lr=0.02)
    assert history.losses[-1] < history.losses[0] / 2
    model.load_state_dict(history.weights)
    said = model.eval()(graph).detach().numpy()[graph.val] > 0
    true = graph.y[graph.val] > 0
    precision, recall = (said & true).sum() / said.sum(), (said & true).sum() / true.sum()
    assert history.scores[-1]["val_accuracy"] == pytest.approx(2 * precision * recall / (precision + recall))
