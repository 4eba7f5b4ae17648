"""`siafu plan` and `siafu calibrate`, as people call them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from siafu.planning import calibration
from tests.cli.command import Siafu
from tests.planning.plans import reference

SIZES = {"vertices": 200_000, "edges": 4_000_000, "features": 64, "classes": 8}
FEW = ("--instance", "c5.2xlarge", "--instance", "c7g.2xlarge", "--most-servers", "2")


@pytest.fixture(autouse=True)
def never_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Plans of tests are made with the reference, whatever this machine's own calibration says."""
    monkeypatch.setattr(calibration, "calibration_path", lambda: tmp_path / "calibration.json")


@pytest.mark.slow
def test_a_plan_shows_a_table_a_reason_and_a_command(siafu: Siafu) -> None:
    ended = siafu("plan", *FEW, **SIZES, epochs=20)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[1].split()[:3] == ["machines", "Lambdas", "mode"]
    assert any(line.startswith("→") and "2xlarge" in line for line in lines)
    assert any(line.startswith("choice: ") and "worth most" in line for line in lines)
    assert any(line.startswith("Lambdas do not pay here") for line in lines)
    assert any(line.strip().startswith("siafu train STORE --model gcn") for line in lines)
    assert "run 'siafu calibrate'" in ended.out
    assert "figures of a reference machine" in ended.out
    assert "value: 1 / (seconds × dollars)" in ended.out


def test_a_plan_as_json_has_every_offer(siafu: Siafu) -> None:
    found = siafu("plan", *FEW, **SIZES, epochs=20, spot=True, json=True).json()
    assert found["chosen"] == found["offers"][0]
    assert found["chosen"]["spot"] is True
    assert found["chosen"]["value"] == pytest.approx(
        1 / (found["chosen"]["seconds"] * found["chosen"]["usd"])
    )
    assert found["chosen"]["usd"] == pytest.approx(
        found["chosen"]["usd_servers"] + found["chosen"]["usd_lambdas"] + found["chosen"]["usd_disks"]
    )
    assert 0 < found["chosen"]["server_bytes"] <= found["chosen"]["memory_bytes"]
    assert (found["chosen"]["scratch_bytes"], found["chosen"]["disk"]) == (0, None)
    assert found["chosen"]["layout"] == "vertices"
    assert found["left_out"] == []
    assert all(0 <= number < len(found["offers"]) for number in found["front"])
    assert found["calibration"]["own"] is False
    assert found["this_machine"] is None
    assert found["simulations"] <= found["setups"] + 4
    assert {"reason", "about_lambdas", "commands", "naive", "lambdas", "prices"} <= set(found)


@pytest.mark.slow
def test_a_store_is_planned_for_and_drawn(siafu: Siafu, store: Path, tmp_path: Path) -> None:
    ended = siafu("plan", store, *FEW, "-o", tmp_path / "plan.svg", epochs=10)
    assert ended.code == 0
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")
    assert f"siafu train {store}" in ended.out


def test_prices_of_ones_own_change_the_plan(siafu: Siafu, tmp_path: Path) -> None:
    prices = {"format": "siafu prices", "version": 1, "instances": {"c5.2xlarge": {"on_demand_usd_h": 0.001}}}
    (tmp_path / "mine.json").write_text(json.dumps(prices))
    found = siafu("plan", *FEW, **SIZES, epochs=20, prices=tmp_path / "mine.json", json=True).json()
    assert found["chosen"]["instance"] == "c5.2xlarge"
    assert "mine.json" in found["prices"]


@pytest.mark.parametrize(
    ("words", "options", "says"),
    [
        ((), {}, "nothing to plan for"),
        ((), {"vertices": 10}, "missing: --edges"),
        (("cora",), {"vertices": 10}, "has its own sizes"),
        ((), {**SIZES, "instance": "c5.9xlarge"}, "nearest known"),
        (("no-such-graph",), {"deadline": "soon"}, "is not a time"),
        ((), {**SIZES, "deadline": "1s", "instance": "c5.2xlarge"}, "the fastest takes"),
        ((), {**SIZES, "budget": 0.000001, "instance": "c5.2xlarge"}, "the cheapest costs"),
        ((), {**SIZES, "edges": 10**13, "most_servers": 2}, "fits on no machine"),
        ((), {**SIZES, "model": "gpt"}, "unknown model"),
        ((), {**SIZES, "output": "plan.png"}, ".svg"),
        ((), {**SIZES, "prices": "none.json"}, "cannot read none.json"),
        ((), {**SIZES, "locality": 2}, "shares from 0 to 1"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_planned_is_refused_in_one_line(
    siafu: Siafu, words: tuple[str, ...], options: dict[str, object], says: str
) -> None:
    assert says in siafu.refused("plan", *words, **options)


def test_on_a_machine_that_was_measured_a_plan_says_what_it_would_take_there(siafu: Siafu) -> None:
    reference().save(calibration.calibration_path())
    ended = siafu("plan", *FEW, **SIZES, epochs=20)
    assert "On this machine, with nothing rented: " in ended.out
    assert "run 'siafu calibrate'" not in ended.out


def test_siafu_plan_is_a_function() -> None:
    import siafu
    from siafu.virtual.graph_shape import GraphShape

    shape = GraphShape(**SIZES)
    found = siafu.plan(shape, "gcn", epochs=20, deadline="1h", instances=["c5.2xlarge"], most_servers=1)
    assert found.chosen.setup.fleet.rental.instance.name == "c5.2xlarge"


def test_calibrating_writes_where_plans_look(
    siafu: Siafu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(told: Callable[[str], None]) -> calibration.Calibration:
        told("something")
        return reference()

    monkeypatch.setattr(calibration, "calibrate", measured)
    ended = siafu("calibrate")
    assert ended.code == 0
    assert "measuring something" in ended.err
    assert calibration.calibration() == (reference(), True)
    assert siafu("calibrate", "-o", tmp_path / "other.json", json=True).json()["host"] == reference().host


@pytest.mark.parametrize("load", [0.0, 1000.0])
def test_calibrating_a_busy_machine_is_warned_of_before_and_after(
    siafu: Siafu, monkeypatch: pytest.MonkeyPatch, load: float
) -> None:
    monkeypatch.setattr(calibration, "calibrate", lambda told: reference())
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    lines = siafu("calibrate").err.splitlines()
    assert ["other work is going on here (load 1000.0)" in line for line in lines[:1]] == [True] * bool(load)
    assert ["run 'siafu calibrate' again" in line for line in lines[-1:]] == [True] * bool(load)


@pytest.mark.slow
def test_a_plan_reckons_with_losses(siafu: Siafu, tmp_path: Path) -> None:
    few = ("--instance", "c5.2xlarge", "--most-servers", "2", "--no-lambdas")
    plain = siafu("plan", *few, **SIZES, epochs=20_000, spot=True, json=True).json()
    found = siafu("plan", *few, **SIZES, epochs=20_000, spot=True, loss_rate=2, json=True).json()
    assert "risk" not in plain
    assert plain["chosen"] == found["chosen"]
    risk = found["risk"]
    assert risk["seconds"]["low"] <= risk["seconds"]["mean"] <= risk["seconds"]["high"]
    assert plain["chosen"]["seconds"] < risk["seconds"]["mean"] < risk["with_checkpoints"]["seconds"]["mean"]
    assert 0 < risk["throughput"] < 1
    assert risk["epochs_lost"] == 0
    trace = tmp_path / "seen.csv"
    trace.write_text("0,add,x\n1800000,remove,x\n1860000,add,y\n")
    told = siafu("plan", *few, **SIZES, epochs=20_000, spot=True, trace=trace)
    assert told.code == 0
    assert "as in seen: " in told.out
    assert "it pays: " in told.out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss_rate": 1}, "add --spot"),
        ({"loss_rate": 0, "spot": True}, "loss rate"),
        ({"trace": "absent.csv", "spot": True}, "cannot read the trace"),
        ({"trace": "absent.csv", "loss_rate": 1, "spot": True}, "not both"),
    ],
)
def test_losses_that_cannot_be_are_refused(siafu: Siafu, given: dict[str, object], said: str) -> None:
    assert said in siafu.refused("plan", *FEW, **SIZES, **given)
