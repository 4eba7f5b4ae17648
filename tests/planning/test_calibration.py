"""Measuring this machine, and keeping what was found."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from siafu.base.errors import BadInput
from siafu.cost.prices import price_book
from siafu.planning import calibration, probes, task_probes
from siafu.planning.calibration import Calibration
from siafu.planning.planner import make_plan
from tests.planning.plans import small_request


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The calibration that comes with Siafu, in a file of its own."""
    path = tmp_path / "calibration.json"
    reference().save(path)
    return path


def reference() -> Calibration:
    return Calibration.read(Path(calibration.__file__).parent / "data" / "reference.json")


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    return path


def test_a_calibration_comes_back_from_its_file_as_it_was(saved: Path) -> None:
    assert Calibration.read(saved) == reference()


def test_a_machine_that_was_never_measured_has_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIAFU_CACHE", str(tmp_path))
    assert calibration.calibration() == (reference(), False)
    reference().save(calibration.calibration_path())
    assert calibration.calibration() == (reference(), True)


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop("format"),
        lambda found: found.update(version=99),
        lambda found: found["machine"].pop("cores"),
        lambda found: found["machine"].update(wheels=4),
        lambda found: found["machine"]["core"]["products"].update(points=[[8, -1]]),
        lambda found: found["local_lambda"].update(thread=None),
    ],
)
def test_a_damaged_calibration_is_refused_in_one_line(
    saved: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(BadInput, match="siafu calibrate") as caught:
        Calibration.read(changed(saved, change))
    assert "\n" not in str(caught.value)


def test_a_calibration_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*siafu calibrate"):
        Calibration.read(tmp_path / "none.json")


def test_a_message_arrives_and_so_do_many_bytes() -> None:
    latency, bytes_s = task_probes.loopback()
    assert latency > 0
    assert bytes_s > 0


@pytest.mark.slow
def test_a_training_of_next_to_nothing_counts_its_tasks() -> None:
    found = task_probes._train(2, 4, None)
    assert found.tensor_tasks == 64 * 3  # T1, the last with its loss, T1's gradient; T0 is folded
    assert found.graph_tasks == 64 * 2
    assert found.lambda_bytes == 0


@pytest.mark.slow
def test_a_machine_is_measured_whole_and_plans_can_be_made_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, few in (
        ("PRODUCT_WIDTHS", (8, 64)),
        ("ROW_BYTES", (64, 256)),
        ("TABLE_BYTES", (1 << 16, 1 << 20)),
    ):
        monkeypatch.setattr(probes, name, few)
    for name, less in (
        ("_INTERVALS", 4),
        ("_EPOCHS", 4),
        ("_COLD", 1),
        ("_WARM", 1),
        ("_STARTS", 1),
        ("_NUMPY_SECONDS", 0.01),
        ("_MANY", 64),
    ):
        monkeypatch.setattr(task_probes, name, less)
    stages: list[str] = []
    found = calibration.calibrate(stages.append)
    assert len(stages) >= 5
    assert found.machine.cores >= 1
    assert found.start_seconds > 0
    assert min(found.local_lambda.cold_start_s, found.local_lambda.invoke_s) > 0
    core = found.machine.core
    assert min(core.stream, core.draws, core.call_seconds, core.functions, core.memory) > 0
    assert found.local_lambda.server_bytes_s > 0
    found.save(tmp_path / "here.json")
    assert Calibration.read(tmp_path / "here.json") == found
    plan = make_plan(small_request(), prices=price_book(), measured=found)
    assert plan.here is not None


def test_what_was_found_is_told_in_lines() -> None:
    lines = calibration.describe(reference())
    assert any(line.startswith("gathers") and "GB/s" in line for line in lines)
    assert all("\n" not in line for line in lines)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda found: found["machine"].update(cores="two"), "cores is 'two'"),
        (lambda found: found["machine"].update(cores=0), "cores is 0"),
        (lambda found: found["machine"].update(cores=1.5), r"cores is 1\.5"),
        (lambda found: found["machine"].update(task_seconds=-1), "task_seconds is -1"),
        (lambda found: found["machine"].update(task_seconds=float("nan")), "task_seconds is nan"),
        (lambda found: found["machine"]["core"].update(stream=0), "stream is 0"),
        (lambda found: found["machine"]["core"].pop("memory"), "missing: memory"),
        (lambda found: found["machine"].update(attention=[None, 1]), "attention is None"),
        (lambda found: found["machine"]["edges"]["tables"].reverse(), "do not rise"),
        (lambda found: found["machine"]["edges"]["sparse"].pop(), "curves for"),
        (lambda found: found.update(host=7), "host is 7"),
        (lambda found: found.update(architecture="vax"), "architecture is 'vax'"),
        (lambda found: found.update(machine=[]), "is not as this siafu writes it"),
        (lambda found: found.update(seconds=10**400), "is not as this siafu writes it"),
    ],
)
def test_a_calibration_with_a_value_that_cannot_be_is_refused(
    saved: Path, change: Callable[[dict[str, Any]], object], why: str
) -> None:
    with pytest.raises(BadInput, match=why) as caught:
        Calibration.read(changed(saved, change))
    assert "\n" not in str(caught.value)


def test_a_calibration_that_is_nested_too_deeply_is_refused(saved: Path) -> None:
    saved.write_text("[" * 20_000)
    with pytest.raises(BadInput, match="is not JSON"):
        Calibration.read(saved)
