"""A run that was stopped, or killed, goes on as if nothing had happened."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.partition import Partition, make_partition
from siafu.report.files.checkpoint import load_tensors
from siafu.training.run import Run
from tests.old_runs import make_old
from tests.sessions import StopAt, epochs_in, gcn, same_weights, stopped, timeless
from tests.toys import toy_graph


def stop_and_go_on(
    graph: Graph, build: Callable[[], nn.Module], out: Path, *, at: int = 4, **options: Any
) -> tuple[Run, Run]:
    """A run that was stopped and went on for some epochs, and one of as many that never stopped."""
    stopped(graph, build(), out, StopAt(at), **options)
    epochs = len(epochs_in(out)) + 6
    resumed = siafu.train(graph, build(), epochs=epochs, out=out, resume=True, **options)
    return resumed, siafu.train(graph, build(), epochs=epochs, **options)


def saved_state(out: Path) -> dict[str, Any]:
    """What a run's checkpoint says besides its tensors."""
    return load_tensors(out / "checkpoint.safetensors")[1]


def stale_reads(counters: dict[str, Any]) -> int:
    """How often a gather read rows of another epoch than its own."""
    return sum(count for age, count in counters["row_age_histogram"].items() if age != "0")


def test_a_signal_stops_a_run_after_an_epoch_that_is_saved(tmp_path: Path) -> None:
    progress = StopAt(11)
    graph = toy_graph()
    caught = stopped(graph, gcn(graph), tmp_path / "run", progress)
    assert progress.told == [signal.SIGINT]
    assert caught.exit_code == 130
    epochs = epochs_in(tmp_path / "run")
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) >= 11
    assert f"after epoch {len(epochs)} " in str(caught)
    assert saved_state(tmp_path / "run")["epoch"] == len(epochs)


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    graph = toy_graph()
    resumed, straight = stop_and_go_on(graph, lambda: gcn(graph), tmp_path / "run", at=11)
    assert timeless(resumed.history) == timeless(straight.history)
    assert same_weights(resumed.model, straight.model)
    assert epochs_in(tmp_path / "run") == list(range(1, len(straight.history) + 1))


def test_what_a_model_begins_with_does_not_count_when_it_goes_on(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=4, out=tmp_path / "run")
    longer = siafu.train(graph, gcn(graph, seed=9), epochs=8, out=tmp_path / "run", resume=True)
    assert timeless(longer.history) == timeless(siafu.train(graph, gcn(graph), epochs=8).history)


@pytest.mark.parametrize("mode", ["sync", "pipe"])
def test_servers_and_intervals_go_on_bit_for_bit(tmp_path: Path, mode: str) -> None:
    graph = toy_graph()
    layout: dict[str, Any] = {"servers": 2, "intervals": 3, "weight_servers": 2, "partition": "hash"}
    resumed, straight = stop_and_go_on(graph, lambda: gcn(graph), tmp_path / "run", mode=mode, **layout)
    assert timeless(resumed.history) == timeless(straight.history)
    assert same_weights(resumed.model, straight.model)


def test_nothing_is_counted_twice_when_a_run_goes_on(tmp_path: Path) -> None:
    graph = toy_graph()
    layout: dict[str, Any] = {"servers": 2, "intervals": 3, "partition": "hash"}
    resumed, straight = stop_and_go_on(graph, lambda: gcn(graph), tmp_path / "run", **layout)
    counted = ("gradients_applied", "bytes_scattered", "staleness_histogram", "row_age_histogram")
    assert {name: resumed.counters[name] for name in counted} == {
        name: straight.counters[name] for name in counted
    }


def test_an_asynchronous_run_goes_on_and_counts_every_gradient_once(tmp_path: Path) -> None:
    graph = toy_graph()
    options: dict[str, Any] = {"mode": "async", "staleness": 1, "intervals": 4}
    stopped(graph, gcn(graph), tmp_path / "run", StopAt(5), **options)
    epochs = len(epochs_in(tmp_path / "run")) + 5
    run = siafu.train(graph, gcn(graph), epochs=epochs, out=tmp_path / "run", resume=True, **options)
    assert epochs_in(tmp_path / "run") == list(range(1, epochs + 1))
    assert run.counters["gradients_applied"] == epochs * 4 * 2
    assert sum(run.counters["staleness_histogram"].values()) == epochs * 4
    assert run.counters["max_staleness_seen"] <= 1


def test_a_run_that_had_come_to_exact_epochs_goes_on_exactly(tmp_path: Path) -> None:
    graph = toy_graph()
    options: dict[str, Any] = {"mode": "async", "staleness": 2, "intervals": 4, "exact_above": 0.01}
    stopped(graph, gcn(graph), tmp_path / "run", StopAt(5), **options)
    before = stale_reads(saved_state(tmp_path / "run")["counters"])
    epochs = len(epochs_in(tmp_path / "run")) + 20
    run = siafu.train(graph, gcn(graph), epochs=epochs, out=tmp_path / "run", resume=True, **options)
    assert stale_reads(run.counters) == before


def test_a_run_goes_on_with_as_many_intervals_as_it_had(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=3, intervals=5, out=tmp_path / "run")
    longer = siafu.train(graph, gcn(graph), epochs=6, out=tmp_path / "run", resume=True)
    assert longer.summary()["intervals"] == 5
    with pytest.raises(BadInput, match=r"training.intervals was 5, now 2"):
        siafu.train(graph, gcn(graph), epochs=9, intervals=2, out=tmp_path / "run", resume=True)


def test_going_on_with_other_owners_is_refused(tmp_path: Path) -> None:
    graph = toy_graph()
    first = make_partition(graph, 2, method="hash")
    siafu.train(graph, gcn(graph), epochs=2, servers=2, partition=first, out=tmp_path / "run")
    swapped = Partition("hash", 2, 1 - first.owner)
    with pytest.raises(BadInput, match=r"partition.owners was"):
        siafu.train(
            graph, gcn(graph), epochs=4, servers=2, partition=swapped, out=tmp_path / "run", resume=True
        )


def test_a_best_epoch_before_the_end_of_a_session_is_still_the_best(tmp_path: Path) -> None:
    graph = toy_graph()
    straight = siafu.train(graph, gcn(graph), epochs=40, lr=0.1)
    best = straight.summary()["best_epoch"]
    assert best < 38
    siafu.train(graph, gcn(graph), epochs=best + 2, lr=0.1, out=tmp_path / "run")
    resumed = siafu.train(graph, gcn(graph), epochs=40, lr=0.1, out=tmp_path / "run", resume=True)
    assert resumed.summary()["best_epoch"] == best
    assert same_weights(resumed.model, straight.model)


def test_attention_dropout_goes_on_bit_for_bit(tmp_path: Path) -> None:
    graph = toy_graph()
    config = {"in_channels": 8, "hidden_channels": 8, "num_layers": 2, "out_channels": 3, "heads": 2}

    def gat() -> nn.Module:
        torch.manual_seed(0)
        return siafu.nn.build("gat", {**config, "dropout": 0.6, "input_dropout": 0.6})

    resumed, straight = stop_and_go_on(graph, gat, tmp_path / "run")
    assert timeless(resumed.history) == timeless(straight.history)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_every_optimizer_goes_on_as_it_was(tmp_path: Path, optimizer: str) -> None:
    graph = toy_graph()
    resumed, straight = stop_and_go_on(
        graph, lambda: gcn(graph), tmp_path / "run", optimizer=optimizer, decay="first"
    )
    assert timeless(resumed.history) == timeless(straight.history)


def test_sigterm_saves_too(tmp_path: Path) -> None:
    graph = toy_graph()
    caught = stopped(graph, gcn(graph), tmp_path / "run", StopAt(3, signal.SIGTERM))
    assert caught.exit_code == 143
    assert saved_state(tmp_path / "run")["epoch"] >= 3


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


def test_resuming_with_fewer_epochs_than_there_are_is_refused(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=4, out=tmp_path / "run")
    config = (tmp_path / "run/config.json").read_bytes()
    with pytest.raises(
        BadInput, match=r"has 4 epochs already, and epochs is 3: give more than it has \(--epochs\)"
    ):
        siafu.train(graph, gcn(graph), epochs=3, out=tmp_path / "run", resume=True)
    assert (tmp_path / "run/config.json").read_bytes() == config


def test_resuming_with_other_settings_is_refused(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=4, out=tmp_path / "run")
    with pytest.raises(BadInput, match=r"training.lr was 0.01, now 0.5"):
        siafu.train(graph, gcn(graph), epochs=4, lr=0.5, out=tmp_path / "run", resume=True)
    with pytest.raises(BadInput, match=r"model.config.dropout was 0.5, now 0.25"):
        siafu.train(graph, gcn(graph, dropout=0.25), epochs=4, out=tmp_path / "run", resume=True)


def test_a_run_that_is_older_than_an_option_resumes_with_its_default(tmp_path: Path) -> None:
    graph = toy_graph()
    siafu.train(graph, gcn(graph), epochs=2, out=tmp_path / "run")
    make_old(tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    del config["training"]["optimizer"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match=r"training.optimizer was adam, now sgd"):
        siafu.train(graph, gcn(graph), epochs=3, optimizer="sgd", out=tmp_path / "run", resume=True)
    assert len(siafu.train(graph, gcn(graph), epochs=3, out=tmp_path / "run", resume=True).history) == 3


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
