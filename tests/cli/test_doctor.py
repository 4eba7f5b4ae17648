"""`siafu doctor`."""

import shutil
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from siafu.base.hardware import machine
from tests.cli.command import Siafu


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure for a moment only: the figure itself is not under test."""
    monkeypatch.setattr(machine, "_MEASURED_SECONDS", 0.0)
    monkeypatch.setattr(machine, "_MEASURED_BYTES", 1 << 24)


def test_the_machine_is_described(siafu: Siafu) -> None:
    found = siafu("doctor", json=True).json()
    assert found["cores"] >= 1
    assert found["threads"]["siafu"] >= 1
    assert 1e8 < found["read_bandwidth_bytes_per_second"] < 1e13
    assert found["versions"]["torch"].startswith("2.")
    assert "store" not in found


def test_people_get_a_line_for_each_matter(siafu: Siafu) -> None:
    ended = siafu("doctor")
    assert ended.code == 0
    for matter in ("system", "processor", "threads", "memory", "bandwidth", "versions", "cache", "extra"):
        assert any(line.startswith(matter) for line in ended.out.splitlines())


def test_a_missing_extra_says_how_to_get_it(siafu: Siafu, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr("siafu.cli.doctor.version", nothing)
    said = siafu("doctor").out
    assert "parquet: not installed, pip install 'siafu[parquet]' brings it (read and write Parquet)" in said
    assert "extras are optional; in a clone of the repository: pip install -e '.[EXTRA]'" in said


def test_every_extra_of_the_project_is_listed(siafu: Siafu) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert siafu("doctor", json=True).json()["extras"].keys() == project["optional-dependencies"].keys()


def test_an_extra_is_there_when_all_its_packages_are(siafu: Siafu, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = ["numpy>=1.26", 'numpy>=1.26; extra == "whole"', 'numpy>=1.26; extra == "half"']
    monkeypatch.setattr(
        "siafu.cli.doctor.requires", lambda package: [*declared, 'no-such-package>=1; extra == "half"']
    )
    assert siafu("doctor", json=True).json()["extras"] == {"half": False, "whole": True}


def test_a_whole_store_is_verified(siafu: Siafu, store: Path) -> None:
    assert siafu("doctor", store, json=True).json()["store"]["vertices"] == 210
    assert "is whole" in siafu("doctor", store).out


def test_a_corrupted_store_is_one_clear_line(siafu: Siafu, store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    data = bytearray((copy / "x.npy").read_bytes())
    data[-1] ^= 1
    (copy / "x.npy").write_bytes(data)
    assert "corrupted" in siafu.refused("doctor", copy)


def test_a_cache_that_cannot_be_written_is_told(siafu: Siafu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siafu.cli.doctor.os.access", lambda path, mode: False)
    assert "set SIAFU_CACHE" in siafu("doctor").out


def test_a_file_is_to_be_imported_first(siafu: Siafu, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n")
    assert "edges.csv is a file, not a store: turn it into one with 'siafu import" in siafu.refused(
        "doctor", "edges.csv"
    )
