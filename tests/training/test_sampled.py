"""Training on mini-batches: the same run directory, resumption, options and refusals as every other mode."""

import json
from pathlib import Path

import pytest
import torch

import siafu
from siafu.base.errors import BadInput, Diverged
from siafu.report.files.metrics import read_metrics
from siafu.report.files.trace_file import events
from siafu.training.pace import EpochEnd
from siafu.training.run import Run
from tests.sessions import StopAt, epochs_in, gcn, losses, same_weights, stopped, timeless
from tests.toys import toy_graph

SAMPLED = {"mode": "sampled", "fanout": "3,2", "batch": 16}


def test_with_all_edges_and_one_batch_it_learns_what_the_whole_graph_does() -> None:
    graph = toy_graph()
    whole = siafu.train(graph, gcn(graph).double(), epochs=5, mode="sync", clip=0.5)
    found = siafu.train(
        graph, gcn(graph).double(), epochs=5, mode="sampled", fanout=["all", "all"], batch=10**6, clip=0.5
    )
    for mine, theirs in zip(found.history, whole.history, strict=True):
        for name in ("train_loss", "val_loss", "val_accuracy", "test_accuracy"):
            assert getattr(mine, name) == pytest.approx(getattr(theirs, name), abs=1e-9)


def test_results_are_the_same_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, found = toy_graph(), []
    for threads in (1, 4):
        for place in ("training.sampled", "sampling.batch_memory"):
            monkeypatch.setattr(f"siafu.{place}.thread_count", lambda threads=threads: threads)
        model = gcn(graph)
        found.append((timeless(siafu.train(graph, model, epochs=3, intervals=2, **SAMPLED).history), model))
    (one, first), (four, second) = found
    assert one == four and same_weights(first, second)


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    graph, out = toy_graph(), tmp_path / "run"
    options = {**SAMPLED, "scheduler": "StepLR(step_size=2, gamma=0.5)"}
    stopped(graph, gcn(graph), out, StopAt(3), **options)
    assert epochs_in(out) == [1, 2, 3]
    model = gcn(graph)
    resumed = siafu.train(graph, model, epochs=6, out=out, resume=True, **options)
    straight_model = gcn(graph)
    straight = siafu.train(graph, straight_model, epochs=6, **options)
    assert timeless(resumed.history) == timeless(straight.history)
    assert same_weights(model, straight_model)
    assert resumed.counters["sampled_edges"] == straight.counters["sampled_edges"] > 0
    with pytest.raises(BadInput, match=r"cannot resume .*fanout was 3,2, now 3,3"):
        siafu.train(graph, gcn(graph), epochs=7, out=out, resume=True, **{**options, "fanout": "3,3"})


def test_its_directory_is_that_of_any_run(tmp_path: Path) -> None:
    graph, out = toy_graph(), tmp_path / "run"
    run = siafu.train(
        graph, gcn(graph), epochs=4, patience=3, evaluate_every=2, out=out, trace="full", **SAMPLED
    )
    config = json.loads((out / "config.json").read_text())
    assert {name: config["training"][name] for name in SAMPLED} == SAMPLED
    history = read_metrics(out / "metrics.jsonl")
    assert [each.val_accuracy is None for each in history] == [True, False, True, False]
    busy = history[1].busy_seconds
    assert busy is not None and {"sample", "load", "compute", "update"} < busy.keys()
    assert any(kind.startswith("evaluate") for kind in busy)
    spans = [each for each in events(out / "trace.json") if each.get("name") == "sample"]
    assert len(spans) >= 4 * 3
    loaded = Run.load(out)
    assert loaded.summary()["fanout"] == "3,2" and loaded.counters.items() >= run.counters.items()
    assert loaded.evaluate(graph)["val"]["accuracy"] == pytest.approx(run.summary()["val_accuracy"])


def test_callbacks_groups_and_own_objectives_are_those_of_other_modes() -> None:
    graph, seen = toy_graph(), []

    def watch(end: EpochEnd) -> None:
        seen.append(end.lr)
        end.lr = 0.001
        if end.metrics.epoch == 2:
            end.stop()

    run = siafu.train(
        graph, gcn(graph), epochs=9, optimizer="adamw", groups="convs.0: lr=0.1", callbacks=[watch],
        class_weights="balanced", **SAMPLED,
    )  # fmt: skip
    assert len(run.history) == 2 and seen == [0.1, 0.001]
    assert all(loss > 0 for loss in losses(run))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"weight_servers": 2},
            "weight_servers is 2, and mode sampled updates weights in one process and has no Lambdas",
        ),
        (
            {"servers": 2, "layout": "columns:1"},
            "layout is columns:1, and in mode sampled it is that of the features",
        ),
        ({"lambdas": "local"}, "lambdas is local, and mode sampled"),
        (
            {"fanout": "3"},
            "fanout is 3, and the model gathers 2 times, layer after layer: give a number for each",
        ),
        ({"fanout": "3,x"}, "fanout is '3,x': give a number from 1 up, or all"),
        ({"fanout": [2.5, 3]}, r"fanout is \[2.5, 3\]: give a number from 1 up, or all"),
        ({"staleness": 4}, "staleness is 4, and a batch is at most 3 updates behind in mode sampled"),
        ({"memory": "200MB"}, "memory is 200MB"),
        ({"mode": "pipe"}, "fanout is for mode sampled, and mode is pipe"),
    ],
)
def test_what_cannot_be_sampled_is_refused_in_one_line(options: dict, words: str) -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match=words):
        siafu.train(graph, gcn(graph), epochs=1, **{**SAMPLED, **options})


def test_a_model_without_gathers_has_nothing_to_sample() -> None:
    class Alone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = torch.nn.Linear(8, 3)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.map(x)

    with pytest.raises(BadInput, match="the model gathers nothing along the edges"):
        siafu.train(toy_graph(), Alone(), epochs=1, mode="sampled")


def test_a_fanout_above_every_degree_takes_all_edges_however_large_it_is() -> None:
    graph = toy_graph()
    every, huge = (
        siafu.train(graph, gcn(graph), epochs=2, **{**SAMPLED, "fanout": fanout})
        for fanout in ("all,all", [10**30, 1000])
    )
    assert losses(every) == losses(huge)


def test_a_loss_that_is_no_number_ends_the_run() -> None:
    graph = toy_graph()
    with pytest.raises(Diverged, match="the loss is not a number in epoch"):
        siafu.train(graph, gcn(graph), epochs=20, lr=1e30, optimizer="sgd", **SAMPLED)


def test_every_model_learns_from_samples() -> None:
    graph = toy_graph()
    for kind in (siafu.nn.GCN, siafu.nn.GraphSAGE, siafu.nn.GAT, siafu.nn.GIN):
        torch.manual_seed(0)
        model = kind(graph.num_features, 8, 2, graph.num_classes)
        run = siafu.train(graph, model, epochs=15, **{**SAMPLED, "fanout": "8,8"})
        assert run.summary()["test_accuracy"] > 0.6


def test_batch_norms_follow_batches_and_resume_bit_for_bit(tmp_path: Path) -> None:
    graph, out, options = toy_graph(), tmp_path / "run", {**SAMPLED, "fanout": "8,8"}

    def normed() -> siafu.nn.GNN:
        torch.manual_seed(0)
        return siafu.nn.GraphSAGE(graph.num_features, 8, 2, graph.num_classes, norm="batch_norm")

    stopped(graph, normed(), out, StopAt(3), **options)
    model, straight_model = normed(), normed()
    siafu.train(graph, model, epochs=15, out=out, resume=True, **options)
    straight = siafu.train(graph, straight_model, epochs=15, **options)
    assert same_weights(model, straight_model)
    counted = straight_model.norms[0].module.num_batches_tracked
    assert counted > 0 and counted % straight.counters["gradients_applied"] == 0
    assert straight.summary()["test_accuracy"] > 0.6
