"""Rows of an interval on disk are those of one in memory, read about once."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.server.rows.blocks import Labels, blocks_of
from siafu.server.rows.interval_rows import IntervalRows
from siafu.server.rows.spilled_rows import SpilledRows
from siafu.tables import NamedTables, ScratchDirectory, WriteBehind
from tests.tables.faulty_disk import FaultyDisk

WIDTH = 48

Step = Callable[[IntervalRows, str, slice, torch.Tensor], torch.Tensor | None]


def put(rows: IntervalRows, name: str, where: slice, values: torch.Tensor) -> None:
    rows.put(name, where, values)


def add(rows: IntervalRows, name: str, where: slice, values: torch.Tensor) -> None:
    rows.add(name, where, values)


def get(rows: IntervalRows, name: str, where: slice, values: torch.Tensor) -> torch.Tensor:
    return rows.get(name, where)


def bounds(count: int, size: int) -> list[slice]:
    labels = Labels(None, torch.zeros(count, dtype=torch.int64), {})
    return [each.inside for each in blocks_of(0, count, size, labels)]


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 300),
    span=st.sampled_from([1, 2000, 20_000, 1 << 20]),
    passes=st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.integers(1, 120),
            st.lists(st.sampled_from([put, add, get]), min_size=1, max_size=3),
        ),
        max_size=5,
    ),
    data=st.data(),
)
def test_rows_are_those_of_an_interval_in_memory_whatever_passes_do(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    span: int,
    passes: list[tuple[str, int, list[Step]]],
    data: st.DataObject,
) -> None:
    writer = WriteBehind(1 << 16)
    tables = NamedTables(ScratchDirectory(tmp_path_factory.mktemp("scratch")), writer, count + 7)
    disk, memory = SpilledRows(7, count, tables), IntervalRows(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("siafu.server.rows.spilled_rows.SPAN_BYTES", span)
        whole = slice(0, count)
        for name in "ab":
            for rows in (disk, memory):
                rows.put(name, whole, torch.full((count, WIDTH), 1.0))
        for number, (name, size, steps) in enumerate(passes):
            blocks = bounds(count, size)
            if data.draw(st.booleans()):
                blocks = data.draw(st.permutations(blocks))  # slow, not wrong
            for where in blocks:
                values = torch.full((where.stop - where.start, WIDTH), float(number + 2))
                for step in steps:
                    found, wanted = (step(rows, name, where, values) for rows in (disk, memory))
                    if wanted is not None:
                        assert found is not None
                        assert torch.equal(found, wanted)
        for name in "ab":
            assert torch.equal(disk.get(name, whole), memory.get(name, whole))
    writer.close()


@pytest.mark.parametrize("count,size", [(40_000, 1000), (39_977, 1013), (900, 1000)])
@pytest.mark.parametrize("rewrites", [False, True])
def test_a_pass_reads_each_row_about_once_in_few_requests(
    tmp_path: Path, count: int, size: int, rewrites: bool
) -> None:
    writer, calls = WriteBehind(32 << 20), FaultyDisk()
    scratch = ScratchDirectory(tmp_path, calls)
    rows = SpilledRows(0, count, NamedTables(scratch, writer, count))
    rows.put("a", slice(0, count), torch.arange(count)[:, None].expand(-1, 128).float())
    writer.flush()
    before = scratch.traffic.bytes_read
    for where in bounds(count, size):
        found = rows.get("a", where)
        assert torch.equal(found[:, 0], torch.arange(where.start, where.stop).float())
        if rewrites:
            rows.put("a", where, found + 0)
    read = scratch.traffic.bytes_read - before
    assert count * 512 <= read <= 1.02 * count * 512 + 8192
    assert calls.calls["read"] <= 2 + read / 3e6  # the first is of one block
    writer.close()
