"""`siafu train` as people use it."""

import json
import random
import shlex
import signal
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.cli.command import Finished, Siafu, spawn
from tests.toys import multi_label_graph, toy_graph

PROMISED = {  # DESIGN §9
    "dataset",
    "model",
    "mode",
    "staleness",
    "servers",
    "intervals",
    "seed",
    "epochs",
    "best_epoch",
    "train_loss",
    "train_accuracy",
    "val_accuracy",
    "test_accuracy",
    "seconds_total",
    "seconds_per_epoch",
    "peak_rss_bytes",
    "max_staleness_seen",
    "weight_versions_peak",
    "gradients_applied",
    "bytes_scattered",
    "lambda",
    "cost_usd",
    "value",
}


def epochs_in(path: Path) -> list[dict[str, Any]]:
    """The metrics of each epoch, but for the times they took."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    measured = ("epoch", "train_loss", "val_loss", "train_accuracy", "val_accuracy", "test_accuracy")
    return [{name: line[name] for name in measured} for line in lines]


def wait_for_epoch(process: subprocess.Popen[str], metrics: Path, epoch: int) -> None:
    """Return when the run has written this epoch; fail if it ends before."""
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < epoch:
        try:
            process.wait(timeout=0.005)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(f"the run ended early: {process.communicate()}")


def stop_at(epoch: int, number: signal.Signals, store: Path, out: Path, **options: object) -> Finished:
    """Start a run that would never end, and send it a signal."""
    process = spawn("train", store, epochs=10**6, hidden=8, out=out, **options)
    wait_for_epoch(process, out / "metrics.jsonl", epoch)
    process.send_signal(number)
    written, said = process.communicate()
    return Finished(process.returncode, written, said)


def test_training_a_store_just_works(siafu: Siafu, store: Path, tmp_path: Path) -> None:
    ended = siafu("train", store, epochs=3)
    assert ended.code == 0
    assert ended.out == ""
    assert "210 vertices" in ended.err
    assert "parameters" in ended.err
    assert "epoch 1/3" in ended.err
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("toy-gcn-")
    assert f"siafu evaluate runs/{run.name}" in ended.err
    assert f"siafu predict runs/{run.name}" in ended.err
    expected = {"checkpoint.safetensors", "config.json", "metrics.jsonl", "model.safetensors", "summary.json"}
    assert {entry.name for entry in run.iterdir()} == expected | {"facts.json", "trace.json"}


def test_json_is_the_last_line_and_has_what_was_promised(siafu: Siafu, store: Path) -> None:
    ended = siafu("train", store, epochs=3, out="run", json=True)
    summary = ended.json()
    assert summary.keys() >= PROMISED
    assert summary["dataset"] == "toy"
    assert summary["epochs"] == 3
    assert summary["peak_rss_bytes"] > 10**7
    assert summary == json.loads(Path("run/summary.json").read_text())


def test_the_options_of_the_pipeline_reach_it(siafu: Siafu, store: Path) -> None:
    asked: dict[str, object] = {
        "mode": "async",
        "staleness": 1,
        "servers": 2,
        "intervals": 3,
        "weights": "2bw",
        "weight_servers": 2,
    }
    more: dict[str, object] = {"partition": "hash", "update_every": 4, "exact_above": 0.99}
    summary = siafu("train", store, epochs=3, out="run", json=True, **asked, **more).json()
    assert asked.items() <= summary.items()
    assert summary["gradients_applied"] == 3 * 6 * 2
    config = json.loads(Path("run/config.json").read_text())["training"]
    assert more.items() <= config.items()


def test_what_is_computed_once_and_what_is_held_is_said_before_the_first_epoch(
    siafu: Siafu, store: Path
) -> None:
    said = siafu("train", store, epochs=1, servers=2, intervals=3, partition="hash", out="run").err
    before = said[: said.index("epoch 1/1")].splitlines()
    assert len(before) == 4
    assert before[2] == "each epoch gathers GcnSum, 3 wide; computed once: GcnSum, 8 wide"
    assert before[3].startswith("2 graph servers (hash) with 3 intervals each, ")
    assert "MB of memory" in before[3]


def test_reasons_are_said_if_asked(siafu: Siafu, store: Path) -> None:
    assert "rows are gathered 3 wide instead of 64" in siafu("train", store, epochs=1, verbose=True).err


def test_a_store_partitioned_for_others_is_one_clear_line(siafu: Siafu, tmp_path: Path) -> None:
    toy_graph().save(tmp_path / "toy")
    assert siafu("partition", "toy", parts=3, method="hash").code == 0
    assert "partitioned for 3 servers, not 2" in siafu.refused("train", "toy", servers=2)
    assert siafu("train", "toy", servers=3, epochs=1, out="run", json=True).json()["servers"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gcn", "gat", "sage", "gin"])
def test_every_model_trains(siafu: Siafu, store: Path, model: str) -> None:
    summary = siafu("train", store, model=model, hidden=16, epochs=3, out="run", json=True).json()
    assert summary["model"] == model


@pytest.mark.slow
def test_options_reach_the_model(siafu: Siafu, store: Path) -> None:
    siafu(
        "train",
        store,
        model="sage",
        aggr="max",
        layers=3,
        norm="layer_norm",
        residual=True,
        epochs=1,
        out="run",
    )
    config = json.loads(Path("run/config.json").read_text())["model"]["config"]
    asked = {"aggr": "max", "num_layers": 3, "norm": "layer_norm", "residual": True}
    assert asked.items() <= config.items()


@pytest.mark.slow
def test_several_seeds_give_mean_and_deviation(siafu: Siafu, store: Path) -> None:
    found = siafu("train", store, epochs=4, hidden=4, runs=3, seed=5, out="many", json=True).json()
    scores = [json.loads(Path(f"many/seed-{k}/summary.json").read_text())["test_accuracy"] for k in (5, 6, 7)]
    assert found["seeds"] == [5, 6, 7]
    assert found["test_accuracy"] == pytest.approx(statistics.mean(scores))
    assert found["test_accuracy_std"] == pytest.approx(statistics.stdev(scores))
    assert [run["seed"] for run in found["runs"]] == [5, 6, 7]
    assert found["cost_usd"] == pytest.approx(sum(run["cost_usd"] for run in found["runs"]))


def test_several_seeds_resume_where_they_stopped(siafu: Siafu, store: Path) -> None:
    options: dict[str, object] = {"epochs": 3, "out": "many", "json": True}
    first = siafu("train", store, runs=2, **options).json()
    more = siafu("train", store, runs=3, resume=True, **options).json()
    assert more["runs"][:2] == first["runs"]
    assert len(more["runs"]) == 3


@pytest.mark.parametrize("text", ["years of work", "{}", '{"seeds": []}'])
def test_a_summary_of_somebody_else_is_never_replaced(siafu: Siafu, store: Path, text: str) -> None:
    Path("many").mkdir()
    Path("many/summary.json").write_text(text)
    said = siafu.refused("train", store, epochs=1, runs=2, out="many")
    assert "many/summary.json is not a summary of several runs" in said
    assert Path("many/summary.json").read_text() == text
    assert [path.name for path in Path("many").iterdir()] == ["summary.json"]


def test_several_labels_report_micro_f1(siafu: Siafu, tmp_path: Path) -> None:
    multi_label_graph().save(tmp_path / "labels")
    ended = siafu("train", "labels", epochs=3, out="run", json=True)
    assert ended.json()["metric"] == "micro_f1"
    assert "micro-F1" in ended.err


@pytest.mark.slow
def test_a_killed_run_resumes_bit_for_bit(siafu: Siafu, store: Path, tmp_path: Path) -> None:
    chosen = random.randint(1, 60)
    killed = stop_at(chosen, signal.SIGKILL, store, tmp_path / "killed", checkpoint_every=0.01)
    assert killed.code == -signal.SIGKILL
    epochs = len((tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()) + 20

    assert siafu("train", store, epochs=epochs, hidden=8, out="killed", resume=True).code == 0
    assert siafu("train", store, epochs=epochs, hidden=8, out="straight").code == 0
    assert [line["epoch"] for line in epochs_in(Path("killed"))] == list(range(1, epochs + 1))
    assert epochs_in(Path("killed")) == epochs_in(Path("straight"))
    ours, theirs = (load_file(f"{run}/model.safetensors") for run in ("killed", "straight"))
    assert all(ours[name].equal(theirs[name]) for name in theirs)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_go_on(
    siafu: Siafu, store: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    stopped = stop_at(5, number, store, tmp_path / "run")
    assert stopped.code == code
    last = stopped.err.splitlines()[-1]
    assert f"stopped by {number.name}" in last

    words = shlex.split(last[last.index("siafu train") :])
    done = len(epochs_in(tmp_path / "run"))
    words[words.index("--epochs") + 1] = str(done + 2)
    ended = siafu(*words[1:])
    assert ended.code == 0, ended.err
    assert [line["epoch"] for line in epochs_in(tmp_path / "run")] == list(range(1, done + 3))


def test_a_finished_run_is_replaced_only_if_asked(siafu: Siafu, store: Path) -> None:
    siafu("train", store, epochs=2, out="run")
    assert "--overwrite" in siafu.refused("train", store, epochs=3, out="run")
    assert siafu("train", store, epochs=3, out="run", overwrite=True).code == 0
    assert len(epochs_in(Path("run"))) == 3


@pytest.mark.slow
def test_resuming_with_another_model_is_refused(siafu: Siafu, store: Path) -> None:
    siafu("train", store, epochs=2, out="run")
    said = siafu.refused("train", store, epochs=2, hidden=32, out="run", resume=True)
    assert "hidden_channels was 64, now 32" in said


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"model": "gru"}, "gcn, gat, gatv2, transformer, sage, gin"),
        ({"model": "gatt"}, "unknown model 'gatt': did you mean gat? There are gcn,"),
        ({"layers": 0}, "--layers"),
        ({"hidden": -1}, "--hidden"),
        ({"epochs": 0}, "--epochs"),
        ({"runs": 0}, "--runs"),
        ({"seed": -1}, "--seed"),
        ({"lr": -0.1}, "lr is -0.1"),
        ({"lr": "nan"}, "lr is nan"),
        ({"lr": "fast"}, "--lr"),
        ({"dropout": 1.5}, "dropout"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"decay": "some"}, "decay"),
        ({"optimizer": "magic"}, "optimizer"),
        ({"precision": "fp8"}, "precision"),
        ({"norm": "no_such_norm"}, "norm"),
        ({"act": "step"}, "act"),
        ({"heads": 2}, "--heads is for --model gat"),
        ({"out_heads": 2}, "--out-heads is for --model gat"),
        ({"model": "gat", "aggr": "max"}, "--aggr is for --model sage"),
        ({"model": "sage", "aggr": "median"}, "aggr"),
        ({"model": "gat", "hidden": 30, "heads": 8}, "heads"),
        ({"resume": True}, "--resume needs --out"),
        ({"resume": True, "overwrite": True, "out": "run"}, "choose one"),
        ({"resume": True, "out": "run"}, "no run to resume"),
        ({"mood": "good"}, "--mood"),
        ({"mode": "fast"}, "unknown mode 'fast'"),
        ({"staleness": -1}, "--staleness"),
        ({"staleness": 1}, "staleness is for mode async"),
        ({"servers": 0}, "--servers"),
        ({"servers": 1000}, "cannot have 1,000 parts"),
        ({"intervals": 0}, "--intervals"),
        ({"servers": 2, "partition": "alphabet"}, "no partition method 'alphabet'"),
        ({"weights": "3bw"}, "unknown weight policy '3bw'"),
        ({"weight_servers": 0}, "--weight-servers"),
        ({"update_every": 2}, "update_every is for mode async"),
        ({"mode": "async", "update_every": 0}, "--update-every"),
        ({"mode": "async", "exact_above": 1.5}, "--exact-above"),
        ({"exact_above": 0.5}, "exact_above is for mode async"),
    ],
)
def test_a_bad_option_is_one_clear_line(
    siafu: Siafu, store: Path, options: dict[str, Any], named: str
) -> None:
    assert named in siafu.refused("train", store, **options)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"memory": "lots"}, "lots"),
        ({"split": "random:60/20"}, "random:60/20"),
        ({"scheduler": "CosineAnealingLR(T_max=4)"}, "did you mean CosineAnnealingLR?"),
        ({"mode": "sampled", "fanout": "5"}, "fanout is 5, and the model gathers 2 times"),
    ],
)
def test_a_wrong_size_or_split_is_refused_before_the_graph_is_loaded(
    siafu: Siafu, store: Path, option: dict[str, str], said: str
) -> None:
    ended = siafu("train", store, **option)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_loss_that_rose_is_told(siafu: Siafu, store: Path) -> None:
    ended = siafu("train", store, lr=1e4, epochs=3, out="run")
    assert ended.code == 0
    assert "warning: the training loss rose from 1." in ended.err
    assert "try a lower --lr" in ended.err
    assert "warning" not in siafu("train", store, epochs=2, out="other").err


def test_an_unknown_dataset_is_one_clear_line(siafu: Siafu) -> None:
    assert "moonbase" in siafu.refused("train", "moonbase")


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("x", "no features"),
        ("y", "no labels"),
        ("train", "no training split: draw one with --split random:60/20/20"),
    ],
)
def test_data_that_cannot_be_trained_on_is_one_clear_line(
    siafu: Siafu, tmp_path: Path, missing: str, said: str
) -> None:
    toy_graph().replace(**{missing: None}).save(tmp_path / "toy")
    assert said in siafu.refused("train", "toy")
    assert not (tmp_path / "runs").exists()


def test_ctrl_c_before_the_first_epoch_says_that_nothing_was_trained(
    siafu: Siafu, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("siafu.training.trainer.Trainer.prepare", interrupted)
    ended = siafu("train", store, epochs=2, out="run")
    assert ended.code == 130
    assert "interrupted before the first epoch: nothing was trained" in ended.err


def test_a_run_that_diverges_says_so_and_ends_with_code_1(siafu: Siafu, store: Path) -> None:
    ended = siafu("train", store, lr=1e30, epochs=20)
    assert ended.code == 1
    assert "learning rate" in ended.err.splitlines()[-1]


def test_a_run_says_what_it_cost_on_the_named_machine(siafu: Siafu, store: Path) -> None:
    ended = siafu("train", store, epochs=2, out="run", instance="c7g.2xlarge:spot", json=True)
    summary = ended.json()
    assert summary["cost_usd"] == pytest.approx(60 / 3600 * 0.144)  # a minute at least
    assert summary["value"] == pytest.approx(1 / (summary["seconds_total"] * summary["cost_usd"]))
    assert (summary["cost"]["assumed"], summary["cost"]["spot"]) == (False, True)
    assert "on 1 × c7g.2xlarge:spot: $0.0024" in ended.err
    assert "the same run on: " in ended.err
    assert "$0.0024 of $0.0024" in ended.err  # in the line of progress
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [line["usd"] for line in lines] == [pytest.approx(0.0024)] * 2
    assert json.loads(Path("run/summary.json").read_text())["cost"] == summary["cost"]


def test_nobody_who_does_not_ask_is_told_of_dollars(siafu: Siafu, store: Path) -> None:
    ended = siafu("train", store, epochs=2, out="run")
    assert "$" not in ended.err + ended.out
    assert "cost" not in ended.err + ended.out
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [line["usd"] for line in lines] == [None, None]


def test_a_run_on_an_unknown_instance_is_refused_before_it_starts(siafu: Siafu, store: Path) -> None:
    said = siafu.refused("train", store, epochs=2, out="run", instance="c7g.3xlarge")
    assert "c7g.2xlarge" in said
    assert not Path("run").exists()


def test_a_quiet_run_says_nothing_but_what_was_asked_for(siafu: Siafu, store: Path) -> None:
    ended = siafu("train", store, epochs=2, out="run", quiet=True, json=True)
    assert ended.err == ""
    assert ended.json()["epochs"] == 2
    refused = siafu.refused("train", store, epochs=2, out="run", quiet=True)
    assert "holds a finished run: choose another out (--out), or replace it with overwrite=True" in refused


def test_a_training_of_nothing_is_told_where_the_names_are(siafu: Siafu) -> None:
    assert "'siafu datasets' lists the names" in siafu.refused("train")
