"""The price of tables on disk: reads as the reader plans them, and more memory never costs more."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch

import siafu
from siafu.server.disk_share import SLOTS, DiskCut
from siafu.server.memory.disk_choice import on_disk
from siafu.server.memory.disk_price import disk_seconds, tables_read
from siafu.server.memory.listing import RunListing
from siafu.tables.partition_reader import plan_reads
from siafu.training.placement import choose_partition
from siafu.training.trainer import Trainer
from tests.training_runs import options, tangled_graph


@pytest.mark.parametrize("groups,partitions", [(2, 4), (4, 8), (4, 16), (8, 16), (2, 3), (16, 32)])
def test_tables_are_read_as_often_as_the_reader_reads_them(groups: int, partitions: int) -> None:
    reads = plan_reads([*range(partitions)] * groups, SLOTS)
    cut = DiskCut(Path(), groups, partitions)
    assert tables_read(cut) == pytest.approx(len(reads) / partitions)


def test_more_memory_never_costs_more() -> None:
    graph = tangled_graph(3000)
    torch.manual_seed(0)
    model = siafu.nn.GraphSAGE(graph.num_features, 64, 3, graph.num_classes, 0.5)
    listing = RunListing.of(Trainer(graph, model, options(), choose_partition(graph, 1, "hash")).plan)

    def chosen(budget: int) -> tuple[int, float]:
        plan = on_disk(
            listing.plan,
            Path(),
            budget,
            lambda each: listing.saving(each.savings),
            lambda each: disk_seconds(listing, each),
        )
        return listing.saving(plan.savings).peak, disk_seconds(listing, plan)

    (least, _), (most, _) = chosen(0), chosen(1 << 40)
    found = [chosen(least + (most - least) * k // 8) for k in range(9)]
    assert all(peak <= least + (most - least) * k // 8 for k, (peak, _) in enumerate(found))
    assert all(before >= after for (_, before), (_, after) in pairwise(found))
    assert found[0][1] > found[-1][1]
