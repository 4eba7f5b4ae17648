from pathlib import Path

import pytest

from siafu.base import jit


def test_a_change_in_any_file_of_the_kernels_makes_their_cache_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "base/jit.py",
        "base/hashing.py",
        "base/prefetch.py",
        "kernels/sums.py",
        "kernels/llvm/emit.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(jit, "_PACKAGE", tmp_path)
    stamps = {jit._stamp.__wrapped__()}
    for changed in ("base/hashing.py", "kernels/sums.py", "kernels/llvm/emit.py"):
        (tmp_path / changed).write_text("changed")
        stamps.add(jit._stamp.__wrapped__())
    assert len(stamps) == 4
