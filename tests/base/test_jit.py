import os
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


def _installation(at: Path, kernel: str) -> Path:
    for name in ("base/jit.py", "base/hashing.py", "base/prefetch.py", "kernels/sums.py"):
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(kernel)
    return at


def _path(installation: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.setattr(jit, "_PACKAGE", installation)
    for cached in ("_stamp", "_cache_path", "_kernels_of_this_code"):
        function = getattr(jit, cached)
        monkeypatch.setattr(jit, cached, getattr(function, "__wrapped__", function))
    return jit._cache_path(str(installation / "kernels" / "sums.py"), cache)


def test_installations_of_the_same_code_share_compiled_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, other = (
        _path(_installation(tmp_path / name, code), tmp_path / "cache", monkeypatch)
        for name, code in (("a", "code"), ("b", "code"), ("c", "other code"))
    )
    assert first is not None and first == second != other


def test_kernels_of_other_code_go_when_nobody_used_them_for_a_month(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, recent = tmp_path / "cache" / "kernels" / "code-old", tmp_path / "cache" / "kernels" / "code-recent"
    for directory in (old, recent):
        directory.mkdir(parents=True)
    os.utime(old, (0, 0))
    assert _path(_installation(tmp_path / "a", "code"), tmp_path / "cache", monkeypatch)
    assert not old.exists() and recent.exists()
