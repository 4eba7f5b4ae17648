"""How much of the processor's caches a machine counts on."""

from pathlib import Path

import pytest

from siafu.base.hardware import caches

MB = 1 << 20


@pytest.mark.parametrize(
    ("shared", "cores", "usable"),
    [(480 * MB, 2, 32 * MB), (32 * MB, 2, 32 * MB), (16 * MB, 8, 16 * MB), (480 * MB, 64, 480 * MB)],
)
def test_a_machine_of_few_cores_does_not_count_on_the_whole_cache_of_a_large_processor(
    shared: int, cores: int, usable: int
) -> None:
    assert caches.usable_bytes(shared, cores) == usable


@pytest.mark.parametrize(
    ("text", "size"), [("32768K\n", 32 * MB), ("2M", 2 * MB), ("512", 512), ("", None), ("much\n", None)]
)
def test_sizes_are_read_as_the_system_writes_them(tmp_path: Path, text: str, size: int | None) -> None:
    file = tmp_path / "size"
    file.write_text(text)
    assert caches._told(file) == size
    assert caches._told(tmp_path / "none") is None


def test_this_machines_caches_are_of_a_plausible_size() -> None:
    assert 1 << 17 <= caches.cache_bytes(2) <= caches.cache_bytes(3) <= 1 << 31
