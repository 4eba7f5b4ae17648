"""What the advisor found stays beside the graph, for machines of the same kind."""

import json
from pathlib import Path

import pytest

from siafu.kernels.advice import findings
from siafu.kernels.advice.findings import Finding, Findings, machine_name

FOUND = {"a gather": Finding(8, {1: 2.0, 8: 1.5})}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIAFU_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


def test_findings_are_kept_in_the_store(store: Path) -> None:
    kept = Findings.beside(store)
    kept.found |= FOUND
    assert kept.keep() == store / "advice" / f"{machine_name()}.json"
    assert Findings.beside(store).found == FOUND


def test_findings_about_a_store_that_cannot_be_written_are_kept_in_the_cache(
    store: Path, tmp_path: Path
) -> None:
    (store / "advice").write_text("in the way")
    kept = Findings.beside(store)
    kept.found |= FOUND
    place = kept.keep()
    assert place is not None and place.is_relative_to(tmp_path / "cache")
    assert Findings.beside(store).found == FOUND


def test_another_kind_of_machine_knows_nothing_of_them(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Findings.beside(store)
    kept.found |= FOUND
    place = kept.keep()
    assert place is not None
    monkeypatch.setattr(findings, "_machine", lambda: {"processor": "another"})
    monkeypatch.setattr(findings, "machine_name", lambda: place.stem)
    assert Findings.beside(store).found == {}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": "siafu findings"}', '{"found": 3}'])
def test_a_damaged_file_is_as_good_as_none(store: Path, text: str) -> None:
    (store / "advice").mkdir()
    (store / "advice" / f"{machine_name()}.json").write_text(text)
    assert Findings.beside(store).found == {}


def test_a_way_that_is_no_number_is_as_good_as_none(store: Path) -> None:
    kept = Findings.beside(store)
    kept.found |= FOUND
    place = kept.keep()
    assert place is not None
    said = json.loads(place.read_text())
    said["found"]["a gather"]["way"] = "fast"
    place.write_text(json.dumps(said))
    assert Findings.beside(store).found == {}
