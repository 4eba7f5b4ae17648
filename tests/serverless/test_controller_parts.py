"""What the controller is made of: patience, back-off, alarms, its clock, and words for failures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.serverless.control.alarms import Alarms
from siafu.serverless.control.backoff import Backoff, hashed_jitter
from siafu.serverless.control.clock import Clock
from siafu.serverless.control.failure import Failure, FailureKind, one_line
from siafu.serverless.control.patience import Patience

TIMES = st.floats(0.001, 1000.0)


@given(st.lists(TIMES, min_size=1, max_size=100), TIMES, TIMES)
def test_patience_is_never_below_the_floor_nor_above_the_longest_seen(
    samples: list[float], floor: float, default: float
) -> None:
    patience = Patience(3.0, floor, default)
    for seconds in samples:
        patience.learn("T1", seconds)
    assert floor <= patience.of("T1") <= max(floor, 3.0 * max(samples), 3.0 * floor) * (1 + 1e-9)


def test_patience_follows_a_change_of_pace_for_good() -> None:
    patience = Patience(3.0, 0.1, 60.0)
    for _ in range(500):
        patience.learn("T1", 1.0)
    for _ in range(500):
        patience.learn("T1", 50.0)
    assert patience.of("T1") == pytest.approx(150.0, rel=0.01)


def test_kinds_have_their_own_means() -> None:
    patience = Patience(3.0, 0.1, 60.0)
    patience.learn("T1", 2.0)
    assert (patience.of("T1"), patience.of("T2")) == (6.0, 60.0)


@given(st.integers(1, 2000), st.integers(0, 10**6))
def test_a_wait_lies_between_half_and_all_of_its_turn(setbacks: int, number: int) -> None:
    wait = Backoff(0.2, 20.0, hashed_jitter("a run")).wait(setbacks, number)
    whole = min(20.0, 0.2 * 2 ** min(setbacks - 1, 60))
    assert whole / 2 <= wait < whole


def test_jitter_is_the_same_for_the_same_name_and_another_for_another() -> None:
    draws = [hashed_jitter("server 0")(number) for number in range(50)]
    assert draws == [hashed_jitter("server 0")(number) for number in range(50)]
    assert draws != [hashed_jitter("server 1")(number) for number in range(50)]
    assert 0.3 < sum(draws) / 50 < 0.7


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["set", "clear", "due"]), st.integers(0, 4), st.integers(0, 20)), max_size=60
)


@given(ACTIONS)
def test_alarms_go_off_as_a_plain_list_of_them_would(actions: list[tuple[str, int, int]]) -> None:
    alarms: Alarms[int] = Alarms()
    plain: dict[int, int] = {}
    for action, key, time in actions:
        if action == "set":
            alarms.set(key, time)
            plain[key] = time
        elif action == "clear":
            alarms.clear(key)
            plain.pop(key, None)
        else:
            due = list(alarms.due(time))
            assert sorted(due) == sorted(each for each, when in plain.items() if when <= time)
            assert [plain[each] for each in due] == sorted(plain[each] for each in due)
            for each in due:
                del plain[each]
        assert alarms.next() == min(plain.values(), default=None)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_the_clock_never_goes_back_and_knows_what_the_other_shows(shown: list[float]) -> None:
    clock = Clock()
    before = 0.0
    for each in shown:
        clock.hear(each)
        assert clock.now >= before
        before = clock.now
    assert clock.shown_at(clock.now) == pytest.approx(shown[-1], abs=1.0 + 1e-6)


def test_events_a_little_out_of_order_do_not_shift_the_clock() -> None:
    clock = Clock()
    for shown in (10.0, 12.0, 11.9, 12.5):
        clock.hear(shown)
    assert clock.now == 2.5


@pytest.mark.parametrize("kind", FailureKind)
def test_every_failure_says_in_one_line_what_where_and_what_to_do(kind: FailureKind) -> None:
    said = str(Failure(kind, "function f,\nregion r", "first\nsecond\x1b[31m"))
    assert said.startswith("first second [31m (function f, region r); ")
    assert len(said.split("; ", 1)[1]) > 20


def test_only_what_a_person_must_mend_is_final() -> None:
    final = {kind for kind in FailureKind if Failure(kind, "", "").is_final}
    assert final == {FailureKind.NO_FUNCTION, FailureKind.DENIED, FailureKind.UNFIT}


def test_what_a_platform_says_is_not_endless() -> None:
    assert len(one_line("x" * 10_000)) == 300
