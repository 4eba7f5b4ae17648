"""Trainings with tables on disk whose disk, or whose process, fails: one line, nothing left behind, and they go on to the same bits."""

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import siafu
from siafu.base.errors import NoSpace
from siafu.base.storage.files import disk_errors
from siafu.errors import BadInput, SiafuError
from siafu.report.files.checkpoint import save_tensors
from siafu.report.files.metrics import EpochMetrics
from siafu.report.progress import Progress, ProgressLine
from siafu.server.memory import disk_share, listing
from siafu.training.placement import choose_partition
from siafu.training.run import Run
from siafu.training.trainer import Trainer
from tests.tables.faulty_disk import FaultyDisk
from tests.training_runs import options, tangled_graph

GRAPH = tangled_graph(4000)


def model() -> nn.Module:
    torch.manual_seed(0)
    return siafu.nn.GraphSAGE(GRAPH.num_features, 48, 3, GRAPH.num_classes, 0.5)


def settle(patch: Any) -> None:
    """Let every process take itself for one that holds nothing yet, and spare memory by its disk alone."""
    patch.setattr("siafu.server.memory.measures._measures", lambda *_, **__: iter(()))
    patch.setattr(listing, "own_bytes", lambda: 0)
    patch.setattr("siafu.server.memory.server_hardware.thread_count", lambda: 0)
    for module in (disk_share, listing):
        patch.setattr(module, "WRITTEN_BEHIND", 1 << 14)
    patch.setattr(listing, "IDLE_BYTES", 1 << 14)


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A directory for tables; no file and no thread may be left of them."""
    found = tmp_path / "scratch"
    found.mkdir()
    before = set(threading.enumerate())
    yield found
    gc.collect()
    assert list(found.iterdir()) == []
    assert open_files(found) == []
    left = set(threading.enumerate()) - before
    assert not [each.name for each in left if each.name in ("siafu-write", "siafu-read")]


def open_files(directory: Path) -> list[str]:
    """Files there that this process still holds, with a name or without."""
    held = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith(str(directory)):
            held.append(target)
    return held


def budget() -> str:
    """Bytes with which the training does, but only with most of its tables on disk."""
    trainer = Trainer(GRAPH, model(), options(epochs=4), choose_partition(GRAPH, 1, "auto"), memory="1MB")
    return str(trainer.fit.choice.listed.peak * 84 // 100)


def train(scratch: Path, out: Path | None = None, made: nn.Module | None = None, **given: Any) -> Run:
    kept = {} if out is None else {"out": out, "checkpoint_every": 0}
    return siafu.train(GRAPH, made or model(), epochs=4, memory=budget(), scratch=scratch, **kept, **given)


def bits(run: Run) -> list[Any]:
    weights = {name: tensor.tolist() for name, tensor in run.model.state_dict().items()}
    return [[(each.train_loss, each.val_loss) for each in run.history], weights]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "error", "line"),
    [
        ("write", errno.ENOSPC, "no space left for scratch files in .*: free some"),
        ("write", errno.EIO, r"cannot write a scratch file in .* \(Input/output error\): check its disk"),
        ("read", errno.EIO, r"cannot read a scratch file in .* \(Input/output error\): check its disk"),
        ("reserve", errno.ENOSPC, "no space left for scratch files in .*: free some"),
    ],
)
def test_a_disk_that_fails_is_one_line_and_the_run_goes_on_to_the_same_bits(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, kind: str, error: int, line: str
) -> None:
    whole = FaultyDisk()
    with monkeypatch.context() as patch:
        patch.setattr("siafu.tables.scratch_directory.SystemCalls", lambda: whole)
        straight = bits(train(scratch))
    assert whole.calls[kind] > 2
    faulty = FaultyDisk(kind=kind, error=error, fails_at=whole.calls[kind] * 2 // 3)
    with monkeypatch.context() as patch:
        patch.setattr("siafu.tables.scratch_directory.SystemCalls", lambda: faulty)
        with pytest.raises(SiafuError, match=line) as caught:
            train(scratch, tmp_path / "run")
    assert "\n" not in str(caught.value)
    if (tmp_path / "run" / "checkpoint.safetensors").exists():
        assert str(caught.value).endswith("train again with resume (--resume)")
    assert caught.value.exit_code == 1
    del caught
    assert bits(train(scratch, tmp_path / "run", resume=True)) == straight


def test_a_disk_that_is_full_from_the_start_is_refused_before_a_run_is_there(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shutil._ntuple_diskusage(10**9, 10**9 - 1000, 1000)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(BadInput, match=r"has 0\.00 GB free, and scratch files need"):
        train(scratch, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_two_runs_in_one_scratch_directory_do_not_meet(scratch: Path) -> None:
    alone = bits(train(scratch))
    models = [model(), model()]
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(train, scratch, made=each) for each in models]
    assert [bits(each.result()) for each in runs] == [alone, alone]


class Killer(Progress):
    """Kills the process in the middle of the third epoch."""

    def epoch_ended(self, metrics: EpochMetrics) -> None:
        if metrics.epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_no_file_and_goes_on_to_the_same_bits(
    tmp_path: Path, scratch: Path
) -> None:
    root = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join([str(root), *sys.path])
    killed = subprocess.run(
        [sys.executable, "-m", "tests.training.test_disk_faults", str(scratch), str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=root,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert list(scratch.iterdir()) == []
    resumed = train(scratch, tmp_path / "run", resume=True)
    assert bits(resumed) == bits(train(scratch))
    assert resumed.summary()["bytes_written"] > 0


def test_progress_shows_the_traffic_of_the_disk(scratch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine(4) as progress:
        run = train(scratch, progress=progress)
    told = capsys.readouterr().err
    assert "MB/s read, " in told
    assert "% hidden" in told
    summary = run.summary()
    assert summary["bytes_read"] >= sum(each.bytes_read or 0 for each in run.history) > 0
    assert summary["bytes_written"] >= sum(each.bytes_written or 0 for each in run.history) > 0
    busy = [each.disk_busy_seconds or 0.0 for each in run.history]
    assert summary["disk_busy_seconds"] >= sum(busy) > 0
    assert summary["disk_wait_seconds"] >= 0


if __name__ == "__main__":
    settle(pytest.MonkeyPatch())
    train(Path(sys.argv[1]), Path(sys.argv[2]), progress=Killer())


def test_a_checkpoint_that_may_not_grow_ends_with_code_1_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Path] = []

    def save_once(path: Path, *arguments: Any) -> None:
        if saved:
            with disk_errors(path):
                raise OSError(errno.EFBIG, "File too large")
        saved.append(path)
        save_tensors(path, *arguments)

    monkeypatch.setattr("siafu.training.train.save_tensors", save_once)
    with pytest.raises(NoSpace, match=r"larger than a file may be here.*ulimit -f.*\(--resume\)") as told:
        siafu.train(GRAPH, model(), epochs=3, out=tmp_path / "run", checkpoint_every=0)
    assert told.value.exit_code == 1
