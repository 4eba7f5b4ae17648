"""`siafu bench accuracy`: what it reads off the trainings, and how it shows that."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from siafu.base.errors import BadInput
from siafu.bench.accuracy import (
    ASYNC,
    EXACT,
    SAMPLED,
    WAYS,
    Accuracy,
    AccuracySetting,
    AccuracyTrial,
    measure,
    read,
    save,
    table,
)
from siafu.bench.pictures.accuracy_plot import plot
from tests.toys import toy_graph

SETTING = AccuracySetting("gcn", 8, 2, 0.0, 3, 9, 0.02, False, 2, "4,4", 16, 1)


def some() -> Accuracy:
    return Accuracy(
        "toy",
        SETTING,
        {
            EXACT: [
                AccuracyTrial(0, [0.5, 0.8, 0.79], [1.0, 2.0, 3.0], 0.7),
                AccuracyTrial(1, [0.5, 0.7, 0.8], [1.0, 2.0, 3.0], 0.8),
            ],
            ASYNC: [
                AccuracyTrial(0, [0.4, 0.5], [1.0, 1.5], 0.5),
                AccuracyTrial(1, [0.4, 0.5], [1.0, 1.5], 0.5),
            ],
            SAMPLED: [AccuracyTrial(0, [0.81], [5.0], 0.82), AccuracyTrial(1, [0.7], [4.0], 0.68)],
        },
        {EXACT: 0.5, ASYNC: 0.4, SAMPLED: 2.5},
    )


def test_the_target_and_the_way_to_it() -> None:
    found = some()
    assert found.target == pytest.approx(0.795)
    assert found.reached(EXACT) == [(2, 2.0), (3, 3.0)]
    assert found.reached(ASYNC) == []
    assert found.reached(SAMPLED) == [(1, 5.0)]
    assert found.best(SAMPLED) == pytest.approx((0.755, 0.75))


def test_the_table_says_who_never_reaches_it() -> None:
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table([some()]).splitlines()]
    assert [line[1:8] for line in lines[2:]] == [
        ["whole graph", "79.5", "2 of 2", "2", "2.50", "1.25", ""],
        ["whole graph, async", "", "0 of 2", "never", "never", "never", ""],
        ["sampled", "", "1 of 2", "1", "5.00", "2.50", "2.00"],
    ]


def test_the_plot_is_svg_with_a_line_for_each_training() -> None:
    root = ElementTree.fromstring(plot([some()]))
    assert len([each for each in root.iter() if each.tag.endswith("polyline")]) == 6


@pytest.mark.slow
def test_it_trains_in_every_way_and_keeps_what_it_found(tmp_path: Path) -> None:
    told: list[str] = []
    found = measure(toy_graph(), SETTING, told.append)
    assert len(told) == 3 and all(len(found.trials[way][0].val) == 3 for way in WAYS)
    assert all(found.cpu[way] > 0 for way in WAYS)
    save([found], tmp_path / "results.json")
    assert read(tmp_path / "results.json") == [found]
    with pytest.raises(BadInput, match="no validation and test splits"):
        measure(toy_graph(val=None), SETTING, told.append)
