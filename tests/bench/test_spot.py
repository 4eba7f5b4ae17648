"""`siafu bench spot`: one table for each trace and rate."""

import json
from pathlib import Path

import pytest

from siafu.bench import spot
from siafu.planning import calibration
from siafu.planning.spot.trace import read_trace
from tests.cli.command import Siafu


@pytest.fixture
def siafu(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Siafu:
    monkeypatch.setattr(calibration, "calibration_path", lambda: tmp_path / "calibration.json")
    return Siafu(monkeypatch, capfd)


@pytest.mark.slow
def test_closed_epochs_lose_none_and_are_faster_than_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [4, 4, 3, 4, 4, 2, 5, 5] * 6}))
    setting = spot.SpotSetting("reddit-small", "gcn", 64, 2, 3, 20_000)
    risks = list(spot.measure(setting, [read_trace(path)], [0.5], 20))
    for found in json.loads(spot.as_json(risks)):
        ways = found["schemes"]
        for lost in ("cold", "warm", "eager"):
            assert ways[lost]["epochs_lost"] == 0
            assert ways[lost]["losses"] > 0
        order = [ways[each]["seconds"]["mean"] for each in ("warm", "cold", "checkpoints on fewer")]
        assert [found["on_demand"]["seconds"], *order] == sorted([found["on_demand"]["seconds"], *order])
        assert order[-1] <= ways["checkpoints"]["seconds"]["mean"]
        assert ways["warm"]["usd"]["mean"] < ways["checkpoints"]["usd"]["mean"]
        assert ways["warm"]["longest_pause"] < ways["cold"]["longest_pause"]
        assert found["redundancy"]["pays"]
    told = spot.report(risks, setting, 20)
    assert "as in seen**" in told
    assert told.count("| spot, warm copies (--redundancy 1) |") == 2


def test_what_cannot_be_is_refused_in_one_line(siafu: Siafu, tmp_path: Path) -> None:
    broken, few = tmp_path / "broken.csv", tmp_path / "few.csv"
    broken.write_text("0,add\n")
    few.write_text("0,add,x\n3600000,remove,x\n")
    assert "line 1" in siafu.refused("bench", "spot", broken)
    assert "loss rate" in siafu.refused("bench", "spot", rate=0)
    at_once = tmp_path / "at_once.csv"
    at_once.write_text("0,add,x\n0,add,y\n1000,remove,x\n1000,remove,y\n")
    assert "in the trace at_once a machine is lost 3.6e+03 times an hour: take one with at most 60" in (
        siafu.refused("bench", "spot", at_once)
    )
    assert "never has more than 1" in siafu.refused("bench", "spot", few)
