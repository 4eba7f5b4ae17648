"""`siafu bench convergence`: what it reads off the trainings, and how it shows that."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from siafu.base.errors import BadInput
from siafu.bench.convergence import (
    VARIANTS,
    Convergence,
    ConvergenceSetting,
    Trial,
    measure,
    read,
    save,
    table,
)
from siafu.bench.pictures.convergence_plot import plot
from siafu.cli import app
from tests.toys import toy_graph

pytestmark = pytest.mark.slow  # measures

SETTING = ConvergenceSetting("gcn", 8, 2, 0.0, 4, 0.02, False, 2, 3, 1)


def trial(*val: float, test: float = 0.8, **counters: Any) -> Trial:
    usual = {"max_staleness_seen": 0, "weight_versions_peak": 1, "row_age_histogram": {"0": 9}}
    return Trial(0, list(val), test, usual | counters)


def some() -> Convergence:
    return Convergence(
        "toy",
        SETTING,
        {
            "pipe": [trial(0.2, 0.7, 0.8, 0.79, test=0.8), trial(0.4, 0.7, 0.8, 0.81, test=0.82)],
            "async, S=0": [trial(0.2, 0.6, 0.7, 0.8), trial(0.2, 0.6, 0.7, 0.8)],
            "async, S=1": [
                trial(0.1, 0.2, 0.3, 0.4, max_staleness_seen=1, row_age_histogram={"0": 3, "1": 1}),
                trial(0.1, 0.2, 0.3, 0.4, weight_versions_peak=3, row_age_histogram={"0": 3, "-1": 1}),
            ],
        },
    )


def test_the_target_is_half_a_point_below_the_best_of_the_exact_curve() -> None:
    assert some().curve("pipe") == pytest.approx([0.3, 0.7, 0.8, 0.8])
    assert some().target == pytest.approx(0.795)


def test_epochs_count_until_the_curve_first_is_at_the_target() -> None:
    found = some()
    assert [found.epochs_to_target(variant) for variant in found.trials] == [3, 4, None]
    assert [found.ratio(variant) for variant in found.trials] == [1, pytest.approx(4 / 3), None]


def test_accuracy_is_a_mean_with_its_deviation_over_seeds() -> None:
    assert some().test("pipe") == pytest.approx((0.81, 0.02 / 2**0.5))


def test_peaks_are_the_highest_and_ages_add_up_over_seeds() -> None:
    found = some()
    assert found.peak("async, S=1", "max_staleness_seen") == 1
    assert found.peak("async, S=1", "weight_versions_peak") == 3
    assert found.row_ages("async, S=1") == {-1: 1 / 8, 0: 6 / 8, 1: 1 / 8}


def test_the_table_has_a_line_for_each_variant() -> None:
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table([some()]).splitlines()]
    assert [line[:6] for line in lines[2:]] == [
        ["toy", "pipe", "81.00 ± 1.41", "", "3", ""],
        ["", "async, S=0", "80.00 ± 0.00", "-1.00", "4", "1.33"],
        ["", "async, S=1", "80.00 ± 0.00", "-1.00", "never", ""],
    ]


def test_results_of_other_datasets_stay_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    other = Convergence("other", SETTING, some().trials)
    save([some()], file)
    save([other], file)
    save([some()], file)
    assert read(file) == [other, some()]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps([{"dataset": "toy"}]))
    with pytest.raises(BadInput, match="does not hold results of 'siafu bench convergence'"):
        read(file)


def test_the_plot_has_a_panel_for_each_dataset_and_a_curve_for_each_variant() -> None:
    root = ElementTree.fromstring(plot([some()] * 4))
    curves = root.findall(".//{*}polyline")
    assert len(root.findall(".//{*}clipPath")) == 4
    assert len(curves) == 4 * 3
    assert {len(each.attrib["points"].split()) for each in curves} == {SETTING.epochs}


def test_a_graph_without_a_validation_split_is_refused() -> None:
    with pytest.raises(BadInput, match="no validation and test splits"):
        measure(toy_graph(val=None), SETTING, print)


def test_the_command_trains_every_variant_and_draws_it(tmp_path: Path) -> None:
    toy_graph().save(tmp_path / "toy.store")
    where = ["--results", str(tmp_path / "results.json"), "--plot", str(tmp_path / "curves.svg")]
    small = ["--epochs", "4", "--seeds", "1", "--hidden", "8", "--intervals", "3"]
    command = ["bench", "convergence", str(tmp_path / "toy.store"), *small, *where]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0
    (found,) = read(tmp_path / "results.json")
    assert set(found.trials) == set(VARIANTS)
    assert all(len(found.curve(variant)) == 4 for variant in VARIANTS)
    assert result.stdout.splitlines()[-len(VARIANTS) :] == table([found]).splitlines()[2:]
    assert ElementTree.parse(tmp_path / "curves.svg").getroot().tag.endswith("svg")
