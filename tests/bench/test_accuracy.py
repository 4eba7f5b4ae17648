"""`siafu bench accuracy`: what it reads off the trainings, and how it shows that."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from siafu.base.errors import BadInput
from siafu.bench.accuracy import Accuracy, best_rate, measure, read, save, table
from siafu.bench.accuracy_peer import DglSampled
from siafu.bench.accuracy_trial import (
    ASYNC,
    EXACT,
    PEER,
    SAMPLED,
    WAYS,
    AccuracySetting,
    AccuracyTrial,
    OwnTraining,
)
from siafu.bench.pictures.accuracy_plot import plot
from siafu.cost.prices import price_book
from tests.toys import toy_graph

SETTING = AccuracySetting("gcn", 8, 2, 0.0, 3, 9, [0.02], False, 2, "4,4", 16, 1)


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
        {EXACT: 0.02, ASYNC: 0.02, SAMPLED: 0.01},
        {EXACT: 0.5, ASYNC: 0.4, SAMPLED: 2.5},
        "c5n.2xlarge",
        0.0001,
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
    assert [line[1:10] for line in lines[2:]] == [
        ["whole graph", "0.02", "79.5", "2 of 2", "2", "2.50", "1.25", "$0.00013", ""],
        ["whole graph, async", "0.02", "", "0 of 2", "never", "never", "never", "never", ""],
        ["sampled", "0.01", "", "1 of 2", "1", "5.00", "2.50", "$0.00025", "2.00"],
    ]


def test_the_plot_is_svg_with_a_line_for_each_training() -> None:
    root = ElementTree.fromstring(plot([some()]))
    assert len([each for each in root.iter() if each.tag.endswith("polyline")]) == 6


@pytest.mark.slow
def test_it_trains_in_every_way_and_keeps_what_it_found(tmp_path: Path) -> None:
    told: list[str] = []
    machine = price_book().instance("c5n.2xlarge")
    found = measure(toy_graph(), SETTING, machine, told.append)
    assert len(told) == 3 and all(len(found.trials[way][0].val) == 3 for way in WAYS)
    assert all(found.cpu[way] > 0 for way in WAYS)
    save([found], tmp_path / "results.json")
    assert read(tmp_path / "results.json") == [found]
    with pytest.raises(BadInput, match="no validation and test splits"):
        measure(toy_graph(val=None), SETTING, machine, told.append)


def trial(val: list[float]) -> AccuracyTrial:
    return AccuracyTrial(0, val, [1.0 + k for k in range(len(val))], 0.5)


def test_a_ways_learning_rate_is_the_first_near_the_best_accuracy() -> None:
    tried = {0.1: trial([0.78, 0.78]), 0.01: trial([0.5, 0.796, 0.8]), 0.001: trial([0.5, 0.6, 0.7, 0.801])}
    assert best_rate(tried) == 0.01


@pytest.mark.slow
def test_a_rate_at_which_training_diverges_reaches_nothing() -> None:
    found = OwnTraining(toy_graph(), SETTING, SAMPLED).trial(0, 1e20)
    assert found.best == 0 and found.reached(0.1) is None


def test_a_learning_rate_of_0_is_refused_before_the_others_are_tried() -> None:
    with pytest.raises(BadInput, match="lr is 0: give a learning rate above 0"):
        replace(SETTING, rates=[0.01, 0.0])


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    """An interpreter that is none: it keeps what it is asked for, and answers."""
    answer = {"val": [0.4, 0.6], "seconds": [0.1, 0.2], "test": 0.55, "cpu": 0.125}
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$3\" >> {tmp_path}/asked\necho '{json.dumps(answer)}'\n")
    path.chmod(0o700)
    return path


@pytest.mark.slow
def test_dgls_samples_are_one_more_way(peer: Path, tmp_path: Path) -> None:
    told: list[str] = []
    setting = replace(SETTING, seeds=2, rates=[0.02, 0.01])
    found = measure(toy_graph(), setting, price_book().instance("c5n.2xlarge"), told.append, peer)
    assert [each.val for each in found.trials[PEER]] == [[0.4, 0.6], [0.4, 0.6]]
    assert found.cpu[PEER] == 0.125 and len(told) == 3 * 4
    asked = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    assert len(asked) == 3 and asked[0]["fanouts"] == [4, 4] and asked[0]["weight_decay"] == 5e-4
    assert [row.split("|")[2].strip() for row in table([found]).splitlines()[2:]] == [*WAYS, PEER]
    assert len(ElementTree.fromstring(plot([found])).findall(".//{*}polyline")) == 8


def test_what_dgl_cannot_be_compared_with_is_refused_before_anything_is_trained(peer: Path) -> None:
    with pytest.raises(BadInput, match="no interpreter at nowhere"):
        DglSampled(toy_graph(), SETTING, Path("nowhere"))
    with pytest.raises(BadInput, match="gcn and sage, not with gat"):
        DglSampled(toy_graph(), replace(SETTING, model="gat"), peer)
    with pytest.raises(BadInput, match="gathers 2 times"):
        DglSampled(toy_graph(), replace(SETTING, fanout="4"), peer)
