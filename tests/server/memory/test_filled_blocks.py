"""Blocks that threads fill before they are written to tables on disk: the list has as many bytes as a thread ever held."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import siafu
from siafu.base.threads import thread_count
from siafu.kernels import Table
from siafu.server.memory.disk_share import DiskCut
from siafu.server.memory.listing import memory_list
from siafu.server.memory.savings import Savings
from siafu.server.rows import blocks
from siafu.tables import WriteBehind
from siafu.tables.pages import PAGE, whole_pages
from siafu.tables.row_table import RowTable
from siafu.training.placement import choose_partition
from siafu.training.trainer import Trainer
from tests.training_runs import options, tangled_graph

GRAPH = tangled_graph(4000)
FEATURES, CLASSES = GRAPH.num_features, GRAPH.num_classes
MODELS: dict[str, Callable[[], nn.Module]] = {
    "sage": lambda: siafu.nn.GraphSAGE(FEATURES, 64, 3, CLASSES),
    "max": lambda: siafu.nn.GraphSAGE(FEATURES, 64, 3, CLASSES, aggr="max"),
    "gat": lambda: siafu.nn.GAT(FEATURES, 64, 3, CLASSES, heads=4),
}


class Filled:
    """Memory of buffers that were lent to each thread and not put back, and the most that any ever had."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        self._now: Counter[int] = Counter()
        buffer, put = WriteBehind.buffer, WriteBehind.put

        def lent(writer: WriteBehind, table: RowTable, first: int, rows: int) -> Table:
            self._now[threading.get_ident()] += _lent_bytes(table, first, rows)
            self.most = max(self.most, self._now[threading.get_ident()])
            return buffer(writer, table, first, rows)

        def back(writer: WriteBehind, table: RowTable, first: int, rows: Table) -> None:
            put(writer, table, first, rows)
            self._now[threading.get_ident()] -= _lent_bytes(table, first, len(rows))

        monkeypatch.setattr(WriteBehind, "buffer", lent)
        monkeypatch.setattr(WriteBehind, "put", back)


def _lent_bytes(table: RowTable, first: int, rows: int) -> int:
    return whole_pages(first * table.row_bytes % PAGE + rows * table.row_bytes)


@pytest.mark.parametrize("name,kept", [("sage", True), ("max", False), ("gat", False)])
def test_the_list_has_what_a_thread_fills_of_tables_on_disk(
    name: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "near_cache_bytes", lambda: 1 << 18)
    monkeypatch.setattr("siafu.server.memory.server_hardware.near_cache_bytes", lambda: 1 << 18)
    torch.manual_seed(0)
    every = frozenset({0, 1})
    savings = Savings(every, frozenset() if kept else every, disk=DiskCut(tmp_path, 2, 3, rows=True))
    trainer = Trainer(
        GRAPH, MODELS[name](), options(epochs=1, intervals=3), choose_partition(GRAPH, 1, "hash")
    )
    trainer.plan = trainer.plan.saving(savings)
    listed = next(
        each for each in memory_list(trainer.plan).allocations if each.name == "blocks being filled"
    )
    filled = Filled(monkeypatch)
    trainer.prepare()
    list(trainer.run())
    one = listed.bytes // thread_count()
    assert one - 2 * PAGE <= filled.most <= one
