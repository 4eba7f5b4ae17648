"""Trainings whose Lambdas are killed, hang, answer twice or talk nonsense, for real: the result does not change."""

import os
import signal
import statistics
from collections import Counter
from contextlib import suppress
from typing import Any

import psutil
import pytest
import torch

from siafu import Graph, nn
from siafu.runtime.lambdas import Lambdas
from siafu.serverless.function.faults import FaultKind, FaultPlan
from siafu.serverless.inbox.dispatch import Dispatch
from siafu.serverless.platforms.platform import LocalPlatform
from tests.oracle import train_plainly
from tests.toys import toy_graph
from tests.training_runs import Trained, train_in_pipeline

pytestmark = pytest.mark.slow  # trains on processes of local Lambdas


LAYOUT = {"servers": 2, "intervals": 8}
INTERVALS, PHASES = 16, 2
FAULTS = {"kill": 0.05, "hang": 0.05, "duplicate": 0.05, "garbage": 0.02}


def model_of(graph: Graph, dtype: torch.dtype = torch.float64, seed: int = 1) -> nn.GNN:
    torch.manual_seed(seed)
    return nn.GCN(graph.num_features, 8, 2, graph.num_classes, dropout=0.5).to(dtype)


def impatient(faults: FaultPlan | None = None, **options: Any) -> Lambdas:
    """One task an invocation, so that there are hundreds; and who is silent is not waited for as long as usual."""
    given = {"count": 4, "tasks": 1, "floor": 0.3, "start": 2.0}
    return Lambdas(platform=LocalPlatform(faults=faults), **(given | options))


def check_against_the_oracle(epochs: int, lambdas: Lambdas, **more: Any) -> Trained:
    """Train on `lambdas`: every epoch's loss and the last weights are the oracle's, every gradient counted once."""
    graph = toy_graph()
    model = model_of(graph)
    judge = train_plainly(graph, model, epochs=epochs, weight_decay=5e-4, dtype=torch.float64)
    options = {"evaluate_every": epochs, "weight_decay": 5e-4, **LAYOUT, **more}
    found = train_in_pipeline(graph, model, epochs=epochs, computed_by=lambdas, **options)
    assert found.losses == pytest.approx(judge.losses, rel=1e-9)
    for name, tensor in judge.weights.items():
        torch.testing.assert_close(found.weights[name], tensor, rtol=1e-9, atol=1e-12)
    assert found.counters["gradients_applied"] == epochs * INTERVALS * PHASES
    return found


def struck(faults: FaultPlan, used: dict[str, Any]) -> set[FaultKind]:
    """What went wrong with some of a run's invocations."""
    found = (faults.fault(number) for number in range(used["invocations"]))
    return {fault.kind for fault in found if fault is not None}


@pytest.mark.slow
def test_lambdas_that_die_hang_answer_twice_or_nonsense_change_nothing() -> None:
    faults = FaultPlan(seed=3, garble=0.03, **FAULTS, window=0.01)
    used = check_against_the_oracle(4, impatient(faults, count=8)).counters["lambda"]
    assert used["invocations"] > 220
    assert used["relaunched"] + used["retried"] > 5
    assert struck(faults, used) == {FaultKind(name) for name in (*FAULTS, "garble")}
    tasks = {kind: each["tasks"] for kind, each in used["kinds"].items() if kind.startswith("train")}
    assert tasks == dict.fromkeys(("train T0", "train ∇T0", "train ∇T1"), 4 * INTERVALS)


def test_lambdas_whose_answers_are_garbled_change_nothing() -> None:
    faults = FaultPlan(seed=5, garble=0.2)
    used = check_against_the_oracle(2, impatient(faults, count=2)).counters["lambda"]
    assert used["retried"] > 10
    assert used["messages_refused"] > 10


def lambdas_running() -> list[psutil.Process]:
    """The processes of this one's Lambdas."""
    module, found = "siafu.serverless.platforms.process", []
    for each in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it ends at this moment
            found += [each] if module in each.cmdline() else []
    return found


def test_lambdas_killed_from_outside_change_nothing() -> None:
    killed = []

    def kill_all() -> None:
        for each in lambdas_running():
            os.kill(each.pid, signal.SIGKILL)
            killed.append(each.pid)

    # A Lambda's end is seen at once. On a busy machine, impatience alone would use up the attempts of a task.
    check_against_the_oracle(5, impatient(tasks=0, count=3, floor=5.0), after_epoch=kill_all)
    assert len(set(killed)) >= 5


def test_lambdas_killed_between_forward_and_backward_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    submit, backward, killed = Dispatch.submit, Counter[str](), set[int]()

    def kill_first(self: Dispatch, assignment: Any, kind: str, *rest: Any) -> None:
        backward[kind] += 1
        if kind == "train ∇T0" and backward[kind] % INTERVALS == INTERVALS // 2:
            for each in lambdas_running():
                os.kill(each.pid, signal.SIGKILL)
                killed.add(each.pid)
        submit(self, assignment, kind, *rest)

    monkeypatch.setattr(Dispatch, "submit", kill_first)
    # A Lambda's end is seen at once. On a busy machine, impatience alone would use up the attempts of a task.
    used = check_against_the_oracle(4, impatient(tasks=0, count=2, floor=5.0)).counters["lambda"]
    assert len(killed) >= 4
    assert 0 < used["shortcuts"] < 4 * INTERVALS


def accuracy(graph: Graph, lambdas: Lambdas | None, seeds: range, epochs: int) -> float:
    """On the test rows, after asynchronous training: the mean over seeds. Epochs are few, so steps are large."""
    right = []
    for seed in seeds:
        model = model_of(graph, torch.float32, seed)
        options = {"mode": "async", "servers": 2, "intervals": 4, "lr": 0.05, "evaluate_every": epochs}
        found = train_in_pipeline(graph, model, epochs=epochs, seed=seed, computed_by=lambdas, **options)
        model.load_state_dict(found.weights)
        with torch.no_grad():
            guessed = model.eval()(graph).argmax(dim=1).numpy()
        right.append((guessed == graph.y)[graph.test].mean())
    return statistics.fmean(right)


@pytest.mark.slow
def test_asynchronous_training_is_as_good_whatever_happens_to_lambdas() -> None:
    graph, seeds, epochs = toy_graph(1200), range(2), 25
    calm = accuracy(graph, None, seeds, epochs)
    faults = FaultPlan(seed=1, garble=0.02, **FAULTS, window=0.01)
    stormy = accuracy(graph, impatient(faults, count=6, tasks=8), seeds, epochs)
    assert calm > 0.9
    # Runs with the same seed differ by up to half a point: which rows a gather finds is a matter of time.
    assert abs(stormy - calm) <= 0.01
