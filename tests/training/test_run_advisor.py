"""The advisor in trainings: no bit depends on it, and it learns once."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import siafu
from siafu.graph.partition import make_partition
from siafu.kernels import blocking
from siafu.kernels.advice import trial_budget
from siafu.kernels.advice.findings import machine_name
from siafu.options import Options
from siafu.report.progress import Progress
from siafu.server.memory.fitting import fit
from siafu.server.memory.listing import RunListing
from siafu.server.plan import ServerPlan
from siafu.server.run_advisor import advisor_of
from tests.toys import toy_graph


class Reasons(Progress):
    def __init__(self) -> None:
        self.told: list[str] = []

    def prepared(self, lines: list[str], reasons: list[str]) -> None:
        self.told += reasons


@pytest.fixture(autouse=True)
def _small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches so small that the rows of a small graph exceed them."""
    monkeypatch.setattr(blocking, "cache_bytes", lambda level: {2: 256, 3: 1024}[level])
    monkeypatch.setattr(blocking, "_READ_AGAIN", 0.01)
    monkeypatch.setattr(blocking, "_EDGES_PER_VISIT", 1 << 20)


@pytest.fixture(autouse=True)
def _trials_at_any_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four epochs of microseconds would not earn a trial, or earn it on some machines only."""
    monkeypatch.setattr(trial_budget, "_SHARE", 1e6)


def losses(graph: siafu.Graph, **how: object) -> list[float]:
    torch.manual_seed(1)
    model = siafu.nn.GraphSAGE(graph.num_features, 16, 3, graph.num_classes, dropout=0.5)
    run = siafu.train(graph, model, epochs=4, intervals=3, mode="pipe", **how)  # type: ignore[arg-type]
    return [each.train_loss for each in run.history]


@pytest.fixture
def store(tmp_path: Path) -> siafu.Graph:
    toy_graph(60).save(tmp_path / "some.store")
    return siafu.load(str(tmp_path / "some.store"))


def test_no_bit_depends_on_the_advisor(store: siafu.Graph) -> None:
    expected = losses(store, advisor="off")
    assert not (Path(str(store.source)) / "advice").exists()
    assert losses(store) == expected
    assert losses(store) == expected
    assert losses(store, servers=2) == losses(store, servers=2, advisor="off")


def test_what_was_timed_is_kept_with_the_store_and_told_the_next_time(store: siafu.Graph) -> None:
    first, second = Reasons(), Reasons()
    losses(store, progress=first)
    assert any("are timed in the first epochs" in each for each in first.told)
    kept = json.loads((Path(str(store.source)) / "advice" / f"{machine_name()}.json").read_text())
    assert kept["found"] and all(each["seconds"] for each in kept["found"].values())
    losses(store, progress=second)
    assert any("as measured before" in each for each in second.told)


def test_findings_about_a_graph_in_memory_live_for_the_process() -> None:
    graph = toy_graph(70)
    losses(graph)
    told = Reasons()
    losses(graph, progress=told)
    assert any("as measured before" in each for each in told.told)


def test_a_store_with_findings_can_be_overwritten(store: siafu.Graph) -> None:
    losses(store)
    store.save(str(store.source), overwrite=True)
    assert not (Path(str(store.source)) / "advice").exists()


def test_blocks_are_left_out_where_memory_is_short(store: siafu.Graph) -> None:
    partition = make_partition(store, 1)
    model = siafu.nn.GCN(store.num_features, 16, 2, store.num_classes)
    plan = ServerPlan.of(store, model, Options(), partition)
    listing = RunListing.of(replace(plan, advisor=advisor_of(store, "on")))
    plain = listing.again(plan).listed.peak
    assert listing.listed.peak > plain
    assert fit(listing, listing.listed.peak).plan.advisor is not None
    assert fit(listing, plain).plan.advisor is None


def test_off_is_no_advisor(store: siafu.Graph) -> None:
    assert advisor_of(store, "off") is None
