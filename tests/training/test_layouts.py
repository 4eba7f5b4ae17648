"""Modes, servers, intervals and weight servers: what they may change, what not, and what is counted on the way."""

from typing import Any

import pytest
import torch

import siafu
from siafu.training.run import COUNTERS
from tests.oracle import train_plainly
from tests.sessions import gcn, losses, same_weights, timeless
from tests.toys import toy_graph

SPREAD: dict[str, Any] = {"servers": 2, "intervals": 3, "partition": "hash"}


def test_a_layout_changes_nothing_but_the_order_of_sums() -> None:
    graph = toy_graph()
    truth = train_plainly(graph, gcn(graph), epochs=8, weight_decay=5e-4, dtype=torch.float64)
    for layout in ({}, {"servers": 3, "partition": "contiguous"}, SPREAD, {"mode": "sync", "intervals": 7}):
        run = siafu.train(graph, gcn(graph).double(), epochs=8, **layout)
        assert losses(run) == pytest.approx(truth.losses, rel=1e-9), layout


@pytest.mark.parametrize(
    "same",
    [
        {"mode": "sync"},
        {"weight_servers": 3},
        {"weights": "2bw"},
        {"weights": "flush"},
        {"mode": "sync", "weight_servers": 2, "weights": "flush"},
    ],
    ids=str,
)
def test_the_same_intervals_give_the_same_bits(same: dict[str, Any]) -> None:
    graph = toy_graph()
    one, other = (siafu.train(graph, gcn(graph), epochs=6, **SPREAD, **more) for more in ({}, same))
    assert timeless(one.history) == timeless(other.history)
    assert same_weights(one.model, other.model)


def test_more_intervals_than_vertices_train_too() -> None:
    graph = toy_graph(30)
    run = siafu.train(graph, gcn(graph).double(), epochs=3, intervals=64)
    alone = siafu.train(graph, gcn(graph).double(), epochs=3, intervals=1)
    assert losses(run) == pytest.approx(losses(alone), rel=1e-9)


@pytest.mark.parametrize("weights", ["stash", "2bw", "flush"])
def test_an_asynchronous_run_learns_and_stays_within_its_bounds(weights: str) -> None:
    graph = toy_graph()
    options: dict[str, Any] = {"mode": "async", "staleness": 1, "weights": weights, **SPREAD}
    run = siafu.train(graph, gcn(graph), epochs=60, **options)
    assert run.summary()["test_accuracy"] > 0.85
    counted = run.counters
    assert counted["max_staleness_seen"] <= 1
    assert set(counted["staleness_histogram"]) <= {"0", "1"}
    assert sum(counted["staleness_histogram"].values()) == 60 * 6
    assert counted["gradients_applied"] == 60 * 6 * 2
    assert counted["weight_versions_peak"] <= {"stash": 60, "2bw": 2, "flush": 1}[weights]


def test_without_staleness_no_interval_is_ever_ahead() -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=20, mode="async", intervals=4)
    assert run.counters["staleness_histogram"] == {"0": 20 * 4}


def test_the_first_epoch_of_an_asynchronous_run_is_exact() -> None:
    graph = toy_graph()
    asked: dict[str, Any] = {"epochs": 1, **SPREAD}
    exact = siafu.train(graph, gcn(graph).double(), **asked)
    run = siafu.train(graph, gcn(graph).double(), mode="async", staleness=3, **asked)
    assert losses(run) == losses(exact)
    assert run.counters["row_age_histogram"].keys() == {"0"}


def test_an_update_of_few_intervals_still_applies_every_gradient_once() -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=10, mode="async", intervals=4, update_every=3)
    assert run.counters["gradients_applied"] == 10 * 4 * 2


def test_a_run_that_is_good_enough_goes_on_exactly() -> None:
    graph = toy_graph()
    options: dict[str, Any] = {"mode": "async", "staleness": 2, "intervals": 4, "evaluate_every": 1}
    short, long = (
        siafu.train(graph, gcn(graph), epochs=epochs, exact_above=0.01, **options) for epochs in (10, 60)
    )
    for run in (short, long):
        # At most the epochs between the first evaluation and the switch read rows of other epochs.
        stale = sum(count for age, count in run.counters["row_age_histogram"].items() if age != "0")
        assert stale <= 4 * 2 * 4 * 4


def test_a_summary_says_how_the_work_was_laid_out_and_what_was_counted() -> None:
    graph = toy_graph()
    summary = siafu.train(graph, gcn(graph), epochs=4, weight_servers=2, **SPREAD).summary()
    layout = {"mode": "pipe", "staleness": 0, "servers": 2, "intervals": 3, "weights": "stash"}
    assert layout.items() <= summary.items()
    assert summary["weight_servers"] == 2
    of_samples = {name for name in COUNTERS if name.startswith(("sampled_", "bytes_of_"))}
    assert summary.keys() >= set(COUNTERS) - of_samples
    assert summary["max_staleness_seen"] == 0
    assert summary["staleness_histogram"] == {"0": 4 * 6}
    assert summary["gradients_applied"] == 4 * 6 * 2
    assert 1 <= summary["weight_versions_peak"] <= 3


def test_in_an_exact_run_no_row_is_ever_of_another_epoch() -> None:
    graph = toy_graph()
    run = siafu.train(graph, gcn(graph), epochs=5, **SPREAD)
    assert run.counters["row_age_histogram"].keys() == {"0"}


def test_intervals_that_nobody_named_are_in_the_summary_too() -> None:
    graph = toy_graph()
    assert siafu.train(graph, gcn(graph), epochs=1).summary()["intervals"] >= 1


def test_rows_that_go_to_other_servers_are_counted_in_bytes() -> None:
    graph = toy_graph()
    every: dict[str, Any] = {"evaluate_every": 4, **SPREAD}
    alone, short, long = (
        siafu.train(graph, gcn(graph), epochs=epochs, **layout).counters["bytes_scattered"]
        for epochs, layout in ((4, {}), (4, every), (8, every))
    )
    assert alone == 0
    assert 0 < short == long / 2


def test_a_phase_without_parameters_gives_no_gradients() -> None:
    graph = toy_graph()
    model = siafu.nn.GIN(8, 8, 2, 3)
    learnt = siafu.train(graph, model, epochs=3, intervals=2).counters["gradients_applied"]
    frozen = siafu.nn.GIN(8, 8, 2, 3)
    for parameter in frozen.convs[1].parameters():
        parameter.requires_grad_(False)
    fewer = siafu.train(graph, frozen, epochs=3, intervals=2).counters["gradients_applied"]
    assert (learnt, fewer) == (3 * 2 * 2, 3 * 2)
