"""Rows written behind: every byte arrives, neighbours together, and no thread waits for ever."""

import errno
import itertools
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.base.errors import NoSpace
from siafu.tables import DiskTable, MemoryTable, RowTable, ScratchDirectory, WriteBehind, page_buffer
from tests.tables.faulty_disk import FaultyDisk

PATIENCE = 60.0  # seconds: a thread that hangs shall fail the test, not stop it


def put(writer: WriteBehind, table: RowTable, first: int, last: int, value: int) -> None:
    """Rows with their numbers and a value in every column."""
    rows = writer.buffer(table, first, last - first)
    rows[:] = 1000 * np.arange(first, last)[:, None] + value
    writer.put(table, first, rows)


def values(table: RowTable, first: int = 0, last: int | None = None) -> np.ndarray:
    last = table.rows if last is None else last
    rows = table.read(first, last, page_buffer(table.buffer_bytes(last - first)))
    return rows[:, 0] - 1000 * np.arange(first, last)


def end_all(threads: list[threading.Thread]) -> None:
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    assert not any(each.is_alive() for each in threads), "a thread waits for ever"


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 400),
    columns=st.sampled_from([1, 16, 48, 300]),
    most=st.sampled_from([1, 5000, 40_000, 1 << 20]),
    request=st.sampled_from([1, 4096, 20_000, 1 << 20]),
    data=st.data(),
)
def test_what_is_read_back_is_what_was_put_last_for_any_pieces_in_any_order(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    columns: int,
    most: int,
    request: int,
    data: st.DataObject,
) -> None:
    table = DiskTable(ScratchDirectory(tmp_path_factory.mktemp("scratch")), rows, columns, np.float64)
    pieces = data.draw(st.lists(st.tuples(st.integers(0, rows), st.integers(0, rows)), max_size=12))
    expected = np.full(rows, -1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("siafu.tables.write_behind.REQUEST_BYTES", request)
        writer = WriteBehind(most)
        put(writer, table, 0, rows, -1)
        for number, (one, other) in enumerate(pieces):
            first, last = min(one, other), max(one, other)
            put(writer, table, first, last, number)
            expected[first:last] = number
            if data.draw(st.booleans()):
                low, high = sorted((data.draw(st.integers(0, rows)), data.draw(st.integers(0, rows))))
                writer.flush(table, low, high)
                np.testing.assert_array_equal(values(table, low, high), expected[low:high])
        writer.flush()
        np.testing.assert_array_equal(values(table), expected)
        writer.close()


def test_neighbours_are_written_together_and_shared_pages_once(tmp_path: Path) -> None:
    calls = FaultyDisk()
    scratch = ScratchDirectory(tmp_path, calls)
    table = DiskTable(scratch, 1000, 16, np.float32)  # 64 bytes a row: 15.6 pages
    writer = WriteBehind(1 << 20)
    for first in range(0, 1000, 50):  # never a whole page
        put(writer, table, first, first + 50, 7)
    assert calls.calls["write"] == 0  # too little for a request, and nobody waits
    writer.flush()
    assert calls.calls["write"] == 1
    assert scratch.traffic.bytes_written == 16 * 4096
    np.testing.assert_array_equal(values(table), 7)
    writer.close()


def test_a_range_is_flushed_without_the_rest(tmp_path: Path) -> None:
    calls = FaultyDisk()
    table = DiskTable(ScratchDirectory(tmp_path, calls), 1024, 16, np.float32)
    writer = WriteBehind(1 << 20)
    put(writer, table, 0, 128, 1)
    put(writer, table, 512, 640, 2)
    writer.flush(table, 100, 110)
    assert calls.calls["write"] == 1
    np.testing.assert_array_equal(values(table, 0, 128), 1)
    writer.close()
    np.testing.assert_array_equal(values(table, 512, 640), 2)


def test_a_flush_does_not_wait_for_memory_whose_owner_waits_for_who_flushes(tmp_path: Path) -> None:
    """Owners of buffers wait for a lock; who has the lock flushes, as gathers do. To wait for the buffers would be to wait for ever."""
    table = DiskTable(ScratchDirectory(tmp_path), 64, 16, np.float32)
    writer, lock, handed_out = WriteBehind(1), threading.Lock(), threading.Barrier(3)

    def own(first: int) -> None:
        rows = writer.buffer(table, first, 16)
        rows[:] = 1000 * np.arange(first, first + 16)[:, None] + 3
        handed_out.wait(PATIENCE)
        with lock:
            writer.put(table, first, rows)

    def flush() -> None:
        with lock:
            handed_out.wait(PATIENCE)
            writer.flush()
            writer.flush(table)

    end_all(
        [threading.Thread(target=own, args=(first,), daemon=True) for first in (0, 16)]
        + [threading.Thread(target=flush, daemon=True)]
    )
    writer.flush()
    np.testing.assert_array_equal(values(table, 0, 32), 3)
    writer.close()


@pytest.mark.parametrize("most,request_bytes", [(1, 1), (3000, 2000), (1 << 16, 1 << 14)])
def test_many_threads_that_put_under_locks_and_flush_under_locks_all_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, request_bytes: int
) -> None:
    """As gathers do: each thread has rows of two tables at once, and takes a lock that others hold while they flush and read."""
    monkeypatch.setattr("siafu.tables.write_behind.REQUEST_BYTES", request_bytes)
    scratch, threads, rounds, share = ScratchDirectory(tmp_path), 12, 15, 40
    tables = [DiskTable(scratch, threads * share, columns, np.float64) for columns in (16, 40)]
    writer, locks = WriteBehind(most), [threading.Lock() for _ in range(3)]
    wrong: list[str] = []

    def work(number: int) -> None:
        draws = np.random.default_rng(number)
        low = number * share
        for turn in range(rounds):
            cuts = sorted({0, share, *draws.integers(1, share, 4).tolist()})
            for first, last in itertools.pairwise(cuts):
                made = [writer.buffer(each, low + first, last - first) for each in tables]
                with locks[draws.integers(3)]:
                    for each in made:
                        each[:] = 1000 * np.arange(low + first, low + last)[:, None] + turn
                for table, each in zip(tables, made, strict=True):
                    writer.put(table, low + first, each)
            with locks[draws.integers(3)]:
                table = tables[draws.integers(2)]
                writer.flush(*([] if turn % 5 == 0 else [table, low, low + share]))
                if not (values(table, low, low + share) == turn).all():
                    wrong.append(f"thread {number}, turn {turn}")

    end_all([threading.Thread(target=work, args=(k,), daemon=True) for k in range(threads)])
    assert not wrong
    writer.close()
    for table in tables:
        np.testing.assert_array_equal(values(table), rounds - 1)


def test_threads_that_wait_for_room_are_told_of_an_error(tmp_path: Path) -> None:
    disk = FaultyDisk(kind="write", error=errno.ENOSPC)
    table = DiskTable(ScratchDirectory(tmp_path, disk), 1024, 64, np.float32)
    writer, told = WriteBehind(1), list[str]()

    def work(number: int) -> None:
        try:
            for first in range(256 * number, 256 * (number + 1), 16):
                put(writer, table, first, first + 16, 1)
            writer.flush()
        except NoSpace as error:
            told.append(str(error))

    end_all([threading.Thread(target=work, args=(k,), daemon=True) for k in range(4)])
    assert len(told) == 4
    assert all("no space left for scratch files" in each for each in told)
    writer.close()


def test_tables_in_memory_are_written_behind_too() -> None:
    table = MemoryTable(64, 16, np.float32)
    writer = WriteBehind(1 << 20)
    put(writer, table, 0, 10, 5)
    put(writer, table, 10, 64, 5)
    writer.close()
    np.testing.assert_array_equal(values(table), 5)
