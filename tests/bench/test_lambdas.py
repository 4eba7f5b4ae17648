"""The benchmark of Lambdas: what it makes of its measurements, and that it takes them."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from siafu.base.errors import BadInput
from siafu.bench import lambdas as bench
from siafu.bench.pictures.lambda_chart import bars, chart

pytestmark = pytest.mark.slow  # measures

SETTING = bench.LambdaSetting("demo", 1.0, 8, 2, 4, 2, 1.0, 1000.0, epochs=3)
MODES = bench.Part(
    "modes",
    SETTING,
    [
        bench.TrainingMeasurement("sync", [4.0, 5.0]),
        bench.TrainingMeasurement("pipe", [2.0]),
        bench.TrainingMeasurement("async", [1.0]),
    ],
)
TUNING = bench.Part(
    "tuning",
    SETTING,
    [
        bench.TrainingMeasurement("1", [8.0]),
        bench.TrainingMeasurement("4", [2.0]),
        bench.TrainingMeasurement("auto from 1", [8.0, 4.0, 1.5, 2.5, 2.4], [1, 2, 4, 3, 3]),
    ],
)


def test_modes_are_compared_to_sync() -> None:
    assert bench.table([MODES]).splitlines()[-2:] == ["| pipe | 2.00 | 2.00 |", "| async | 1.00 | 4.00 |"]


def test_the_autotuner_is_judged_by_the_epochs_after_it_settled() -> None:
    assert (TUNING.measured[2].settled, TUNING.measured[2].settled_seconds) == (3, 2.4)
    assert bench.table([TUNING]).splitlines()[-1] == "| auto from 1: 3 | 2.40 | 1.20 |"


def test_parts_are_saved_beside_others(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    bench.save([TUNING], path)
    bench.save([MODES], path)
    assert bench.read(path) == [MODES, TUNING]


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    path.write_text("[{}]")
    with pytest.raises(BadInput, match="does not hold results of 'siafu bench lambda'"):
        bench.read(path)


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(BadInput, match="no part 'speed'"):
        bench.measure("speed", SETTING, None, print)


def test_the_chart_has_a_bar_for_each_training() -> None:
    drawn = ElementTree.fromstring(chart([MODES, TUNING]))
    bars_drawn = [each for each in drawn.iter() if each.tag.endswith("rect")][1:]
    assert len(bars_drawn) == len(bars(MODES)) + len(bars(TUNING)) == 6


def test_overhead_is_measured_on_threads_and_on_lambdas() -> None:
    found = bench.measure("overhead", replace(SETTING, latency_ms=0, mbps=None), None, lambda line: None)
    assert [each.who for each in found.measured] == ["threads", "Lambdas"]
    assert found.of("Lambdas").bytes > 0
    assert all(len(each.seconds) == 1 for each in found.measured)
