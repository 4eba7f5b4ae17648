"""Damaged settings and messages: refused in one line, or read as the bytes say."""

import json
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from siafu.base.errors import BadInput
from siafu.cost.prices import PriceBook, price_book
from siafu.planning.calibration import Calibration
from siafu.wire.codec import decode, encode
from siafu.wire.messages import TaskOutputPart
from siafu.wire.refusal import Refusal

from .damage import byte_damage, json_damage
from .guard import outcome, seeds

pytestmark = pytest.mark.slow

MACHINE = {
    "processor": "Intel Xeon Platinum 8375C",
    "vcpu": 4,
    "memory_gib": 16,
    "network_gbps": 1.5,
    "network_burst_gbps": 10,
    "on_demand_usd_h": 0.25,
    "spot_low_usd_h": 0.0625,
    "spot_high_usd_h": 0.125,
    "as_of": "2026-01",
}


def price_file() -> bytes:
    processor = next(iter(price_book().processors))
    prices = {
        "format": "siafu prices",
        "version": 1,
        "edition": "mine",
        "instances": {"mine.xlarge": MACHINE | {"processor": processor}},
        "lambdas": [
            {
                "region": "mine-1",
                "architecture": "arm64",
                "usd_per_gb_second": 0.00001,
                "usd_per_million_requests": 0.25,
                "as_of": "2026-01",
                "discounts": [[1e6, 0.000008]],
            }
        ],
    }
    return json.dumps(prices).encode()


@pytest.mark.parametrize("seed", seeds(33))
@pytest.mark.parametrize("kind", [byte_damage, json_damage])
def test_a_damaged_price_file(tmp_path: Path, kind: Any, seed: int) -> None:
    path = tmp_path / "prices.json"
    path.write_bytes(kind(seed)(price_file()))
    found = outcome(lambda: price_book(path), path.stat().st_size)
    if isinstance(found, PriceBook):
        assert_priced(found, json.loads(path.read_bytes()))


def assert_priced(book: PriceBook, told: dict[str, Any]) -> None:
    """Each of the file's machines and Lambdas costs what the file says."""
    for name, machine in told.get("instances", {}).items():
        for field, value in machine.items():
            found = getattr(book.instances[name], field)
            assert value == pytest.approx(found.name if field == "processor" else found)
    for entry in told.get("lambdas", []):
        prices = book.lambda_prices(entry.get("region", book.region), entry["architecture"])
        assert prices.usd_per_gb_second == pytest.approx(entry["usd_per_gb_second"])
        assert prices.usd_per_million_requests == pytest.approx(entry["usd_per_million_requests"])


@pytest.mark.parametrize("seed", seeds(33))
@pytest.mark.parametrize("kind", [byte_damage, json_damage])
def test_a_damaged_calibration(tmp_path: Path, kind: Any, seed: int) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(kind(seed)(files("siafu.planning").joinpath("data", "reference.json").read_bytes()))
    found = outcome(lambda: Calibration.read(path), path.stat().st_size)
    if isinstance(found, BadInput):
        return
    told = json.loads(path.read_bytes(), parse_int=float)
    again = json.loads(json.dumps(asdict(found), allow_nan=False), parse_int=float)
    assert again | {"format": "siafu calibration", "version": 2} == told


@pytest.mark.parametrize("seed", seeds(57))
@pytest.mark.parametrize("frame", [0, 1])
def test_a_damaged_message(frame: int, seed: int) -> None:
    rows = {"rows": np.arange(12, dtype=np.float32).reshape(4, 3)}
    frames = [bytes(part) for part in encode(TaskOutputPart(1, 2, rows))]
    frames[frame] = byte_damage(seed)(frames[frame])

    def read() -> Any:
        try:
            return decode(frames)
        except Refusal as refusal:
            raise BadInput(str(refusal)) from refusal

    found = outcome(read, sum(map(len, frames)))
    if not isinstance(found, BadInput):
        again = [bytes(part) for part in encode(found)]
        assert again[1:] == frames[1:]
        assert header(again[0]) == header(frames[0])


def header(frame: bytes) -> Any:
    return json.loads(frame[frame.index(b"{") :])
