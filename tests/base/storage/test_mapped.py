"""Arrays that are a file's pages."""

from pathlib import Path

import numpy as np

from siafu.base.storage.mapped import mapped_array, mapped_file, read_soon


def test_views_of_a_mapped_file_are_known_and_arrays_in_memory_are_not(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(30_000.0).reshape(3000, 10))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert mapped_file(rows.view(np.ndarray)[5:].reshape(-1)) is not None
    assert mapped_file(np.zeros(3)[1:]) is None
    assert mapped_file(None) is None


def test_reading_soon_changes_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(30_000.0).reshape(3000, 10))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="c").view(np.ndarray)
    for first, last in [(0, 3000), (17, 2999), (5, 5), (2999, 3000)]:
        read_soon(rows[first:last])
    read_soon(np.zeros(4))
    assert (rows.reshape(-1) == np.arange(30_000.0)).all()


def test_an_array_in_a_scratch_file_leaves_no_name_behind(tmp_path: Path) -> None:
    found = mapped_array(tmp_path, 5000, np.int32)
    found[:] = np.arange(5000)
    assert mapped_file(found) is not None
    assert list(tmp_path.iterdir()) == []
    assert (found == np.arange(5000)).all()
    assert len(mapped_array(tmp_path, 0, np.int32)) == 0
