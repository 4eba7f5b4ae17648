"""siafu.train: what it computes, what it saves, and how it goes on."""

import dataclasses
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import siafu
from siafu.errors import BadInput, Diverged, Interrupted
from siafu.graph import Graph
from siafu.report.metrics import EpochMetrics
from siafu.report.progress import Progress
from siafu.training import Run
from tests.toys import multi_label_graph, toy_graph

TIMES = {"seconds": 0.0, "evaluate_seconds": 0.0}


def gcn(graph: Graph, *, dropout: float = 0.5, seed: int = 0, **options: Any) -> nn.Module:
    torch.manual_seed(seed)
    return siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes, dropout=dropout, **options)


def timeless(history: list[EpochMetrics]) -> list[EpochMetrics]:
    return [dataclasses.replace(epoch, **TIMES) for epoch in history]


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


class StopAt(Progress):
    """Presses Ctrl-C in an epoch."""

    def __init__(self, epoch: int, number: signal.Signals = signal.SIGINT) -> None:
        self.epoch = epoch
        self.number = number
        self.told: list[signal.Signals] = []

    def epoch_ended(self, metrics: EpochMetrics) -> None:
        if metrics.epoch == self.epoch:
            signal.raise_signal(self.number)

    def stopping(self, number: signal.Signals) -> None:
        self.told.append(number)


class Linear(nn.Module):
    """A model of a user's own making, that looks at no edge."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.map = nn.Linear(graph.num_features, graph.num_classes)

    def forward(self, graph: Graph, x: Tensor | None = None) -> Tensor:
        out: Tensor = self.map(torch.from_numpy(graph.x) if x is None else x)
        return out


def test_a_model_learns_the_planted_classes() -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=60)
    assert run.summary()["test_accuracy"] > 0.85


def test_training_is_pytorchs_own_loop() -> None:
    graph = toy_graph()
    ours, theirs = gcn(graph, dropout=0.0), gcn(graph, dropout=0.0)
    run = siafu.train(graph.replace(val=None), ours, epochs=5, lr=0.02, weight_decay=1e-3)

    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.02, weight_decay=1e-3)
    rows, y = torch.from_numpy(graph.train), torch.from_numpy(graph.y)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(theirs(graph)[rows], y[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert [epoch.train_loss for epoch in run.history] == pytest.approx(losses, rel=1e-6)
    assert same_weights(ours, theirs)


def test_decay_of_the_first_layer_leaves_the_others_alone() -> None:
    graph = toy_graph()
    ours, theirs = gcn(graph, dropout=0.0), gcn(graph, dropout=0.0)
    siafu.train(graph.replace(val=None), ours, epochs=5, optimizer="sgd", weight_decay=0.5, decay="first")

    first = list(theirs.convs[0].parameters())
    others = [p for layer in theirs.convs[1:] for p in layer.parameters()]
    groups = [{"params": first, "weight_decay": 0.5}, {"params": others}]
    optimizer = torch.optim.SGD(groups, lr=0.01)
    rows, y = torch.from_numpy(graph.train), torch.from_numpy(graph.y)
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(theirs(graph)[rows], y[rows]).backward()
        optimizer.step()
    assert same_weights(ours, theirs)


def test_one_seed_is_one_result_and_another_seed_another() -> None:
    graph = toy_graph()
    first, again, other = (siafu.train(graph, gcn(graph), epochs=5, seed=seed) for seed in (3, 3, 4))
    assert timeless(first.history) == timeless(again.history)
    assert timeless(first.history) != timeless(other.history)


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
    ],
)
def test_a_bad_option_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match=named):
        siafu.train(graph, gcn(graph), **options)


def test_a_graph_without_labels_is_refused() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="no labels"):
        siafu.train(graph.replace(y=None), gcn(graph))


def test_a_graph_without_training_rows_is_refused() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="no training split"):
        siafu.train(graph.replace(train=None), gcn(graph))


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


def test_a_run_loaded_into_another_model_is_refused(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=2, out=tmp_path / "run")
    with pytest.raises(BadInput, match="another model"):
        Run.load(tmp_path / "run", Linear(graph))


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
def test_a_damaged_run_is_refused(tmp_path: Path, file: str, path: str, value: object) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=1, out=tmp_path / "run")
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


def test_a_run_without_its_metrics_is_refused(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=1, out=tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    with pytest.raises(BadInput, match="no epoch that was evaluated: copy the run again"):
        Run.load(tmp_path / "run")


def test_a_run_is_refused_for_a_graph_of_another_kind() -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=1)
    with pytest.raises(BadInput, match="4 features"):
        run.predict(graph.replace(x=graph.x[:, :4]))
    with pytest.raises(BadInput, match="classes"):
        run.evaluate(multi_label_graph())


def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    graph = toy_graph()
    straight = siafu.train(graph, gcn(graph), epochs=30, out=tmp_path / "straight")
    progress = StopAt(11)
    with pytest.raises(Interrupted, match="after epoch 11") as stopped:
        siafu.train(graph, gcn(graph), epochs=30, out=tmp_path / "run", progress=progress)
    assert stopped.value.exit_code == 130
    assert progress.told == [signal.SIGINT]

    resumed = siafu.train(graph, gcn(graph, seed=9), epochs=30, out=tmp_path / "run", resume=True)
    assert timeless(resumed.history) == timeless(straight.history)
    assert same_weights(resumed.model, straight.model)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(1, 31))


def test_a_best_epoch_before_the_interruption_is_still_the_best(tmp_path: Path) -> None:
    graph = toy_graph()
    straight = siafu.train(graph, gcn(graph), epochs=40, lr=0.1)
    best = straight.summary()["best_epoch"]
    assert best < 38
    options: dict[str, Any] = {"epochs": 40, "lr": 0.1, "out": tmp_path / "run"}
    with pytest.raises(Interrupted):
        siafu.train(graph, gcn(graph), progress=StopAt(best + 2), **options)
    resumed = siafu.train(graph, gcn(graph), resume=True, **options)
    assert same_weights(resumed.model, straight.model)


def test_attention_dropout_goes_on_bit_for_bit(tmp_path: Path) -> None:
    graph = toy_graph()
    config = {"in_channels": 8, "hidden_channels": 8, "num_layers": 2, "out_channels": 3, "heads": 2}

    def gat() -> nn.Module:
        torch.manual_seed(0)
        return siafu.nn.build("gat", {**config, "dropout": 0.6, "input_dropout": 0.6})

    straight = siafu.train(graph, gat(), epochs=9)
    with pytest.raises(Interrupted):
        siafu.train(graph, gat(), epochs=9, out=tmp_path / "run", progress=StopAt(4))
    resumed = siafu.train(graph, gat(), epochs=9, out=tmp_path / "run", resume=True)
    assert timeless(resumed.history) == timeless(straight.history)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_every_optimizer_goes_on_as_it_was(tmp_path: Path, optimizer: str) -> None:
    graph = toy_graph()
    options: dict[str, Any] = {"epochs": 9, "optimizer": optimizer, "decay": "first"}
    straight = siafu.train(graph, gcn(graph), **options)
    with pytest.raises(Interrupted):
        siafu.train(graph, gcn(graph), out=tmp_path / "run", progress=StopAt(4), **options)
    resumed = siafu.train(graph, gcn(graph), out=tmp_path / "run", resume=True, **options)
    assert timeless(resumed.history) == timeless(straight.history)


def test_sigterm_saves_too(tmp_path: Path) -> None:
    graph = toy_graph()
    with pytest.raises(Interrupted) as stopped:
        siafu.train(graph, gcn(graph), epochs=9, out=tmp_path / "run", progress=StopAt(3, signal.SIGTERM))
    assert stopped.value.exit_code == 143
    assert (tmp_path / "run" / "checkpoint.safetensors").is_file()


def test_signals_act_as_before_once_training_is_over(tmp_path: Path) -> None:
    graph = toy_graph()
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    siafu.train(graph, gcn(graph), epochs=1, out=tmp_path / "run")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_signal_in_the_last_epoch_lets_the_run_finish(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=3, out=tmp_path / "run", progress=StopAt(3))
    assert (tmp_path / "run" / "summary.json").is_file()


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    graph = toy_graph()
    straight = siafu.train(graph, gcn(graph), epochs=6, out=tmp_path / "run")
    for name in ("checkpoint.safetensors", "summary.json", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    resumed = siafu.train(graph, gcn(graph), epochs=6, out=tmp_path / "run", resume=True)
    assert timeless(resumed.history) == timeless(straight.history)


def test_a_finished_run_can_go_on_for_longer(tmp_path: Path) -> None:
    graph = toy_graph()
    straight = siafu.train(graph, gcn(graph), epochs=20)
    siafu.train(graph, gcn(graph), epochs=8, out=tmp_path / "run")
    longer = siafu.train(graph, gcn(graph), epochs=20, out=tmp_path / "run", resume=True)
    assert timeless(longer.history) == timeless(straight.history)
    assert Run.load(tmp_path / "run").summary()["epochs"] == 20


def test_resuming_a_finished_run_gives_it_back(tmp_path: Path) -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=4, out=tmp_path / "run")
    again = siafu.train(graph, gcn(graph, seed=5), epochs=4, out=tmp_path / "run", resume=True)
    assert again.summary() == run.summary()
    assert same_weights(again.model, run.model)


def test_resuming_with_other_settings_is_refused(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=4, out=tmp_path / "run")
    with pytest.raises(BadInput, match=r"training.lr was 0.01, now 0.5"):
        siafu.train(graph, gcn(graph), epochs=4, lr=0.5, out=tmp_path / "run", resume=True)
    with pytest.raises(BadInput, match=r"model.config.dropout was 0.5, now 0.25"):
        siafu.train(graph, gcn(graph, dropout=0.25), epochs=4, out=tmp_path / "run", resume=True)


def test_resuming_with_other_data_is_refused(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=4, out=tmp_path / "run")
    other = graph.replace(x=graph.x + 1)
    with pytest.raises(BadInput, match="fingerprint"):
        siafu.train(other, gcn(graph), epochs=4, out=tmp_path / "run", resume=True)


def test_resuming_from_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=4, out=tmp_path / "run")
    (tmp_path / "run" / "checkpoint.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(BadInput, match=r"checkpoint.safetensors is corrupted"):
        siafu.train(graph, gcn(graph), epochs=8, out=tmp_path / "run", resume=True)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    graph = toy_graph()
    for name, model in (("a", gcn(graph)), ("b", gcn(graph, norm="layer_norm"))):
        siafu.train(graph, model, epochs=2, out=tmp_path / name)
    (tmp_path / "a" / "checkpoint.safetensors").replace(tmp_path / "b" / "checkpoint.safetensors")
    with pytest.raises(BadInput, match="another model"):
        siafu.train(graph, gcn(graph, norm="layer_norm"), epochs=9, out=tmp_path / "b", resume=True)


def test_a_graph_of_another_library_is_refused_with_the_way_in() -> None:
    graph = toy_graph()
    with pytest.raises(
        BadInput, match=r"train takes a siafu\.Graph, not dict: make one with Graph\.from_pyg"
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
