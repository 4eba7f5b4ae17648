"""On many processes a model comes out as it does in one piece, and servers read no more rows than they must."""

from pathlib import Path
from typing import Any

import pytest

from siafu.server.memory.disk_share import DiskCut
from siafu.server.memory.savings import Savings
from tests.cluster.cases import MODELS, case, truth
from tests.cluster.cluster_runs import assert_exact, train_on_crew
from tests.training_runs import train_in_pipeline

pytestmark = pytest.mark.slow  # starts servers as processes

EPOCHS = 6


@pytest.mark.parametrize("name", MODELS)
def test_sync_and_pipe_are_the_oracles(name: str) -> None:
    for mode, servers in (("sync", 2), ("pipe", 3)):
        assert_exact(train_on_crew(name, epochs=EPOCHS, mode=mode, servers=servers), truth(name, EPOCHS))


def test_statistics_of_all_vertices_are_the_oracles_on_any_number_of_servers() -> None:
    for mode, servers in (("pipe", 1), ("sync", 3), ("pipe", 5)):
        ran = train_on_crew("norm", epochs=EPOCHS, mode=mode, servers=servers, crew={"apart": True})
        assert_exact(ran, truth("norm", EPOCHS))


def test_learnt_rows_of_vertices_are_the_oracles() -> None:
    for mode, servers in (("sync", 2), ("pipe", 3)):
        ran = train_on_crew("rows", epochs=EPOCHS, mode=mode, servers=servers, crew={"apart": mode == "pipe"})
        assert_exact(ran, truth("rows", EPOCHS))


def test_servers_that_spare_memory_have_the_bits_of_those_that_do_not() -> None:
    every = Savings(frozenset({0}), frozenset({0}), in_place=True, shared=True)
    for name, mode in (("sage", "pipe"), ("gcn", "sync")):
        plain = train_on_crew(name, epochs=3, mode=mode)
        spared = train_on_crew(name, epochs=3, mode=mode, savings=every)
        assert spared.losses == plain.losses
        assert [each.val_loss for each in spared.history] == [each.val_loss for each in plain.history]


def test_servers_with_tables_on_disk_have_the_bits_of_those_without(tmp_path: Path) -> None:
    for name, mode, servers in (("gcn", "pipe", 3), ("gat", "sync", 2)):
        disk = DiskCut(tmp_path, 2, 3, rows=True, constants=2 if name == "gcn" else 0)
        savings = Savings(frozenset({0}), frozenset({0}), shared=True, disk=disk)
        layout: dict[str, Any] = {"epochs": 3, "mode": mode, "servers": servers, "layout": "vertices"}
        plain, on_disk = train_on_crew(name, **layout), train_on_crew(name, savings=savings, **layout)
        assert on_disk.losses == plain.losses
        assert [each.val_loss for each in on_disk.history] == [each.val_loss for each in plain.history]
        assert all(each.bytes_read and each.bytes_written for each in on_disk.history)
        assert on_disk.counters["bytes_read"] == sum(each.bytes_read or 0 for each in on_disk.history)
        assert plain.counters["bytes_read"] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gat"])
def test_gathers_by_columns_are_the_oracles(name: str) -> None:
    for mode, servers in (("sync", 3), ("pipe", 2)):
        ran = train_on_crew(name, epochs=EPOCHS, mode=mode, servers=servers, layout="columns")
        assert_exact(ran, truth(name, EPOCHS))


def test_machines_with_addresses_of_their_own_are_exact_too() -> None:
    assert_exact(train_on_crew("gcn", epochs=EPOCHS, servers=3, crew={"apart": True}), truth("gcn", EPOCHS))


@pytest.mark.parametrize("partition", ["contiguous", "auto"])
def test_intervals_that_send_no_row_of_a_stage_are_exact_too(partition: str) -> None:
    ran = train_on_crew("gcn", epochs=EPOCHS, servers=2, intervals=7, partition=partition)
    assert_exact(ran, truth("gcn", EPOCHS))


def test_it_counts_what_threads_of_one_process_count_and_has_their_bits() -> None:
    given = case("gcn")
    layout = {"epochs": EPOCHS, "servers": 2, "intervals": 3, "weight_servers": 2, "mode": "sync"}
    here = train_in_pipeline(
        given.graph, given.model, programs=given.programs, lr=0.02, weight_decay=1e-3, seed=7, **layout
    )
    there = train_on_crew("gcn", epochs=EPOCHS, mode="sync")
    assert there.losses == here.losses
    # How many versions there are at once depends on when an evaluation ends.
    assert {**there.counters, "weight_versions_peak": 0} == {**here.counters, "weight_versions_peak": 0}


def test_asynchronous_epochs_learn() -> None:
    ran = train_on_crew("learns", epochs=40, mode="async", staleness=1)
    exact = truth("learns", 40)
    best = max(epoch.val_accuracy or 0.0 for epoch in ran.history)
    assert best >= max(each["val_accuracy"] for each in exact.scores) - 0.02
    assert ran.counters["max_staleness_seen"] <= 1
    assert ran.counters["gradients_applied"] == 40 * 6 * 2
