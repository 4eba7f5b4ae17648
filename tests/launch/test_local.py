"""A cluster on this machine: what its end removes, and what it leaves alone."""

import tempfile
from pathlib import Path

import pytest

from siafu.launch import local
from siafu.launch import record as records
from siafu.launch.record import Record


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIAFU_STATE", str(tmp_path / "state"))


def ended(scratch: Path) -> None:
    record = Record("ants", "local", 1, scratch=str(scratch))
    records.write(record)
    local.down(record)
    assert records.find("ants") is None


def test_the_directory_that_ray_wrote_to_is_gone() -> None:
    scratch = Path(tempfile.mkdtemp(prefix="siafu-ray-", dir="/tmp"))
    (scratch / "session").mkdir()
    ended(scratch)
    assert not scratch.exists()


def test_a_record_that_names_another_directory_has_nothing_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    ended(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_what_others_put_beside_a_record_stays() -> None:
    records.write(Record("ants", "local", 1))
    directory = records.directory_of("ants")
    (directory / "notes.txt").write_text("years of work")
    (directory / "ray-0.log").write_text("said")
    records.forget("ants")
    assert [path.name for path in directory.iterdir()] == ["notes.txt"]
    assert records.find("ants") is None
