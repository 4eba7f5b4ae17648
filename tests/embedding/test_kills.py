"""Runs of embeddings that were killed, or whose disk was full, go on as if they had not been."""

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import siafu
from siafu.base.errors import NoSpace
from siafu.embedding import embedding_session, embedding_trainer
from siafu.embedding.disk import disk_trainer
from siafu.embedding.embedding_run import EmbeddingRun
from siafu.tables import ScratchDirectory
from tests.embedding.doomed import ON_DISK, OPTIONS, POINTS, options_at
from tests.embedding.knowledge import families
from tests.tables.faulty_disk import FaultyDisk


@pytest.fixture
def saved_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_session, "_REST", 0)
    monkeypatch.setattr(embedding_trainer, "_LEG", 4)


def assert_same(found: EmbeddingRun, wanted: EmbeddingRun) -> None:
    assert np.array_equal(found.embeddings.entities, wanted.embeddings.entities)
    assert np.array_equal(found.embeddings.relations, wanted.embeddings.relations)
    losses = [[(each.epoch, each.train_loss) for each in run.history] for run in (found, wanted)]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_a_run_that_is_killed_anywhere_goes_on_bit_for_bit(tmp_path: Path) -> None:
    child = [sys.executable, "-m", "tests.embedding.doomed", str(tmp_path), *POINTS]
    ended = subprocess.run(child, check=True, capture_output=True, text=True)
    assert ended.stdout.splitlines() == [f"{point} -9" for point in POINTS], ended.stderr
    wanted = {
        on_disk: siafu.embed(families(), **OPTIONS | (ON_DISK if on_disk else {}))
        for on_disk in (False, True)
    }
    for point in POINTS:
        out = tmp_path / point
        assert (out / "checkpoint.safetensors").exists(), point
        again = siafu.embed(families(), out=out, resume=True, **options_at(point))
        assert_same(again, wanted[point.startswith("disk")])
        assert not list(out.glob(".*.partial"))


@pytest.mark.parametrize("more", [{}, ON_DISK])
def test_a_checkpoint_for_which_there_is_no_space_leaves_the_last(
    saved_often: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: dict[str, Any]
) -> None:
    import siafu.report.files.large_tensors as files

    usual, calls = files._blocks, 0

    def full(table: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 60:
            raise OSError(errno.ENOSPC, "No space left on device")
        return usual(table)

    monkeypatch.setattr(files, "_blocks", full)
    with pytest.raises(NoSpace, match=r"no space left on the disk of .*checkpoint.safetensors"):
        siafu.embed(families(), out=tmp_path / "run", **OPTIONS | more)
    monkeypatch.undo()
    again = siafu.embed(families(), out=tmp_path / "run", resume=True, **OPTIONS | more)
    assert_same(again, siafu.embed(families(), **OPTIONS | more))


@pytest.mark.parametrize(("fails_at", "kind"), [(0, "reserve"), (30, "write")])
def test_a_full_scratch_disk_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails_at: int, kind: str
) -> None:
    calls = FaultyDisk(kind=kind, error=errno.ENOSPC, fails_at=fails_at)
    monkeypatch.setattr(disk_trainer, "ScratchDirectory", lambda path: ScratchDirectory(path, calls))
    with pytest.raises(NoSpace, match="no space left for scratch files") as told:
        siafu.embed(families(), out=tmp_path / "run", **OPTIONS | ON_DISK)
    assert "\n" not in str(told.value)
    monkeypatch.undo()
    again = siafu.embed(families(), out=tmp_path / "run", resume=True, **OPTIONS | ON_DISK)
    assert_same(again, siafu.embed(families(), **OPTIONS | ON_DISK))
