"""Who trains in a directory."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from siafu.base.errors import BadInput
from siafu.report.files import run_lock
from siafu.report.files.metrics import MetricsFile


def test_a_run_is_held_while_its_metrics_are_open_to_write(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert not run_lock.is_held(path)
    metrics = MetricsFile(path)
    assert run_lock.is_held(path)
    metrics.close()
    assert not run_lock.is_held(path)


def test_a_second_training_is_refused(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    with pytest.raises(BadInput, match="another process is training"):
        MetricsFile(tmp_path / "metrics.jsonl")
    metrics.close()


def test_a_training_starts_though_somebody_is_just_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.touch()
    looking = os.open(path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    # The one who looks goes away while the training waits to try again.
    monkeypatch.setattr(run_lock.time, "sleep", lambda seconds: fcntl.flock(looking, fcntl.LOCK_UN))
    MetricsFile(path).close()
    os.close(looking)


def test_many_may_look_at_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.touch()
    found: list[bool] = []

    def look() -> None:
        found.extend(run_lock.is_held(path) for _ in range(200))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [False] * 800


def test_a_pipe_in_its_place_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert not run_lock.is_held(tmp_path / "metrics.jsonl")
