"""The price of tables on disk: reads as the reader plans them, and more memory never costs more."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import siafu
from siafu.server.costs.held_array import HeldArray
from siafu.server.memory import listing as listings
from siafu.server.memory import server_hardware
from siafu.server.memory.disk_choice import LEAST_READ, on_disk
from siafu.server.memory.disk_price import disk_seconds, edges_read, moving_seconds, tables_read
from siafu.server.memory.disk_share import SLOTS, DiskCut, Gathered, buffer_bytes
from siafu.server.memory.listing import RunListing
from siafu.server.plan import ServerPlan
from siafu.tables.partition_reader import plan_reads
from siafu.training.placement import choose_partition
from siafu.training.trainer import Trainer
from tests.training_runs import options, tangled_graph


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their buffers decide which layout takes least on a graph this small."""
    monkeypatch.setattr(server_hardware, "thread_count", lambda: 2)


@pytest.mark.parametrize("groups,partitions", [(2, 4), (4, 8), (4, 16), (8, 16), (2, 3), (16, 32)])
@pytest.mark.parametrize("slots", [SLOTS, 4, 7, 15])
def test_tables_are_read_as_often_as_the_reader_reads_them(groups: int, partitions: int, slots: int) -> None:
    reads = plan_reads([*range(partitions)] * groups, slots)
    cut = DiskCut(Path(), groups, partitions, slots=slots)
    assert tables_read(cut) == pytest.approx(len(reads) / partitions)


def test_edges_that_the_cache_holds_are_not_read_and_their_copy_is_read_once() -> None:
    plain, copied = DiskCut(Path(), 4, 8), DiskCut(Path(), 4, 8, buckets=True)
    size, rows = 1e9, 1000
    assert edges_read(plain, size, rows, 2 * 10**9) == edges_read(copied, size, rows, 2 * 10**9) == 0.0
    assert edges_read(plain, size, rows, 10**6) == 8 * size
    assert size < edges_read(copied, size, rows, 10**6) < 1.2 * size


def listed() -> RunListing:
    graph = tangled_graph(3000)
    torch.manual_seed(0)
    model = siafu.nn.GraphSAGE(graph.num_features, 64, 3, graph.num_classes, 0.5)
    made = Trainer(graph, model, options(intervals=64), choose_partition(graph, 1, "hash"))
    return RunListing.of(made.plan)


def chosen_for(listing: RunListing, budget: int, table_bytes: int = 1 << 40) -> ServerPlan:
    return on_disk(
        listing.plan,
        Path(),
        budget,
        lambda each: listing.saving(each.savings),
        lambda each: disk_seconds(listing, each),
        lambda each: table_bytes,
        lambda each: True,
    )


@pytest.mark.slow
def test_edges_are_copied_only_where_the_cache_has_no_room_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = listed()
    budget = 1 << 40
    for room, copied in ((None, False), (1 << 40, False), (0, True)):
        monkeypatch.setattr(server_hardware, "free_bytes", lambda room=room: room)
        cut = chosen_for(listing, budget).savings.disk
        assert cut is not None
        assert cut.buckets == (copied and cut.tables)


def test_of_layouts_that_fit_one_is_taken_that_the_disk_has_room_for() -> None:
    listing = listed()

    def chosen(free: int) -> ServerPlan:
        """The cheapest, where more on disk is cheaper."""
        size = listing.disk_bytes
        return on_disk(
            listing.plan,
            Path(),
            1 << 40,
            lambda each: listing.saving(each.savings),
            lambda each: -size(each),
            lambda each: 1 << 40,
            lambda each: size(each) <= free,
        )

    cheapest = chosen(1 << 60)
    free = listing.disk_bytes(cheapest) - 1
    assert 0 < listing.disk_bytes(chosen(free)) <= free


def test_partitions_are_never_tiny() -> None:
    listing = listed()
    small, large = (chosen_for(listing, 0, size).savings.disk for size in (LEAST_READ, 64 * LEAST_READ))
    assert small is not None and large is not None
    assert small.groups == 2
    assert large.partitions == 64


@pytest.mark.slow
def test_what_edges_read_goes_to_disk_last_and_the_widest_of_it_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("WRITTEN_BEHIND", "IDLE_BYTES"):
        monkeypatch.setattr(listings, name, 1 << 14)
    listing, budget, found = listed(), 1 << 40, []
    while True:  # each budget is a byte less than the choice before takes
        plan = chosen_for(listing, budget)
        peak = listing.saving(plan.savings).peak
        if peak > budget:
            break
        assert plan.savings.disk is not None
        found.append(plan.savings.disk)
        budget = peak - 1
    gathers = [sum(cut.reads(depth) for depth in range(2)) for cut in found]
    assert gathers[0] == 0 and any(cut.rows for cut in found if not cut.tables)
    assert gathers[-1] == 2
    assert all(cut.held == {1} for cut, count in zip(found, gathers, strict=True) if count == 1)
    assert 1 in gathers


def test_partitions_stay_in_memory_where_there_is_room_for_them() -> None:
    listing = listed()
    least = chosen_for(listing, 0)
    cut = least.savings.disk
    assert cut is not None and cut.tables and cut.slots == SLOTS
    peak = listing.saving(least.savings).peak
    many = least.saving(replace(least.savings, disk=replace(cut, slots=cut.partitions)))
    a_partition = (listing.saving(many.savings).peak - peak) / (cut.partitions - SLOTS)
    assert a_partition > 0
    for spare in (0, 5, cut.partitions):
        found = chosen_for(listing, peak + round(spare * a_partition))
        assert listing.saving(found.savings).peak <= peak + round(spare * a_partition)
        assert disk_seconds(listing, found) <= disk_seconds(listing, least)
        if spare == 5:
            assert found.savings.disk is not None
            assert found.savings.disk.slots > SLOTS or found.savings.disk.groups < cut.groups


@pytest.mark.slow
def test_more_memory_never_costs_more() -> None:
    listing = listed()

    def chosen(budget: int) -> tuple[int, float]:
        plan = chosen_for(listing, budget)
        return listing.saving(plan.savings).peak, disk_seconds(listing, plan)

    (least, _), (most, _) = chosen(0), chosen(1 << 40)
    found = [chosen(least + (most - least) * k // 8) for k in range(9)]
    assert all(peak <= least + (most - least) * k // 8 for k, (peak, _) in enumerate(found))
    assert all(before >= after for (_, before), (_, after) in pairwise(found))
    assert found[0][1] > found[-1][1]


def test_edges_that_do_not_stay_in_memory_beside_tables_are_read_for_every_walk(tmp_path: Path) -> None:
    graph = tangled_graph(3000)
    graph.save(tmp_path / "store")
    stored = siafu.load(tmp_path / "store")
    model = siafu.nn.GraphSAGE(graph.num_features, 16, 2, graph.num_classes, 0.5)
    listing = RunListing.of(Trainer(stored, model, options(), choose_partition(stored, 1, "hash")).plan)
    peak, pages = listing.listed.peak, listing.edge_pages(listing.plan)
    assert pages >= stored.indices.nbytes
    enough, short = (
        replace(listing, hardware=replace(listing.hardware, memory=peak + each))
        for each in (pages, pages - 1)
    )
    assert moving_seconds(enough, listing.plan) == 0.0
    edges = moving_seconds(short, listing.plan) * listing.hardware.read_bytes_s
    assert edges >= 2 * stored.indices.nbytes  # forth and back, at least once each


def test_groups_between_the_intervals_of_two_threads_are_listed() -> None:
    """One thread is at the begin of its interval, the other at that of the next: the groups between them are made and wait."""
    array = HeldArray("rows", "sums", "gather", columns=512, itemsize=4, on_disk="source")
    cut, row = DiskCut(Path(), 64, 128), 512 * 4
    alone = Gathered(64_000, 0, 64_000, taken=500, apart=500, threads=1)
    apart = alone._replace(apart=8500, threads=2)
    assert buffer_bytes(cut, apart, array, 4) - buffer_bytes(cut, alone, array, 4) == (10 - 2) * 1000 * row
    joined = alone._replace(taken=4000, apart=4000)  # its rows are of four groups
    more = buffer_bytes(cut, joined, array, 4) - buffer_bytes(cut, alone, array, 4)
    assert more == (5 - 2) * 1000 * row + 4000 * row
