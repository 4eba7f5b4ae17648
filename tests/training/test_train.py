"""siafu.train: what it computes and what it saves."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import siafu
from siafu.base.errors import BadInput, Diverged
from siafu.base.hardware import memory
from siafu.base.hardware.memory import parse_size
from siafu.graph import Graph
from siafu.training import trainer
from siafu.training.run import Run
from tests.oracle import train_plainly
from tests.sessions import gcn, losses, same_weights, timeless
from tests.toys import multi_label_graph, toy_graph


class Linear(nn.Module):
    """A model of a user's own making, that looks at no edge."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.map = nn.Linear(graph.num_features, graph.num_classes)

    def forward(self, graph: Graph, x: Tensor | None = None) -> Tensor:
        out: Tensor = self.map(torch.from_numpy(graph.x) if x is None else x)
        return out


def assert_close(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, weights[name], rtol=1e-9, atol=1e-12, msg=name)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of a GCN on the toy graph, to be copied and damaged."""
    path = tmp_path_factory.mktemp("saved") / "run"
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=2, out=path)
    return path


def test_a_model_learns_the_planted_classes() -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=60)
    assert run.summary()["test_accuracy"] > 0.85


def test_training_is_pytorchs_own_loop() -> None:
    graph = toy_graph()
    ours, theirs = (gcn(graph, dropout=0.0).double() for _ in range(2))
    run = siafu.train(graph.replace(val=None), ours, epochs=5, lr=0.02, weight_decay=1e-3)

    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.02, weight_decay=1e-3)
    rows, y = torch.from_numpy(graph.train), torch.from_numpy(graph.y)
    expected = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(theirs(graph)[rows], y[rows])
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert losses(run) == pytest.approx(expected, rel=1e-9)
    assert_close(ours, theirs.state_dict())


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("decay", ["all", "first"])
def test_optimizers_and_decay_are_pytorchs(optimizer: str, decay: str) -> None:
    graph = toy_graph(val=None)
    model = gcn(graph).double()
    options: dict[str, Any] = {"epochs": 5, "weight_decay": 0.5, "decay": decay, "optimizer": optimizer}
    truth = train_plainly(graph, model, dtype=torch.float64, seed=3, **options)
    run = siafu.train(graph, model, seed=3, **options)
    assert losses(run) == pytest.approx(truth.losses, rel=1e-9)
    assert_close(model, truth.weights)


def test_in_single_precision_every_score_is_the_oracles() -> None:
    graph = toy_graph()
    truth = train_plainly(graph, gcn(graph), epochs=20, weight_decay=5e-4)
    run = siafu.train(graph, gcn(graph), epochs=20)
    assert losses(run) == pytest.approx(truth.losses, rel=1e-5)
    for split in ("train", "val", "test"):
        scores = [getattr(epoch, f"{split}_accuracy") for epoch in run.history]
        assert scores == [epoch[f"{split}_accuracy"] for epoch in truth.scores]
    assert [epoch.val_loss for epoch in run.history] == pytest.approx(
        [epoch["val_loss"] for epoch in truth.scores], rel=1e-5
    )


def test_one_seed_is_one_result_and_another_seed_another() -> None:
    graph = toy_graph()
    first, again, other = (siafu.train(graph, gcn(graph), epochs=5, seed=seed) for seed in (3, 3, 4))
    assert timeless(first.history) == timeless(again.history)
    assert timeless(first.history) != timeless(other.history)


def test_two_threads_may_train_at_the_same_time() -> None:
    graph = toy_graph()
    alone = losses(siafu.train(graph, gcn(graph), epochs=5))
    call = nn.Module.__call__
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda model: siafu.train(graph, model, epochs=5), [gcn(graph), gcn(graph)]))
    assert [losses(run) for run in runs] == [alone, alone]
    assert nn.Module.__call__ is call


def test_pytorchs_random_state_is_left_as_it_was() -> None:
    graph = toy_graph()
    model = gcn(graph)
    before = torch.get_rng_state()
    siafu.train(graph, model, epochs=2)
    assert torch.equal(before, torch.get_rng_state())


def test_labels_of_held_out_rows_never_enter_the_weights() -> None:
    graph = toy_graph()
    y = graph.y.copy()
    y[graph.val], y[graph.test] = 0, 1
    honest, lied_to = gcn(graph), gcn(graph)
    first = siafu.train(graph.replace(val=None), honest, epochs=5)
    second = siafu.train(graph.replace(val=None, y=y), lied_to, epochs=5)
    assert same_weights(honest, lied_to)
    assert first.summary()["test_accuracy"] != second.summary()["test_accuracy"]


def test_each_accuracy_is_of_the_rows_it_names() -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=10)
    found = run.predict(graph).numpy()
    for split in ("train", "val", "test"):
        rows = getattr(graph, split)
        expected = np.mean(found[rows] == graph.y[rows])
        assert run.summary()[f"{split}_accuracy"] == pytest.approx(expected)


def test_the_model_ends_with_the_weights_of_the_best_epoch() -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=40, lr=0.1)
    best = max(epoch.val_accuracy for epoch in run.history)
    assert run.summary()["best_epoch"] < 40
    assert run.evaluate(graph)["val"]["accuracy"] == best
    assert run.evaluate(graph)["test"]["accuracy"] == run.summary()["test_accuracy"]


def test_without_validation_the_last_epoch_is_kept() -> None:
    graph = toy_graph(val=None)
    run = siafu.train(graph, gcn(graph), epochs=7)
    assert run.summary()["best_epoch"] == 7
    assert run.summary()["val_accuracy"] is None


def test_patience_ends_a_run_that_gets_no_better() -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=1000, lr=0.05, patience=10)
    assert len(run.history) < 1000
    assert len(run.history) == run.summary()["best_epoch"] + 10


def test_only_every_kth_epoch_and_the_last_are_evaluated() -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=8, evaluate_every=3)
    assert [epoch.epoch for epoch in run.history if epoch.evaluated] == [3, 6, 8]


def test_normalized_features_are_rows_that_sum_to_one() -> None:
    graph = toy_graph(x=np.random.default_rng(0).random((210, 8), np.float32))
    x = graph.x / graph.x.sum(axis=1, keepdims=True)
    ours = siafu.train(graph, gcn(graph), epochs=5, normalize_features=True)
    theirs = siafu.train(graph.replace(x=x), gcn(graph), epochs=5)
    assert [e.train_loss for e in ours.history] == pytest.approx([e.train_loss for e in theirs.history])
    assert torch.equal(ours.predict(graph), theirs.predict(graph.replace(x=x)))


def test_a_vertex_without_features_stays_so_when_normalized() -> None:
    x = toy_graph().x.copy()
    x[5] = 0
    graph = toy_graph(x=x)
    run = siafu.train(graph, gcn(graph), epochs=1, normalize_features=True)
    assert torch.isfinite(run.logits(graph)).all()


def test_several_labels_train_on_binary_cross_entropy_and_report_micro_f1() -> None:
    graph = multi_label_graph()
    model = Linear(graph)
    logits, rows = model(graph).detach(), torch.from_numpy(graph.train)
    y = torch.from_numpy(graph.y).float()
    loss = F.binary_cross_entropy_with_logits(logits[rows], y[rows]).item()
    run = siafu.train(graph, model, epochs=30, lr=0.1)
    assert run.history[0].train_loss == pytest.approx(loss)

    said, true = run.predict(graph).numpy()[graph.test], graph.y[graph.test].astype(bool)
    precision, recall = (said & true).sum() / said.sum(), (said & true).sum() / true.sum()
    assert run.summary()["metric"] == "micro_f1"
    assert run.summary()["test_accuracy"] == pytest.approx(2 * precision * recall / (precision + recall))
    assert run.summary()["test_accuracy"] > 0.65


def test_several_labels_train_as_in_one_piece() -> None:
    graph = multi_label_graph()
    model = gcn(graph).double()
    truth = train_plainly(graph, model, epochs=5, weight_decay=5e-4, dtype=torch.float64)
    run = siafu.train(graph, model, epochs=5, servers=2, intervals=3, partition="hash")
    assert losses(run) == pytest.approx(truth.losses, rel=1e-9)
    assert [epoch.test_accuracy for epoch in run.history] == [each["test_accuracy"] for each in truth.scores]


def test_probabilities_of_classes_sum_to_one_and_agree_with_predictions() -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=3)
    chances = run.probabilities(graph)
    assert torch.allclose(chances.sum(dim=1), torch.ones(graph.num_vertices))
    assert torch.equal(chances.argmax(dim=1), run.predict(graph))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"epochs": 0}, "epochs"),
        ({"lr": 0.0}, "lr"),
        ({"lr": float("nan")}, "lr"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"decay": "last"}, "decay"),
        ({"optimizer": "adamant"}, "optimizer"),
        ({"seed": -1}, "seed"),
        ({"patience": 0}, "patience"),
        ({"evaluate_every": 0}, "evaluate_every"),
        ({"checkpoint_every": -1.0}, "checkpoint_every"),
        ({"resume": True}, "resume"),
        ({"epochs": 2.5}, "epochs is 2.5"),
        ({"mode": "fast"}, "unknown mode 'fast': choose one of sync, pipe, async"),
        ({"mode": "async", "staleness": -1}, "staleness is -1"),
        ({"staleness": 1}, "staleness is for mode async, and mode is pipe"),
        ({"mode": "sync", "update_every": 2}, "update_every is for mode async, and mode is sync"),
        ({"exact_above": 0.5}, "exact_above is for mode async"),
        ({"mode": "async", "update_every": 0}, "update_every is 0"),
        ({"mode": "async", "exact_above": 1.5}, "exact_above is 1.5"),
        ({"servers": 0}, "servers is 0"),
        ({"servers": "two"}, "servers is two"),
        ({"servers": 211}, "211"),
        ({"intervals": 0}, "intervals is 0"),
        ({"partition": "alphabet", "servers": 2}, "no partition method 'alphabet'"),
        ({"weights": "3bw"}, "unknown weight policy '3bw': did you mean 2bw"),
        ({"weight_servers": 0}, "weight_servers is 0"),
    ],
)
def test_a_bad_option_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match=named) as caught:
        siafu.train(graph, gcn(graph), **options)
    assert "\n" not in str(caught.value)


def test_a_graph_without_labels_is_refused() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="no labels"):
        siafu.train(graph.replace(y=None), gcn(graph))


def test_a_graph_without_training_rows_is_refused() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="no training split"):
        siafu.train(graph.replace(train=None), gcn(graph))


def test_a_label_beyond_classes_that_do_not_occur_is_told_with_its_vertex() -> None:
    graph = toy_graph()
    y = graph.y.copy()
    y[5] = 6
    message = r"wants rows of 7: build it with out_channels=7, unless the label 6 of vertex 5 is a mistake: no vertex has class 3, 4, 5$"
    with pytest.raises(BadInput, match=message):
        siafu.train(graph.replace(y=y, num_classes=7), gcn(graph))


def test_patience_without_validation_rows_is_refused() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="validation"):
        siafu.train(graph.replace(val=None), gcn(graph), patience=3)


def test_a_model_of_the_wrong_width_is_refused() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="out_channels=3"):
        siafu.train(graph, siafu.nn.GCN(8, 8, 2, 5))


def test_decay_of_the_first_layer_needs_layers() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="convs"):
        siafu.train(graph, Linear(graph), decay="first")


def test_a_loss_that_is_no_number_says_to_lower_the_learning_rate() -> None:
    graph = toy_graph()
    with pytest.raises(Diverged, match="learning rate below 1e\\+30"):
        siafu.train(graph, gcn(graph), lr=1e30, epochs=20)


def test_a_saved_run_comes_back_as_it_was(tmp_path: Path) -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=5, out=tmp_path / "run")
    back = Run.load(tmp_path / "run")
    assert back.summary() == run.summary() == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert back.history == run.history
    assert torch.equal(back.probabilities(graph), run.probabilities(graph))


def test_a_model_of_ones_own_is_loaded_by_passing_it(tmp_path: Path) -> None:
    graph = toy_graph()
    run = siafu.train(graph, Linear(graph), epochs=2, out=tmp_path / "run")
    with pytest.raises(BadInput, match="Linear"):
        Run.load(tmp_path / "run")
    assert same_weights(Run.load(tmp_path / "run", Linear(graph)).model, run.model)


def test_a_run_loaded_into_another_model_is_refused(saved: Path) -> None:
    with pytest.raises(BadInput, match="another model"):
        Run.load(saved, Linear(toy_graph()))


@pytest.mark.parametrize(
    ("file", "path", "value"),
    [
        ("summary.json", "seconds_total", None),
        ("summary.json", "peak_rss_bytes", "much"),
        ("config.json", "model", None),
        ("config.json", "model", "gcn"),
        ("config.json", "model.name", 5),
        ("config.json", "model.config", None),
        ("config.json", "model.config.hidden_channels", "eight"),
        ("config.json", "model.config.hidden_channels", -8),
        ("config.json", "model.config.colour", "red"),
        ("config.json", "graph", None),
        ("config.json", "graph.metric", None),
        ("config.json", "training", []),
        ("config.json", "training.normalize_features", None),
    ],
)
def test_a_damaged_run_is_refused(saved: Path, tmp_path: Path, file: str, path: str, value: object) -> None:
    shutil.copytree(saved, tmp_path / "run")
    contents = json.loads((tmp_path / "run" / file).read_text())
    *outer, last = path.split(".")
    place = contents
    for key in outer:
        place = place[key]
    place[last] = value
    (tmp_path / "run" / file).write_text(json.dumps(contents))
    with pytest.raises(BadInput, match=f"{file} .*copy the run again") as caught:
        Run.load(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_run_without_its_metrics_is_refused(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    with pytest.raises(BadInput, match=r"metrics.jsonl is corrupted: .*; copy the run again"):
        Run.load(tmp_path / "run")


def test_a_run_is_refused_for_a_graph_of_another_kind() -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=1)
    with pytest.raises(BadInput, match="4 features"):
        run.predict(graph.replace(x=graph.x[:, :4]))
    with pytest.raises(BadInput, match="classes"):
        run.evaluate(multi_label_graph())


def test_a_graph_of_another_library_is_refused_with_the_way_in() -> None:
    graph = toy_graph()
    with pytest.raises(
        BadInput,
        match=r"train takes a siafu\.Graph or PyG's Data, not dict of builtins: make one with Graph\.from_pyg",
    ):
        siafu.train({}, gcn(graph))


def test_a_run_shows_itself_in_one_line() -> None:
    graph = toy_graph()
    shown = repr(siafu.train(graph, gcn(graph), epochs=2))
    assert "\n" not in shown
    assert "2 epochs, test accuracy" in shown


def test_a_run_from_python_knows_where_its_graph_came_from(tmp_path: Path) -> None:
    toy_graph().save(tmp_path / "toy.store")
    graph = siafu.load(tmp_path / "toy.store")
    run = siafu.train(graph, gcn(graph), epochs=1)
    assert run.config["dataset"] == str((tmp_path / "toy.store").resolve())


def test_a_training_that_cannot_fit_is_refused_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=1, out=tmp_path / "run")
    monkeypatch.setenv("SIAFU_MEMORY_LIMIT", "10kB")
    monkeypatch.setattr(trainer, "assemble", lambda *_: pytest.fail("rows were allocated"))
    with pytest.raises(
        BadInput, match=r"needs at least .* GB of memory, and 0.00 GB is free: .*bf16"
    ) as caught:
        siafu.train(graph, gcn(graph), epochs=1, out=tmp_path / "run", overwrite=True)
    assert "\n" not in str(caught.value)
    Run.load(tmp_path / "run")
    with pytest.raises(BadInput, match="needs at least"):
        siafu.train(graph, gcn(graph), epochs=9, out=tmp_path / "run", resume=True)


def test_a_budget_that_is_too_small_is_refused_with_the_least_that_would_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = toy_graph()
    monkeypatch.setenv("SIAFU_MEMORY_LIMIT", "off")  # what is asked for holds all the same
    with pytest.raises(
        BadInput, match=r"training needs (\d+MB|[\d.]+GB) of memory, and memory is 20MB: give"
    ) as caught:
        siafu.train(graph, gcn(graph), epochs=1, memory="20MB")
    least = str(caught.value).split()[2]
    assert siafu.train(graph, gcn(graph), epochs=1, memory=f"{2 * parse_size(least)}").history


def test_memory_need_not_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_left_in_groups", lambda root: [0])
    graph = toy_graph()
    with pytest.raises(BadInput, match="SIAFU_MEMORY_LIMIT=off"):
        siafu.train(graph, gcn(graph), epochs=1)
    monkeypatch.setenv("SIAFU_MEMORY_LIMIT", "off")
    siafu.train(graph, gcn(graph), epochs=1)


def test_a_prediction_that_cannot_fit_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.load(saved)
    monkeypatch.setenv("SIAFU_MEMORY_LIMIT", "1kB")
    with pytest.raises(BadInput, match="predicting needs at least"):
        run.predict(toy_graph())
