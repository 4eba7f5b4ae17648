"""Measures that spare memory: what is offered at which price, and that the cheapest which fit are taken."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import siafu
from siafu.errors import BadInput
from siafu.server.memory import disk_choice
from siafu.server.memory import listing as listings
from siafu.server.memory.fitting import fit_apart
from siafu.server.memory.listing import RunListing
from siafu.server.memory.measures import Choice, choose, choose_if_needed
from siafu.server.memory.savings import Savings
from siafu.server.memory.server_part import ServerPart, parts_of
from siafu.server.plan import ServerPlan
from siafu.training.placement import choose_partition
from siafu.training.records.checkpoint import Checkpoint
from siafu.training.trainer import Trainer
from tests.training_runs import Gated, compiled, options, tangled_graph

GRAPH = tangled_graph(3000)
MODELS: dict[str, Any] = {
    "gcn": lambda: siafu.nn.GCN(6, 48, 3, 3, 0.5),
    "sage": lambda: siafu.nn.GraphSAGE(6, 48, 3, 3, 0.5),
    "gat": lambda: siafu.nn.GAT(6, 48, 3, 3, 0.5, heads=2),
    "gin": lambda: siafu.nn.GIN(6, 48, 3, 3, 0.5),
    "gated": lambda: Gated(6, 24, 2, 3, 0.5),
}


@cache
def programs_of(name: str, dtype: torch.dtype) -> Any:
    return compiled(GRAPH, MODELS[name]().to(dtype))


@pytest.fixture(autouse=True)
def no_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffers of threads count nothing: on a graph this small they are as large as tables, and nothing would be spared."""
    monkeypatch.setattr("siafu.server.memory.server_hardware.thread_count", lambda: 0)


def trainer_of(name: str, dtype: torch.dtype = torch.float32, **given: Any) -> Trainer:
    torch.manual_seed(0)
    model: nn.Module = MODELS[name]()
    settings = options(epochs=2, intervals=2, **given)
    partition = choose_partition(GRAPH, 1, "hash")
    return Trainer(GRAPH, model.to(dtype), settings, partition, programs_of(name, dtype))


def listing_of(plan: ServerPlan, **given: Any) -> RunListing:
    """As in a process that holds nothing yet: budgets are of the arrays alone."""
    return RunListing.of(plan, taken=0, **given)


def losses(trainer: Trainer, savings: Savings) -> list[Any]:
    trainer.plan = trainer.plan.saving(savings)
    trainer.prepare()
    (last,) = [event for event in trainer.run() if isinstance(event, Checkpoint)]
    found: list[Any] = [(each.train_loss, each.val_loss) for each in trainer.history]
    return [*found, {name: tensor.tolist() for name, tensor in last.tensors.items()}]


def names(choice: Choice) -> list[str]:
    return [each.name for each in choice.measures]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("gcn", torch.float32),
        ("sage", torch.float64),
        ("gat", torch.float32),
        ("gin", torch.float64),
        ("gated", torch.float32),
    ],
)
@pytest.mark.slow
def test_losses_are_the_same_to_the_bit_under_every_budget(name: str, dtype: torch.dtype) -> None:
    listing = listing_of(trainer_of(name, dtype).plan)
    plenty = choose(listing, None)
    budgets = [plenty.least + (plenty.listed.peak - plenty.least) * k // 4 for k in (3, 1, 0)]
    chosen = {choose(listing, budget).savings for budget in budgets}
    assert Savings() not in chosen
    plain = losses(trainer_of(name, dtype), Savings())
    for savings in chosen:
        assert losses(trainer_of(name, dtype), savings) == plain


@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_what_is_chosen_fits_and_a_tighter_budget_costs_more(name: str) -> None:
    listing = listing_of(trainer_of(name).plan)
    plenty = choose(listing, None)
    assert (names(plenty), plenty.savings) == ([], Savings())
    before = 0.0
    for k in range(10, -1, -1):
        budget = plenty.least + (plenty.listed.peak - plenty.least) * k // 10
        found = choose(listing, budget)
        assert found.listed.peak <= budget
        assert found.seconds >= before
        before = found.seconds
    assert choose(listing, plenty.least - 1).listed.peak == plenty.least


@pytest.mark.slow
def test_nothing_is_looked_for_where_everything_fits() -> None:
    listing = listing_of(trainer_of("sage").plan)
    plenty = choose_if_needed(listing, choose(listing, None).listed.peak)
    assert (plenty.offered, plenty.savings) == ((), Savings())
    assert choose_if_needed(listing, plenty.listed.peak - 1).measures


def test_what_costs_nothing_is_taken_first() -> None:
    listing = listing_of(trainer_of("sage").plan)
    plenty = choose(listing, None)
    found = choose(listing, plenty.listed.peak - 1)
    assert found.seconds == 0
    assert len(found.measures) == 1


def test_a_gather_that_must_run_again_has_a_price_and_another_has_none() -> None:
    def prices(name: str) -> dict[str, float]:
        found = choose(listing_of(trainer_of(name).plan), None)
        return {each.name: each.seconds for each in found.offered}

    gathered = "no table for what G1 gathers"
    assert prices("sage")[gathered] == 0
    assert prices("gcn")[gathered] > 0


def test_asynchronous_runs_keep_rows_that_others_may_overwrite() -> None:
    found = choose(listing_of(trainer_of("gcn", mode="async").plan), None)
    assert [each.name for each in found.offered] == ["no table for what G2 gathers"]


def test_lambdas_read_what_was_gathered_from_tables() -> None:
    found = choose(listing_of(trainer_of("sage").plan, on_lambdas=True), 1)
    assert found.savings == Savings(in_place=True, shared=True)


@pytest.mark.parametrize(
    ("name", "undirected", "mode"), [("sage", True, "sync"), ("gcn", False, "pipe"), ("gat", True, "pipe")]
)
@pytest.mark.slow
def test_several_servers_spare_memory_and_losses_stay_the_same_to_the_bit(
    name: str, undirected: bool, mode: str
) -> None:
    graph = tangled_graph(1500, undirected=undirected)
    partition = choose_partition(graph, 3, "hash")
    torch.manual_seed(0)
    model: nn.Module = MODELS[name]()
    settings = options(epochs=2, intervals=2, servers=3, mode=mode)
    programs = Trainer(graph, model, settings, partition).programs

    def trainer() -> Trainer:
        return Trainer(graph, model, settings, partition, programs)

    plain = losses(trainer(), Savings())
    every = Savings(frozenset({0, 1}), frozenset({0, 1}), in_place=True, shared=True)
    for savings in (Savings(in_place=True, shared=True), every):
        assert losses(trainer(), savings) == plain
    listing = listing_of(trainer().plan)
    assert listing.saving(every).peak < listing.saving(Savings()).peak


def test_servers_that_are_processes_of_their_own_each_fit_and_the_worst_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listings, "own_bytes", lambda: 0)
    partition = choose_partition(GRAPH, 2, "contiguous")
    plan = Trainer(GRAPH, MODELS["sage"](), options(servers=2, intervals=2), partition).plan
    parts = parts_of(GRAPH, partition)

    def peak(each: ServerPlan, part: ServerPart) -> int:
        return RunListing.of(each, [part]).listed.peak

    budget = max(peak(plan, part) for part in parts) - 1
    fitted, lines = fit_apart(plan, parts, str(budget), on_lambdas=False)
    assert lines[0].startswith("to fit into")
    assert all(peak(fitted, part) <= budget for part in parts)
    with pytest.raises(
        BadInput, match=r"graph server 0 needs .+ of memory, and memory is 1MB: give each at least"
    ):
        fit_apart(plan, parts, "1MB", on_lambdas=False)


@pytest.mark.slow
@pytest.mark.untraced
def test_servers_that_spare_all_they_can_have_tables_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(listings, "own_bytes", lambda: 0)
    monkeypatch.setattr(listings, "WRITTEN_BEHIND", 1 << 14)
    monkeypatch.setattr(listings, "IDLE_BYTES", 1 << 14)
    monkeypatch.setattr(disk_choice, "LEAST_READ", 1)
    partition = choose_partition(GRAPH, 2, "contiguous")
    plan = Trainer(GRAPH, MODELS["sage"](), options(servers=2, intervals=2), partition).plan
    parts = parts_of(GRAPH, partition)
    spared = max(choose(RunListing.of(plan, [part]), 0).least for part in parts)
    budget = spared - 1
    with pytest.raises(BadInput, match=r"tables on disk of each \(scratch\), with which .+ would do"):
        fit_apart(plan, parts, str(budget), on_lambdas=False)
    fitted, lines = fit_apart(plan, parts, str(budget), on_lambdas=False, scratch=tmp_path)
    assert fitted.savings.disk is not None
    assert all(RunListing.of(fitted, [part]).listed.peak <= budget for part in parts)
    (line,) = lines
    assert "on disk" in line
    assert str(tmp_path) in line


def test_a_training_says_what_it_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of("sage")
    tight = choose(listing_of(trainer.plan), 1)
    monkeypatch.setattr("siafu.server.memory.fitting.choose_if_needed", lambda *_: tight)
    monkeypatch.setenv("SIAFU_MEMORY_LIMIT", "9GB")
    lines, _ = trainer.prepare()
    assert lines[-1].startswith("to fit into ")  # 9 GB, and what this process had before
    assert all(name in lines[-1] for name in names(tight))
    assert trainer.plan.savings == tight.savings
