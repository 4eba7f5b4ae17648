"""Measuring this machine, and keeping what was found."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from siafu.errors import BadInput
from siafu.planning import calibration, probes, task_probes
from siafu.planning.calibration import Calibration
from siafu.planning.probes import Cores


@pytest.fixture
def cores() -> Iterator[Cores]:
    with probes.all_cores() as found:
        yield found


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
    with pytest.raises(BadInput, match="no calibration at"):
        Calibration.read(tmp_path / "none.json")


def test_every_rate_of_a_core_is_above_nothing(cores: Cores) -> None:
    found = probes.core_rates(cores)
    assert all(rate > 0 for _, rate in found.products.points)
    assert min(found.stream, found.draws, found.call_seconds, found.functions, found.memory) > 0


def test_rows_from_memory_take_longer_than_rows_from_a_cache(cores: Cores) -> None:
    # Wide apart: 1 MiB is a core's own cache, 512 MiB is beyond every cache.
    near, far = (probes._sparse(cores, 256, table) for table in (1 << 20, 1 << 29))
    assert near < far


def test_a_message_arrives_and_more_bytes_take_longer() -> None:
    latency, bytes_s = task_probes.loopback()
    assert 0 < latency < 1
    assert bytes_s > 0


def test_a_training_of_next_to_nothing_counts_its_tasks() -> None:
    found = task_probes._train(2, 4, None)
    assert found.tensor_tasks == 64 * 3  # T1, the last with its loss, T1's gradient; T0 is folded
    assert found.graph_tasks == 64 * 2
    assert found.lambda_bytes == 0


def test_what_was_found_is_told_in_lines() -> None:
    lines = calibration.describe(reference())
    assert any(line.startswith("gathers") and "GB/s" in line for line in lines)
    assert all("\n" not in line for line in lines)
