"""Run directories: never overwritten by accident, never resumed as something else."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from siafu.base.errors import BadInput
from siafu.report.files import run_lock
from siafu.report.files.run_directory import RunDirectory

CONFIG = {"model": {"name": "gcn"}, "training": {"epochs": 5, "lr": 0.1}}


def start(path: Path, *, finish: bool = False) -> None:
    run = RunDirectory.start(path, CONFIG)
    if finish:
        run.write_summary({"epochs": 5})
    run.close()


def test_a_finished_run_is_not_overwritten(tmp_path: Path) -> None:
    start(tmp_path / "run", finish=True)
    with pytest.raises(BadInput, match=r"finished run.*--overwrite"):
        RunDirectory.start(tmp_path / "run", CONFIG)


def test_an_unfinished_run_is_not_overwritten(tmp_path: Path) -> None:
    start(tmp_path / "run")
    with pytest.raises(BadInput, match="--resume"):
        RunDirectory.start(tmp_path / "run", CONFIG)


def test_overwriting_leaves_nothing_of_the_old_run(tmp_path: Path) -> None:
    start(tmp_path / "run", finish=True)
    (tmp_path / "run" / "checkpoint.safetensors").write_bytes(b"old")
    run = RunDirectory.start(tmp_path / "run", CONFIG, overwrite=True)
    run.close()
    assert sorted(entry.name for entry in (tmp_path / "run").iterdir()) == ["config.json", "metrics.jsonl"]
    assert not run.finished


def test_a_directory_of_other_files_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(BadInput, match=r"thesis.tex"):
        RunDirectory.start(tmp_path, CONFIG, overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


STRANGERS = [
    "logs/mine.txt",
    "model.safetensors",
    "trace.json",
    "metrics.jsonl",
    "summary.json",
    "stop",
    ".x.partial",
]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", STRANGERS)
def test_files_with_names_like_ours_are_never_touched(tmp_path: Path, name: str, overwrite: bool) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("years of work")
    with pytest.raises(BadInput, match="holds other files"):
        RunDirectory.start(tmp_path, CONFIG, overwrite=overwrite)
    assert (tmp_path / name).read_text() == "years of work"
    assert len(list(tmp_path.rglob("*"))) == 1 + name.count("/")


@pytest.mark.parametrize(
    "config",
    [
        "{",
        "[]",
        '{"model_type": "bert"}',
        '{"format": "siafu run"}',
        '{"format": "siafu run", "version": 99}',
    ],
)
def test_a_config_of_somebody_else_is_never_overwritten(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_text("years of work")
    with pytest.raises(BadInput, match="is not a run of this siafu"):
        RunDirectory.start(tmp_path, CONFIG, overwrite=True)
    assert (tmp_path / "config.json").read_text() == config
    assert (tmp_path / "model.safetensors").read_text() == "years of work"


def test_files_of_others_in_a_run_outlast_its_being_overwritten(tmp_path: Path) -> None:
    start(tmp_path / "run", finish=True)
    (tmp_path / "run" / "logs").mkdir()
    for name in ("notes.txt", "logs/notes.log"):
        (tmp_path / "run" / name).write_text("years of work")
    RunDirectory.start(tmp_path / "run", CONFIG, overwrite=True).close()
    for name in ("notes.txt", "logs/notes.log"):
        assert (tmp_path / "run" / name).read_text() == "years of work"


def test_a_damaged_run_may_be_overwritten(tmp_path: Path) -> None:
    start(tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace("gcn", "gat"))
    RunDirectory.start(tmp_path / "run", CONFIG, overwrite=True).close()
    assert RunDirectory(tmp_path / "run").config()["model"] == {"name": "gcn"}


def test_an_overwrite_that_is_cut_short_leaves_what_is_known_as_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(tmp_path / "run", finish=True)

    def killed(self: RunDirectory, config: object, version: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunDirectory, "_write_config", killed)
    with pytest.raises(KeyboardInterrupt):
        RunDirectory.start(tmp_path / "run", CONFIG, overwrite=True)
    monkeypatch.undo()
    assert not RunDirectory(tmp_path / "run").finished
    RunDirectory.start(tmp_path / "run", CONFIG, overwrite=True).close()


def while_waiting_for_the_lock(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Let something happen between our look at the directory and our lock."""
    take = run_lock.take

    def late(file: int, directory: Path) -> None:
        monkeypatch.undo()
        happens()
        take(file, directory)

    monkeypatch.setattr(run_lock, "take", late)


def test_a_run_that_somebody_began_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def somebody_trains() -> None:
        start(tmp_path / "run", finish=True)

    while_waiting_for_the_lock(monkeypatch, somebody_trains)
    with pytest.raises(BadInput, match="finished run"):
        RunDirectory.start(tmp_path / "run", CONFIG)
    assert RunDirectory(tmp_path / "run").finished
    RunDirectory.resume(tmp_path / "run", CONFIG).close()  # nobody holds the lock


def test_a_run_that_somebody_replaced_meanwhile_is_not_resumed_as_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(tmp_path / "run")

    def somebody_overwrites() -> None:
        other = {**CONFIG, "model": {"name": "gat"}}
        RunDirectory.start(tmp_path / "run", other, overwrite=True).close()

    while_waiting_for_the_lock(monkeypatch, somebody_overwrites)
    with pytest.raises(BadInput, match=r"model.name was gat, now gcn"):
        RunDirectory.resume(tmp_path / "run", CONFIG)
    assert RunDirectory(tmp_path / "run").config()["model"] == {"name": "gat"}


def test_every_changed_bit_of_a_config_is_refused(tmp_path: Path) -> None:
    start(tmp_path)
    content = (tmp_path / "config.json").read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        (tmp_path / "config.json").write_bytes(damaged)
        with pytest.raises(BadInput):
            RunDirectory(tmp_path).config()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(BadInput, match="is a file"):
        RunDirectory.start(tmp_path / "run", CONFIG)


def test_what_a_killed_start_left_behind_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    (tmp_path / ".config.json.abc.partial").write_text("{")
    RunDirectory.start(tmp_path, CONFIG).close()


def test_nothing_to_resume_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no run to resume"):
        RunDirectory.resume(tmp_path, CONFIG)


def test_only_the_length_of_a_run_may_change(tmp_path: Path) -> None:
    start(tmp_path / "run")
    longer = {**CONFIG, "training": {"epochs": 50, "lr": 0.1}}
    RunDirectory.resume(tmp_path / "run", longer).close()
    assert RunDirectory(tmp_path / "run").config()["training"]["epochs"] == 50
    with pytest.raises(BadInput, match=r"training.lr was 0.1, now 0.2"):
        RunDirectory.resume(tmp_path / "run", {**CONFIG, "training": {"epochs": 5, "lr": 0.2}})


def test_a_run_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"format": "siafu run", "version": 99}))
    with pytest.raises(BadInput, match="version 99"):
        RunDirectory(tmp_path).config()


@pytest.mark.parametrize(
    ("text", "said"), [("{", "not readable JSON"), ("[]", "no JSON object"), ("{}", "does not describe")]
)
def test_a_damaged_config_is_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(BadInput, match=said):
        RunDirectory(tmp_path).config()


def test_a_directory_of_several_runs_says_to_name_one(tmp_path: Path) -> None:
    start(tmp_path / "seed-0")
    with pytest.raises(BadInput, match="seed-0"):
        RunDirectory(tmp_path).config()


def test_an_unfinished_run_has_no_summary(tmp_path: Path) -> None:
    start(tmp_path / "run")
    with pytest.raises(BadInput, match="has not finished"):
        RunDirectory(tmp_path / "run").summary()


def test_a_run_that_is_only_read_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="started or resumed"):
        _ = RunDirectory(tmp_path).metrics


def test_what_servers_of_a_replaced_run_said_is_gone(tmp_path: Path) -> None:
    first = RunDirectory.start(tmp_path / "run", CONFIG)
    first.logs.mkdir()
    (first.logs / "graph-0.log").write_text("started\n")
    first.close()
    second = RunDirectory.start(tmp_path / "run", CONFIG, overwrite=True)
    second.close()
    assert not second.logs.exists()
