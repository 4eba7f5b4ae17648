"""Asynchronous training: bounded as it says, and as good as exact training."""

import statistics
import time
from typing import Any

import pytest
import torch

import siafu
from siafu import Graph
from siafu.pipeline.task import Task
from siafu.runtime.executor import Weights
from siafu.server.worker import GraphWorker, TaskResult
from siafu.training.run import Run
from tests.toys import toy_graph

pytestmark = pytest.mark.slow  # trains to the end, many times

# So small that tasks are over at once: with many intervals some still are ahead of others, and read old rows.
LAYOUT = {"servers": 2, "intervals": 8, "partition": "hash"}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return toy_graph(1200)


def train(graph: Graph, epochs: int = 60, seed: int = 0, dropout: float = 0.5, **options: Any) -> Run:
    torch.manual_seed(seed)
    model = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes, dropout=dropout)
    return siafu.train(graph, model, epochs=epochs, seed=seed, **(LAYOUT | options))


def ages(run: Run) -> set[int]:
    return {int(age) for age in run.counters["row_age_histogram"]}


@pytest.fixture(scope="module")
def exact_accuracy(graph: Graph) -> float:
    return accuracy(graph, mode="pipe")


def accuracy(graph: Graph, **options: Any) -> float:
    """On the test rows, the mean over seeds."""
    found = [train(graph, 40, seed, evaluate_every=2, **options) for seed in range(3)]
    return statistics.fmean(run.summary()["test_accuracy"] for run in found)


@pytest.mark.parametrize(("staleness", "policy"), [(0, "stash"), (1, "stash"), (1, "2bw"), (1, "flush")])
def test_asynchronous_training_is_within_a_point_of_exact_training(
    graph: Graph, exact_accuracy: float, staleness: int, policy: str
) -> None:
    found = accuracy(graph, mode="async", staleness=staleness, weights=policy)
    assert exact_accuracy > 0.9
    assert abs(found - exact_accuracy) <= 0.01


@pytest.mark.parametrize(("policy", "most"), [("stash", 4), ("2bw", 2), ("flush", 1)])
@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_staleness_rows_and_versions_stay_within_their_bounds(
    graph: Graph, staleness: int, policy: str, most: int
) -> None:
    run = train(graph, epochs=15, mode="async", staleness=staleness, weights=policy)
    assert run.counters["max_staleness_seen"] <= staleness
    assert max(ages(run)) <= staleness + 1
    assert min(ages(run)) >= -staleness
    assert run.counters["weight_versions_peak"] <= most
    assert (
        sum(run.counters["staleness_histogram"].values()) == 15 * 16
    )  # every interval enters every epoch once


def test_asynchronous_gathers_do_read_old_rows(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the other tests here would say nothing."""
    run_task = GraphWorker.run

    def run_late(worker: GraphWorker, task: Task, weights: Weights) -> TaskResult:
        if task.lane == "train":  # so long that every thread is awake, and half of the intervals fall behind
            time.sleep(0.011 if task.interval % 2 else 0.022)
        return run_task(worker, task, weights)

    monkeypatch.setattr(GraphWorker, "run", run_late)
    monkeypatch.setattr("siafu.training.trainer.thread_count", lambda: 4)  # on one core too
    assert 1 in ages(train(graph, epochs=4, mode="async", staleness=1))
    assert ages(train(graph, epochs=4, mode="pipe")) == {0}


def test_one_asynchronous_epoch_is_exact(graph: Graph) -> None:
    exact, free = (train(graph, epochs=1, mode=mode, dropout=0.0) for mode in ("pipe", "async"))
    assert free.history[0].train_loss == pytest.approx(exact.history[0].train_loss, rel=1e-6)
    assert free.history[0].val_accuracy == exact.history[0].val_accuracy
    for name, weight in exact.model.state_dict().items():
        torch.testing.assert_close(free.model.state_dict()[name], weight)


def test_without_staleness_every_epoch_begins_with_the_weights_of_all_epochs_before(graph: Graph) -> None:
    run = train(graph, epochs=20, mode="async", staleness=0, evaluate_every=20)
    assert run.counters["weight_versions_peak"] == 1


def test_updates_after_a_few_gradients_learn_too(graph: Graph) -> None:
    run = train(graph, epochs=20, mode="async", staleness=1, update_every=4)
    assert run.summary()["test_accuracy"] > 0.9


def test_training_goes_on_exactly_above_an_accuracy(graph: Graph) -> None:
    run = train(graph, epochs=40, mode="async", staleness=1, exact_above=0.5)
    assert run.summary()["test_accuracy"] > 0.9
