"""Predicted against measured, on a small graph."""

import json

import pytest

from siafu.bench import predict as bench
from siafu.graph.datasets import load
from siafu.planning.calibration import calibration

pytestmark = pytest.mark.slow  # measures


def test_an_epoch_is_predicted_and_trained() -> None:
    found, _ = calibration()
    one = bench._one(found, "demo", load("demo"), "gcn", 16, None)
    assert one.intervals == 1
    assert len(one.measured) >= 4
    assert one.ratio == pytest.approx(one.predicted / one.median)
    assert "| demo | gcn | threads | 1 |" in bench.table([one])
    assert json.loads(bench.as_json(found, [one]))["predictions"][0]["graph"] == "demo"


def test_lambdas_that_are_far_away_make_an_epoch_long() -> None:
    found, _ = calibration()
    near, far = (
        bench._simulated(found, load("demo"), "gcn", 16, 8, bench.Far(2, latency, 100))
        for latency in (1.0, 50.0)
    )
    # Three stages' tasks come four to a Lambda; messages of those in hand travel together.
    assert far.seconds_per_epoch - near.seconds_per_epoch > 3 * 2 * 0.049


def test_a_graph_without_a_split_gets_one() -> None:
    graph = load("demo")
    bare = bench._split(graph)
    assert bare is graph
