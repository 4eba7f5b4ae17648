"""Disks: those that come with machines, and volumes by size and throughput."""

import json
from pathlib import Path

import pytest

from siafu.base.errors import BadInput
from siafu.cost.disks import LOCAL
from siafu.cost.prices import price_book

BOOK = price_book()


def test_a_machines_own_disk_is_taken_and_costs_nothing_more() -> None:
    disk = BOOK.disk(BOOK.instance("i4i.xlarge"))
    assert disk is not None
    assert (disk.name, disk.bytes) == (LOCAL, 937 * 10**9)
    assert disk.usd_per_hour(10**12) == 0.0


def test_a_machine_without_a_disk_is_given_a_volume_by_its_size() -> None:
    disk = BOOK.disk(BOOK.instance("c7g.2xlarge"))
    assert disk is not None
    assert (disk.name, disk.read_bytes_s) == ("gp3", 125e6)
    assert disk.usd_per_hour(100 * 10**9) == pytest.approx(100 * 0.08 / 730)


def test_a_faster_link_is_used_and_paid_for(tmp_path: Path) -> None:
    mine = {"format": "siafu prices", "version": 1, "instances": {"c7g.2xlarge": {"volume_mb_s": 300}}}
    (tmp_path / "mine.json").write_text(json.dumps(mine))
    book = price_book(tmp_path / "mine.json")
    disk = book.disk(book.instance("c7g.2xlarge"))
    assert disk is not None
    assert disk.write_bytes_s == 300e6
    assert disk.usd_per_hour(0) == pytest.approx(175 * 0.04 / 730)


def test_a_misspelt_field_of_a_volume_is_refused(tmp_path: Path) -> None:
    mine = {"format": "siafu prices", "version": 1, "volumes": {"gp3": {"usd_per_gb": 0.1}}}
    (tmp_path / "mine.json").write_text(json.dumps(mine))
    with pytest.raises(BadInput, match="did you mean usd_per_gb_month"):
        price_book(tmp_path / "mine.json")
