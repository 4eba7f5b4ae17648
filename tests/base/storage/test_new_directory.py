"""Directories of ours: whole or absent, whatever ends the process, and never in the place of somebody else's."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from siafu.base.errors import BadInput
from siafu.base.storage import new_directory
from siafu.base.storage.new_directory import DirectoryKind, NewDirectory, recover

THING = DirectoryKind(
    "thing", "thing.json", "siafu thing", 2, ("thing.json", "data", "more/data").__contains__
)

KILLED = """
import os, signal, sys
from pathlib import Path
from siafu.base.storage import new_directory
from tests.base.storage.test_new_directory import make

rename = Path.rename
def rename_and_die(self, target):
    rename(self, target)
    if str(target).endswith(".replaced"):
        os.kill(os.getpid(), signal.SIGKILL)

Path.rename = rename_and_die
new_directory.exchange = lambda one, other: False
make(Path(sys.argv[1]), "new", overwrite=True)
"""


def make(path: Path, text: str, *, overwrite: bool = False, kind: DirectoryKind = THING) -> None:
    new = NewDirectory(path, kind=kind, overwrite=overwrite)
    try:
        new.open("data").write(text.encode())
        new.open("thing.json").write(json.dumps({"format": "siafu thing", "version": 1}).encode())
        new.publish()
    finally:
        new.discard()


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


@pytest.fixture
def in_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that cannot exchange two names."""
    monkeypatch.setattr(new_directory, "exchange", lambda one, other: False)


@pytest.fixture(params=["in one step", "in two steps"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in two steps":
        monkeypatch.setattr(new_directory, "exchange", lambda one, other: False)


def test_a_directory_of_the_same_kind_is_replaced(tmp_path: Path, either_way: None) -> None:
    make(tmp_path / "a", "old")
    make(tmp_path / "a", "new", overwrite=True)
    assert (tmp_path / "a" / "data").read_text() == "new"
    assert names(tmp_path) == ["a"]


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path: Path, either_way: None) -> None:
    make(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    make(tmp_path / "link", "new", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "data").read_text() == "new"


@pytest.mark.parametrize(
    "manifest",
    [
        "{}",
        "not JSON",
        '{"name": "of my own"}',
        '{"format": "siafu graph", "version": 1}',
        '{"format": "siafu thing"}',
        '{"format": "siafu thing", "version": 3}',
        '{"format": "siafu thing", "version": true}',
        "[" * 100_000,
    ],
)
def test_a_manifest_of_that_name_is_not_enough_to_be_overwritten(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thing.json").write_text(manifest)
    with pytest.raises(BadInput, match="mine is not a thing, so it is not overwritten"):
        make(tmp_path / "mine", "new", overwrite=True)
    assert (tmp_path / "mine" / "thing.json").read_text() == manifest
    assert names(tmp_path) == ["mine"]


@pytest.mark.parametrize("stranger", ["thesis.txt", "more/thesis.txt", ".hidden"])
def test_a_directory_that_holds_files_of_others_is_not_overwritten(tmp_path: Path, stranger: str) -> None:
    make(tmp_path / "a", "old")
    (tmp_path / "a" / "more").mkdir()
    (tmp_path / "a" / stranger).write_text("years of work")
    with pytest.raises(BadInput, match=f"a holds {stranger}, which is not of the thing"):
        make(tmp_path / "a", "new", overwrite=True)
    assert (tmp_path / "a" / stranger).read_text() == "years of work"
    assert (tmp_path / "a" / "data").read_text() == "old"


def test_a_link_in_a_directory_of_ours_counts_as_a_file_of_others(tmp_path: Path) -> None:
    make(tmp_path / "a", "old")
    (tmp_path / "else").mkdir()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "else")
    with pytest.raises(BadInput, match="holds link"):
        make(tmp_path / "a", "new", overwrite=True)


def test_a_file_that_came_while_the_new_one_was_written_is_kept(tmp_path: Path) -> None:
    make(tmp_path / "a", "old")
    new = NewDirectory(tmp_path / "a", kind=THING, overwrite=True)
    new.open("data")
    (tmp_path / "a" / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match=r"holds thesis\.txt"):
        new.publish()
    new.discard()
    assert (tmp_path / "a" / "thesis.txt").read_text() == "years of work"


def test_a_file_that_came_at_the_last_moment_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "a", "old")
    exchange = new_directory.exchange

    def late(one: Path, other: Path) -> bool:
        (other / "thesis.txt").write_text("years of work")
        return exchange(one, other)

    monkeypatch.setattr(new_directory, "exchange", late)
    make(tmp_path / "a", "new", overwrite=True)
    assert [path.read_text() for path in tmp_path.rglob("thesis.txt")] == ["years of work"]


def test_names_are_exchanged_in_one_step_where_the_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    if not new_directory.exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot")
    make(tmp_path / "c", "old")
    monkeypatch.setattr(Path, "rename", lambda self, target: pytest.fail("two names in two steps"))
    make(tmp_path / "c", "new", overwrite=True)
    assert (tmp_path / "c" / "data").read_text() == "new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError(5, "Input/output error")])
@pytest.mark.parametrize("at", [1, 2])
def test_an_interrupt_at_either_rename_leaves_the_old_or_the_new(
    tmp_path: Path,
    in_two_steps: None,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
    error: BaseException | type[BaseException],
) -> None:
    make(tmp_path / "a", "old")
    rename, calls = Path.rename, []

    def interrupted(self: Path, target: Path) -> Path:
        done = rename(self, target)
        calls.append(target)
        if len(calls) == at:
            raise error
        return done

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises((KeyboardInterrupt, MemoryError, BadInput)):
        make(tmp_path / "a", "new", overwrite=True)
    assert (tmp_path / "a" / "data").read_text() == ("old" if at == 1 else "new")
    assert names(tmp_path) == ["a"]


def test_an_interrupt_after_the_exchange_leaves_the_new_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "a", "old")
    exchange = new_directory.exchange

    def interrupted(one: Path, other: Path) -> bool:
        if not exchange(one, other):
            pytest.skip("this file system cannot")
        raise KeyboardInterrupt

    monkeypatch.setattr(new_directory, "exchange", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "a", "new", overwrite=True)
    assert (tmp_path / "a" / "data").read_text() == "new"
    assert names(tmp_path) == ["a"]


def test_what_a_killed_overwrite_moved_aside_is_put_back(tmp_path: Path) -> None:
    make(tmp_path / "a", "old")
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "a")], cwd=Path.cwd())
    assert ended.returncode == -signal.SIGKILL
    assert not (tmp_path / "a").exists()
    recover(tmp_path / "a", THING)
    assert (tmp_path / "a" / "data").read_text() == "old"


def test_an_overwrite_goes_on_where_a_killed_one_stopped(tmp_path: Path, in_two_steps: None) -> None:
    make(tmp_path / "a", "old")
    (tmp_path / "a").rename(tmp_path / ".a.replaced")
    with pytest.raises(BadInput, match="exists already"):
        make(tmp_path / "a", "new")
    make(tmp_path / "a", "new", overwrite=True)
    assert (tmp_path / "a" / "data").read_text() == "new"
    assert names(tmp_path) == ["a"]


def test_what_a_killed_overwrite_did_not_clear_away_is_cleared(tmp_path: Path, in_two_steps: None) -> None:
    make(tmp_path / "a", "old")
    make(tmp_path / ".a.replaced", "older")
    make(tmp_path / "a", "new", overwrite=True)
    assert (tmp_path / "a" / "data").read_text() == "new"
    assert names(tmp_path) == ["a"]


def test_nothing_of_others_is_put_back_or_cleared_away(tmp_path: Path, in_two_steps: None) -> None:
    (tmp_path / ".a.replaced").mkdir()
    (tmp_path / ".a.replaced" / "thesis.txt").write_text("years of work")
    recover(tmp_path / "a", THING)
    assert not (tmp_path / "a").exists()
    make(tmp_path / "a", "old")
    with pytest.raises(BadInput, match=r"\.a\.replaced is in the way"):
        make(tmp_path / "a", "new", overwrite=True)
    assert (tmp_path / ".a.replaced" / "thesis.txt").read_text() == "years of work"


def test_a_reader_that_puts_the_old_back_in_between_does_not_lose_the_new(
    tmp_path: Path, in_two_steps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "a", "old")
    rename, readers = Path.rename, [1]

    def with_a_reader(self: Path, target: Path) -> Path:
        done = rename(self, target)
        if str(target).endswith(".replaced") and readers:
            readers.pop()
            recover(tmp_path / "a", THING)
        return done

    monkeypatch.setattr(Path, "rename", with_a_reader)
    make(tmp_path / "a", "new", overwrite=True)
    assert (tmp_path / "a" / "data").read_text() == "new"
    assert names(tmp_path) == ["a"]


def test_a_file_that_the_kind_does_not_have_is_a_mistake_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no file"):
        NewDirectory(tmp_path / "a", kind=THING).open("other")


def test_an_error_of_the_exchange_itself_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "a", "old")

    def fail(one: Path, other: Path) -> bool:
        raise OSError(5, os.strerror(5), str(other))

    monkeypatch.setattr(new_directory, "exchange", fail)
    with pytest.raises(BadInput, match="Input/output error"):
        make(tmp_path / "a", "new", overwrite=True)
    assert (tmp_path / "a" / "data").read_text() == "old"
    assert names(tmp_path) == ["a"]
