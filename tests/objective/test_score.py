"""Which of two scores is better."""

from hypothesis import given
from hypothesis import strategies as st

from siafu.objective.metric import Metric
from siafu.objective.score import Score

_ERROR = Metric("error", larger_is_better=False)
_VALUES = st.sampled_from([0.0, 0.25, 0.5, 1.0])


def test_without_validation_rows_the_later_is_the_better() -> None:
    assert Score(None, None).beats(Score(None, None))


@given(_VALUES, _VALUES, _VALUES, _VALUES)
def test_an_error_orders_scores_as_its_complement_does(a: float, b: float, c: float, d: float) -> None:
    by_error = Score(a, c, _ERROR).beats(Score(b, d, _ERROR))
    assert by_error == Score(1 - a, c).beats(Score(1 - b, d))


def test_of_equal_metrics_the_lower_loss_is_better_whichever_way_the_metric_goes() -> None:
    for metric in (_ERROR, Metric()):
        assert Score(0.5, 1.0, metric).beats(Score(0.5, 2.0, metric))
        assert not Score(0.5, 2.0, metric).beats(Score(0.5, 2.0, metric))


def test_a_bound_is_reached_from_the_metrics_own_side() -> None:
    assert Score(0.9, 1.0).reaches(0.9)
    assert not Score(0.8, 1.0).reaches(0.9)
    assert Score(0.1, 1.0, _ERROR).reaches(0.1)
    assert not Score(0.2, 1.0, _ERROR).reaches(0.1)
    assert not Score(None, None).reaches(0.0)
