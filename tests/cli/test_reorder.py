"""`siafu reorder`: a layout in a store, or the reason why there is none."""

import shutil
from pathlib import Path

import pytest

from siafu.graph import read_store
from tests.cli.command import Siafu


@pytest.fixture
def fresh(store: Path, tmp_path: Path) -> Path:
    """A store of one's own."""
    return Path(shutil.copytree(store, tmp_path / "toy.store"))


def test_a_named_order_goes_into_the_store(siafu: Siafu, fresh: Path) -> None:
    ended = siafu("reorder", fresh, order="rcm")
    assert (ended.code, ended.out.split()) == (0, [str(fresh)])
    layout = read_store(fresh).layout
    assert layout is not None and layout.renumbered is not None and layout.renumbered.method == "rcm"


def test_a_copy_leaves_the_store_as_it_was(siafu: Siafu, fresh: Path, tmp_path: Path) -> None:
    assert siafu("reorder", fresh, "-o", tmp_path / "copy", order="degree").code == 0
    assert read_store(fresh).layout is None
    assert read_store(tmp_path / "copy").layout is not None


def test_auto_writes_nothing_where_nothing_is_gained_and_says_why(siafu: Siafu, fresh: Path) -> None:
    ended = siafu("reorder", fresh)
    assert ended.code == 0
    assert "no other order: all rows of a gather fit into a core's cache" in ended.err
    assert not (fresh / "layout").exists()


def test_a_layout_that_is_there_is_replaced_only_if_asked(siafu: Siafu, fresh: Path) -> None:
    siafu("reorder", fresh, order="rcm")
    ended = siafu("reorder", fresh, order="degree")
    assert ended.code == 2
    assert "has a layout already" in ended.err
    assert siafu("reorder", fresh, "--overwrite", order="degree").code == 0
    assert read_store(fresh).layout.renumbered.method == "degree"


@pytest.mark.slow
def test_predictions_are_by_the_users_ids(siafu: Siafu, fresh: Path, tmp_path: Path) -> None:
    for name in ("before", "after"):
        assert siafu("train", fresh, "--quiet", model="gcn", epochs=5, out=tmp_path / name).code == 0
        siafu("reorder", fresh, order="rabbit")
    before, after = (siafu("predict", tmp_path / name).out for name in ("before", "after"))
    assert [line.split(",")[0] for line in before.splitlines()] == [
        line.split(",")[0] for line in after.splitlines()
    ]
    same = sum(a == b for a, b in zip(before.splitlines(), after.splitlines(), strict=True))
    assert same > 0.98 * len(before.splitlines())
