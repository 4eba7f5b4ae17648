"""Which of several ways is fastest, found while the work is done."""

import pytest

from siafu.kernels.advice.timed_choice import TimedChoice
from siafu.kernels.advice.trial_budget import TrialBudget


def worked(choice: TimedChoice, seconds: dict[int, float], rounds: int, pieces: int = 4) -> list[int]:
    """The ways that were taken, when each takes so long on every piece."""
    taken = []
    for _ in range(rounds):
        for piece in range(pieces):
            way = choice.way(piece)
            taken.append(way)
            choice.told(piece, way, seconds[way])
    return taken


@pytest.mark.parametrize("fast", [1, 8, 16])
def test_every_way_is_tried_on_every_piece_and_the_fastest_stays(fast: int) -> None:
    choice = TimedChoice((1, 8, 16))
    taken = worked(choice, {way: 0.10 if way == fast else 0.12 for way in (1, 8, 16)}, rounds=4)
    assert taken == [1] * 8 + [8] * 4 + [16] * 4
    assert choice.chosen == fast
    assert worked(choice, {fast: 9.0}, rounds=1) == [fast] * 4


def test_the_first_way_stays_unless_another_is_clearly_faster() -> None:
    choice = TimedChoice((1, 8))
    worked(choice, {1: 0.100, 8: 0.098}, rounds=3)
    assert choice.chosen == 1


def test_a_way_that_is_far_slower_is_not_tried_again() -> None:
    choice = TimedChoice((1, 8))
    taken = worked(choice, {1: 0.1, 8: 1.0}, rounds=3)
    assert taken.count(8) == 1 and choice.chosen == 1
    assert choice.seconds[8] > choice.seconds[1]


def test_slower_ways_cost_no_more_than_two_seconds() -> None:
    choice = TimedChoice((1, 8))
    taken = worked(choice, {1: 4.0, 8: 5.0}, rounds=3, pieces=16)
    assert taken.count(8) == 2 and choice.chosen == 1


def test_the_first_time_is_not_counted() -> None:
    choice = TimedChoice((1, 8))
    choice.told(0, choice.way(0), 100.0)
    worked(choice, {1: 0.1, 8: 0.2}, rounds=2, pieces=1)
    assert choice.chosen == 1


def test_what_is_known_is_taken_at_once_unless_there_is_no_such_way() -> None:
    assert TimedChoice((1, 8), known=8).way(0) == 8
    assert TimedChoice((1, 8), known=5).chosen is None
    assert TimedChoice((1,)).way(0) == 1


def test_no_trial_is_begun_that_the_budget_may_not_bear() -> None:
    choice = TimedChoice((1, 8))
    taken = worked(choice, {1: 5.0, 8: 7.0}, rounds=3)
    assert taken.count(8) == 0 and choice.chosen == 1


def test_a_way_that_proves_faster_is_tried_whatever_is_left() -> None:
    choice = TimedChoice((1, 8), budget=TrialBudget(6))
    taken = worked(choice, {1: 0.0101, 8: 0.0100}, rounds=3, pieces=10)
    assert taken.count(8) == 10


def test_choices_share_a_budget() -> None:
    budget = TrialBudget()
    one, other = (TimedChoice((1, 8), budget=budget) for _ in range(2))
    worked(one, {1: 4.0, 8: 5.9}, rounds=3, pieces=16)
    taken = worked(other, {1: 4.0, 8: 5.9}, rounds=3, pieces=16)
    assert one.chosen == 1 and other.chosen == 1
    assert taken.count(8) == 0


@pytest.mark.parametrize(("epochs", "trials"), [(1, 0), (200, 10)])
def test_trials_cost_no_more_than_a_hundredth_of_the_run(epochs: int, trials: int) -> None:
    choice = TimedChoice((1, 8), budget=TrialBudget(epochs))
    taken = worked(choice, {1: 0.010, 8: 0.012}, rounds=3, pieces=10)
    assert choice.chosen == 1
    assert taken.count(8) == trials


def test_a_short_trial_is_enough_to_take_the_faster_way() -> None:
    choice = TimedChoice((1, 8), budget=TrialBudget(6))
    worked(choice, {1: 0.012, 8: 0.010}, rounds=3, pieces=10)
    assert choice.chosen == 8
