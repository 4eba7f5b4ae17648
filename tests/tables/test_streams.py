"""Partitions read ahead and rows written behind."""

import errno
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.base.errors import NoSpace, SiafuError
from siafu.tables import (
    DiskTable,
    MemoryTable,
    PartitionReader,
    RowTable,
    ScratchDirectory,
    WriteBehind,
    page_buffer,
)
from siafu.tables.partition_reader import plan_reads
from tests.tables.faulty_disk import FaultyDisk

BOUNDS = [(0, 70), (70, 100), (100, 200), (200, 210), (210, 256)]


def numbered(table: RowTable) -> RowTable:
    """Each row has its number in every column."""
    rows = table.buffer(table.rows)
    rows[:] = np.arange(table.rows)[:, None]
    table.write(0, rows)
    return table


@settings(max_examples=30)
@given(order=st.lists(st.integers(0, 4), max_size=12), slots=st.integers(2, 6))
def test_partitions_come_in_order_however_few_buffers_there_are(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], slots: int
) -> None:
    scratch = ScratchDirectory(tmp_path_factory.mktemp("scratch"))
    tables = [numbered(DiskTable(scratch, 256, width, np.float32)) for width in (16, 48)]
    before = scratch.traffic.bytes_read
    with PartitionReader(tables, BOUNDS, order, slots) as reader:
        for expected in order:
            with reader.next() as (partition, rows):
                assert partition == expected
                for each in rows:
                    np.testing.assert_array_equal(each[:, 0], np.arange(*BOUNDS[expected]))
    pages = sum(
        -(-last * table.row_bytes // 4096) - first * table.row_bytes // 4096
        for read in plan_reads(order, slots)
        for table in tables
        for first, last in [BOUNDS[read.partition]]
    )
    assert scratch.traffic.bytes_read - before == 4096 * pages


@pytest.mark.parametrize(
    "partitions,groups,slots,reads", [(8, 3, 2, 24), (8, 3, 4, 18), (8, 3, 9, 8), (4, 1, 2, 4)]
)
def test_spare_buffers_keep_partitions_for_the_next_group(
    partitions: int, groups: int, slots: int, reads: int
) -> None:
    order = [*range(partitions)] * groups
    assert len(plan_reads(order, slots)) == reads


@given(order=st.lists(st.integers(0, 5), max_size=30), slots=st.integers(2, 5))
def test_a_buffer_is_filled_only_after_its_content_was_used(order: list[int], slots: int) -> None:
    held: dict[int, int] = {}
    reads = {read.before: read for read in plan_reads(order, slots)}
    for place, partition in enumerate(order):
        if place in reads:
            read = reads[place]
            gone = [k for k, slot in held.items() if slot == read.slot]
            for each in gone:
                assert max(k for k in range(place) if order[k] == each) == read.after
                del held[each]
            held[partition] = read.slot
            assert read.after < place - 1 or read.after == -1
        assert partition in held


def test_a_table_in_memory_is_read_without_a_copy() -> None:
    table = MemoryTable(256, 16, np.float32)
    with PartitionReader([table], BOUNDS, [3], 2) as reader, reader.next() as (_, [rows]):
        assert np.shares_memory(rows, table.table)


def test_a_reader_that_is_not_read_to_its_end_ends(tmp_path: Path) -> None:
    table = numbered(DiskTable(ScratchDirectory(tmp_path), 256, 16, np.float32))
    PartitionReader([table], BOUNDS, [0, 1, 2, 3, 4], 2).close()


def test_an_error_of_the_reading_thread_is_raised_where_rows_are_waited_for(tmp_path: Path) -> None:
    table = DiskTable(ScratchDirectory(tmp_path, FaultyDisk(kind="read", fails_at=1)), 256, 16, np.float32)
    with PartitionReader([table], BOUNDS, [0, 1], 2) as reader:
        with reader.next() as (partition, _):
            assert partition == 0
        with pytest.raises(SiafuError, match="cannot read"), reader.next():
            pass


def test_rows_are_written_behind_in_order(tmp_path: Path) -> None:
    table = DiskTable(ScratchDirectory(tmp_path), 256, 16, np.float32)
    writer = WriteBehind(1 << 12)  # less than some ranges: whoever brings them waits
    for first, last in BOUNDS:
        rows = writer.buffer(table, first, last - first)
        rows[:] = np.arange(first, last)[:, None]
        writer.put(table, first, rows)
    writer.flush()
    found = table.read(0, 256, page_buffer(table.buffer_bytes(256)))
    np.testing.assert_array_equal(found[:, 5], np.arange(256))
    writer.close()


def test_an_error_of_the_writing_thread_is_raised_by_flush(tmp_path: Path) -> None:
    table = DiskTable(
        ScratchDirectory(tmp_path, FaultyDisk(kind="write", error=errno.ENOSPC)), 256, 16, np.float32
    )
    writer = WriteBehind(1 << 20)
    writer.put(table, 0, writer.buffer(table, 0, 256))
    with pytest.raises(NoSpace):
        writer.flush()
    writer.close()
