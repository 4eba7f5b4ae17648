"""Tables on disk hold what tables in memory hold, however ranges are cut and calls are cut short."""

import errno
import itertools
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.base.errors import BadInput, NoSpace, SiafuError
from siafu.tables import DiskTable, MemoryTable, RowTable, ScratchDirectory, page_buffer
from tests.tables.faulty_disk import FaultyDisk


def filled(table: RowTable, first: int, last: int, seed: int) -> np.ndarray:
    rows = table.buffer(last - first, first)
    rows[:] = np.random.default_rng(seed).integers(0, 1 << 15, rows.shape).astype(table.dtype)
    return rows


def whole(table: RowTable) -> np.ndarray:
    return table.read(0, table.rows, page_buffer(table.buffer_bytes(table.rows))).copy()


@settings(max_examples=40)
@given(
    rows=st.integers(1, 300),
    columns=st.integers(1, 40),
    dtype=st.sampled_from([np.float32, np.float64, np.uint16]),
    data=st.data(),
)
def test_what_is_written_in_any_ranges_is_read_in_any(
    tmp_path_factory: pytest.TempPathFactory, rows: int, columns: int, dtype: type, data: st.DataObject
) -> None:
    scratch = ScratchDirectory(tmp_path_factory.mktemp("scratch"))
    disk, memory = DiskTable(scratch, rows, columns, dtype), MemoryTable(rows, columns, dtype)
    cuts = sorted(data.draw(st.sets(st.integers(0, rows), max_size=6)) | {0, rows})
    ranges = data.draw(st.permutations(list(itertools.pairwise(cuts))))
    for epoch in range(2):  # rows are written anew in every epoch
        for k, (first, last) in enumerate(ranges):
            made = filled(disk, first, last, 10 * epoch + k)
            disk.write(first, made)
            memory.write(first, made)
        np.testing.assert_array_equal(whole(disk), whole(memory))
    first = data.draw(st.integers(0, rows))
    last = data.draw(st.integers(first, rows))
    buffer = page_buffer(disk.buffer_bytes(last - first))
    np.testing.assert_array_equal(disk.read(first, last, buffer), memory.read(first, last, buffer))


def test_rows_that_were_never_written_are_zero(tmp_path: Path) -> None:
    table = DiskTable(ScratchDirectory(tmp_path), 500, 16, np.float32)
    table.write(100, filled(table, 100, 200, 1))
    found = whole(table)
    assert not found[:100].any()
    assert not found[200:].any()


@pytest.mark.parametrize("short", [4096, 1000])
def test_calls_that_are_cut_short_are_gone_on_with(tmp_path: Path, short: int) -> None:
    table = DiskTable(ScratchDirectory(tmp_path, FaultyDisk(short=short)), 300, 16, np.float32)
    made = filled(table, 0, 300, 1)
    table.write(0, made)
    np.testing.assert_array_equal(whole(table), made)


def test_large_reads_are_made_of_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siafu.tables.page_file._PART", 2 * 4096)
    calls = FaultyDisk()
    scratch = ScratchDirectory(tmp_path, calls)
    table = DiskTable(scratch, 1000, 16, np.float32)
    made = filled(table, 0, 1000, 1)
    table.write(0, made)
    np.testing.assert_array_equal(whole(table), made)
    assert calls.calls["read"] == 8
    assert scratch.traffic.bytes_read == 16 * 4096
    assert (
        0
        < scratch.traffic.seconds_busy
        <= scratch.traffic.seconds_reading + scratch.traffic.seconds_writing + 1e-9
    )
    failing = FaultyDisk(kind="read", error=errno.EIO, fails_at=3)
    other = DiskTable(ScratchDirectory(tmp_path, failing), 1000, 16, np.float32)
    with pytest.raises(SiafuError, match="cannot read a scratch file"):
        whole(other)


def test_bytes_moved_are_counted_in_whole_pages(tmp_path: Path) -> None:
    scratch = ScratchDirectory(tmp_path)
    table = DiskTable(scratch, 1000, 16, np.float32)  # 64 bytes a row: 15.6 pages
    table.write(0, filled(table, 0, 1000, 1))
    whole(table)
    assert scratch.traffic.bytes_written == 16 * 4096
    assert scratch.traffic.bytes_read == 16 * 4096


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_when_a_table_is_made(tmp_path: Path, code: int) -> None:
    scratch = ScratchDirectory(tmp_path, FaultyDisk(kind="reserve", error=code))
    with pytest.raises(NoSpace, match="no space left for scratch files"):
        DiskTable(scratch, 10, 16, np.float32)


def test_a_limit_of_a_files_size_is_told(tmp_path: Path) -> None:
    scratch = ScratchDirectory(tmp_path, FaultyDisk(kind="reserve", error=errno.EFBIG))
    with pytest.raises(NoSpace, match="raise your limit"):
        DiskTable(scratch, 10, 16, np.float32)


def test_a_full_disk_is_told_while_rows_are_written(tmp_path: Path) -> None:
    table = DiskTable(
        ScratchDirectory(tmp_path, FaultyDisk(kind="write", error=errno.ENOSPC)), 64, 16, np.float32
    )
    with pytest.raises(NoSpace, match="choose another --scratch"):
        table.write(0, filled(table, 0, 64, 1))


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_disk_that_fails_is_told_in_one_line(tmp_path: Path, kind: str) -> None:
    table = DiskTable(ScratchDirectory(tmp_path, FaultyDisk(kind=kind)), 64, 16, np.float32)
    with pytest.raises(
        SiafuError, match=rf"^cannot {kind} a scratch file in .+ \(Input/output error\): check its disk"
    ):
        table.write(0, filled(table, 0, 64, 1))
        whole(table)


def test_a_file_system_without_direct_reads_is_read_through_its_cache(tmp_path: Path) -> None:
    class Refusing(FaultyDisk):
        def read(self, file: int, into: memoryview, at: int) -> int:
            if self.calls["read"] == 0:
                self.calls["read"] += 1
                raise OSError(errno.EINVAL, "Invalid argument")
            return super().read(file, into, at)

    table = DiskTable(ScratchDirectory(tmp_path, Refusing()), 64, 16, np.float32)
    made = filled(table, 0, 64, 1)
    table.write(0, made)
    if table.direct:
        np.testing.assert_array_equal(whole(table), made)
        assert not table.direct


def test_more_than_the_disk_has_is_refused_before_it_is_tried(tmp_path: Path) -> None:
    with pytest.raises(NoSpace, match=r"GB free, and scratch files need .+: free some"):
        DiskTable(ScratchDirectory(tmp_path), 1 << 50, 16, np.float32)


def test_a_scratch_directory_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        ScratchDirectory(tmp_path / "none")


_HOLDER = """
import sys, numpy as np
from pathlib import Path
from siafu.tables import DiskTable, ScratchDirectory
table = DiskTable(ScratchDirectory(Path(sys.argv[1])), 4096, 16, np.float32)
table.write(0, table.buffer(4096))
print("written", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_killed_process_leaves_nothing_and_disturbs_no_other(tmp_path: Path) -> None:
    mine = DiskTable(ScratchDirectory(tmp_path), 64, 16, np.float32)
    made = filled(mine, 0, 64, 1)
    mine.write(0, made)
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"written\n"
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(whole(mine), made)
