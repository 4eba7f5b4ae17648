"""Names of datasets, refused before anything heavy is imported."""

from pathlib import Path

import pytest

import siafu
from siafu.base.dataset_names import CATALOGUE_NAMES, cached_store, refuse_unknown_name
from siafu.base.errors import BadInput
from siafu.graph.datasets.catalogue import CATALOGUE


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("SIAFU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SIAFU_DATA", str(tmp_path / "data"))


def test_the_names_are_those_of_the_catalogue() -> None:
    assert sorted(CATALOGUE_NAMES) == sorted(CATALOGUE)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (None, "cora"),
        (None, "s3://bucket/nothing"),
        (None, "folder/nothing"),
        ("here/mine", "mine"),
        ("here/.mine.replaced", "mine"),
        ("data/mine", "mine"),
        ("data/mine.npz", "mine"),
        ("cache/datasets/mine", "mine"),
    ],
)
def test_a_name_that_may_be_one_is_left_to_load(tmp_path: Path, made: str | None, name: str) -> None:
    if made is not None:
        (tmp_path / made).mkdir(parents=True)
    refuse_unknown_name(name)


def test_other_names_are_refused_as_load_refuses_them(tmp_path: Path) -> None:
    (tmp_path / "data" / "proteins.npz").touch()
    cached_store("proteome").mkdir(parents=True)
    for name in ("protein", "amzon", "nothing-like-it"):
        with pytest.raises(BadInput) as early:
            refuse_unknown_name(name)
        if name != "protein":  # a directory that is no store is not among the names that load knows
            with pytest.raises(BadInput) as late:
                siafu.load(name)
            assert str(early.value) == str(late.value)
    with pytest.raises(BadInput, match="did you mean proteins or proteome"):
        refuse_unknown_name("protein")
