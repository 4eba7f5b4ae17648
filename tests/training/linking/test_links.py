"""Learning links: a loop in plain PyTorch is the judge."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import siafu
from siafu.base.errors import BadInput
from siafu.graph.links import split_links
from siafu.nn.decoders import DistMultDecoder, DotDecoder, MlpDecoder
from siafu.nn.dropout import counted_dropout
from siafu.objective.link_metrics import link_metrics
from tests.toys import toy_graph


def encoder(graph: siafu.Graph, dropout: float = 0.5) -> nn.Module:
    torch.manual_seed(5)
    return siafu.nn.GCN(graph.num_features, 8, 2, 6, dropout=dropout).double()


def plain_losses(graph: siafu.Graph, model: nn.Module, decoder: nn.Module, epochs: int) -> list[float]:
    """Whole-graph training on all links at once."""
    split, both = split_links(graph, seed=1), nn.ModuleList([model, decoder])
    optimizer = torch.optim.Adam(both.parameters(), lr=0.01)
    x, found = siafu.nn.features(graph).double(), []
    for epoch in range(epochs):
        optimizer.zero_grad()
        both.train()
        with counted_dropout(1, epoch):
            rows = model(split.graph, x)
        others = split.training_negatives(split.train.shape[1], epoch)
        positive, negative = (decoder(rows[u], rows[v]) for u, v in (split.train, others))
        loss = F.binary_cross_entropy(
            torch.sigmoid(torch.cat([positive, negative])),
            torch.cat([torch.ones_like(positive), torch.zeros_like(negative)]),
        )
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("kind", [DotDecoder, DistMultDecoder, MlpDecoder])
def test_losses_are_those_of_a_plain_loop(kind: type[nn.Module]) -> None:
    graph = toy_graph()
    model = encoder(graph)
    torch.manual_seed(9)
    decoder = kind(6).double()
    run = siafu.train_links(graph, copy.deepcopy(model), decoder=copy.deepcopy(decoder), epochs=5, seed=1)
    wanted = plain_losses(graph, model, decoder, 5)
    assert [each.loss for each in run.history] == pytest.approx(wanted, rel=1e-9)


def test_metrics_are_those_of_the_best_epoch_and_scores_of_its_weights() -> None:
    graph = toy_graph()
    seen = []
    run = siafu.train_links(
        graph,
        encoder(graph),
        decoder="mlp",
        epochs=8,
        batch=300,
        hide=True,
        metric="auc",
        progress=seen.append,
    )
    assert seen == run.history
    assert run.best.val["auc"] == max(each.val["auc"] for each in run.history)
    again = link_metrics(run.scores(run.split.test), run.scores(run.split.test_negatives))
    assert again["auc"] == pytest.approx(run.summary()["test_auc"])
    assert run.summary()["test_auc"] > 0.55
    assert run.summary()["links"]["test"] == run.split.test.shape[1]


def test_the_same_seed_gives_the_same_run_and_batches_change_it() -> None:
    graph = toy_graph()
    runs = [
        siafu.train_links(graph, encoder(graph), epochs=3, batch=batch).history for batch in (64, 64, None)
    ]
    told = [[(each.loss, each.val) for each in run] for run in runs]
    assert told[0] == told[1]
    assert told[0] != told[2]


def test_patience_ends_it() -> None:
    graph = toy_graph()
    run = siafu.train_links(graph, encoder(graph), epochs=60, patience=2, lr=0.5, metric="auc")
    assert len(run.history) == run.best.epoch + 2 < 60


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"decoder": "cosine"}, "unknown decoder 'cosine': choose one of dot, mlp, distmult"),
        ({"metric": "f1"}, "unknown metric 'f1': choose one of auc"),
        ({"hide": True}, "hide leaves a batch's links out, and all links are one batch: give batch"),
        ({"servers": 2}, "no keyword servers"),
        ({"decoder": nn.Bilinear(6, 6, 2).double()}, r"the decoder gives \[\d+, 2\] for \d+ pairs"),
        ({"val": 0.0}, "give shares above 0 that leave links"),
    ],
)
def test_what_cannot_be_is_refused(asked: dict[str, Any], told: str) -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match=told):
        siafu.train_links(graph, encoder(graph), epochs=1, **asked)


def test_pairs_that_are_none_are_refused() -> None:
    graph = toy_graph()
    run = siafu.train_links(graph, encoder(graph), epochs=1)
    for pairs in (np.zeros((3, 2)), [[0.5], [1.0]]):
        with pytest.raises(BadInput, match="pairs are no "):
            run.scores(pairs)
    with pytest.raises(BadInput, match="pairs has vertex 999: vertices go from 0 to 209"):
        run.scores([[0], [999]])


def test_a_run_of_links_is_one_line_in_a_notebook() -> None:
    graph = toy_graph()
    run = siafu.train_links(graph, siafu.nn.GCN(graph.num_features, 8, 2, 6), epochs=2)
    assert "\n" not in repr(run) and len(repr(run)) < 200
    assert repr(run).startswith("LinkRun(GCN on ") and "val auc" in repr(run)


@pytest.mark.parametrize("train", [siafu.train_links, siafu.train_ranks])
def test_a_keyword_that_is_none_is_refused_in_words_of_users(train: Any) -> None:
    graph = toy_graph()
    pairs = np.array([[0, 1, 2], [0, 1, 2]])
    given = graph if train is siafu.train_links else siafu.Interactions.of(pairs, np.array([[0], [1]]))
    model = siafu.nn.GCN(graph.num_features, 8, 2, 6)
    with pytest.raises(BadInput, match=r"there is no keyword resume: .* starts anew, and overwrite=True"):
        train(given, model, resume=True)
    with pytest.raises(BadInput, match="there is no keyword epoch: did you mean epochs"):
        train(given, model, epoch=3)


def test_interactions_are_one_line_and_names_beside_numbers_are_refused() -> None:
    pairs = np.array([[0, 1, 2], [0, 1, 2]])
    told = repr(siafu.Interactions.of(pairs, np.array([[0], [1]])))
    assert told == "Interactions('interactions', 3 users, 3 items, 3/0/1 train/val/test pairs)"
    with pytest.raises(BadInput, match="give names in all parts"):
        siafu.Interactions.of(np.array([["ann", "bob"], ["x", "y"]]), pairs)
