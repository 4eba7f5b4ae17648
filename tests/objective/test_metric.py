"""Metrics: their words, and how a run's files describe them."""

import subprocess
import sys

import pytest

from siafu.objective.metric import ACCURACY, Metric, metric_of, metric_of_run

_ERROR = Metric("mean_error", larger_is_better=False, is_share=False)


def test_a_share_is_told_in_percent_and_anything_else_as_a_number() -> None:
    assert (ACCURACY.told(0.5), ACCURACY.told(0.5, 0.01)) == ("50.00 %", "50.00 ± 1.00 %")
    assert (_ERROR.told(1.5), _ERROR.told(1.5, 0.25)) == ("1.5000", "1.5000 ± 0.2500")
    assert _ERROR.words == "mean-error"


@pytest.mark.parametrize("metric", [ACCURACY, _ERROR, Metric("mrr")])
def test_a_metric_comes_back_from_a_config(metric: Metric) -> None:
    assert metric_of_run({"objective": {"name": "any", **metric.as_json()}}) == metric


def test_an_earlier_run_has_its_metrics_name_alone() -> None:
    assert metric_of_run({"graph": {"metric": "micro_f1"}}) == Metric("micro_f1")


@pytest.mark.parametrize("damaged", [None, 3, [], {"metric": 5}, {"larger_is_better": "no"}])
def test_a_damaged_description_is_taken_for_accuracy(damaged: object) -> None:
    assert metric_of(damaged) == ACCURACY
    assert metric_of_run({"objective": damaged, "graph": damaged}) == ACCURACY


def test_metrics_and_scores_need_no_torch() -> None:
    code = "import sys, siafu.objective.score; assert not {'torch', 'numpy'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", code], check=True)
