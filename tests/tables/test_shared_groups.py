"""Groups that threads share: each is made once a pass, few are there at a time, and no thread waits for ever."""

import itertools
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.tables import SharedGroups

GROUPS = [(0, 4), (4, 5), (5, 9)]


class Maker:
    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []

    def __call__(self, first: int, last: int) -> tuple[int, int]:
        self.made.append((first, last))
        return first, last


@given(cuts=st.sets(st.integers(1, 8)), passes=st.integers(1, 3))
def test_rows_come_with_their_group_which_is_made_once_a_pass(cuts: set[int], passes: int) -> None:
    make, bounds = Maker(), [0, *sorted(cuts), 9]
    shared = SharedGroups(GROUPS, 2, make)
    for _ in range(passes):
        rows = []
        for first, last in itertools.pairwise(bounds):
            for (lo, hi), low, high in shared.parts(first, last):
                assert lo <= low < high <= hi
                rows += range(low, high)
        assert rows == [*range(9)]
    assert make.made == GROUPS * passes


def test_a_group_that_nobody_uses_makes_room_and_is_made_again() -> None:
    make = Maker()
    shared = SharedGroups(GROUPS, 1, make)
    for first, last in ((0, 2), (5, 9), (2, 4), (4, 5)):
        for _ in shared.parts(first, last):
            pass
    assert make.made == [(0, 4), (5, 9), (0, 4), (4, 5)]
    list(shared.parts(0, 9))
    assert make.made[4:] == GROUPS  # nothing of the pass before is left


def test_threads_far_apart_wait_for_each_other() -> None:
    groups = [(k, k + 1) for k in range(40)]
    lock, there, most = threading.Lock(), [0], [0]
    shared = SharedGroups(groups, 2, lambda first, last: first)

    def use(first: int, last: int) -> None:
        for found, low, _ in shared.parts(first, last):
            assert found == low
            with lock:
                there[0] += 1
                most[0] = max(most[0], there[0])
            time.sleep(0)
            with lock:
                there[0] -= 1

    threads = [threading.Thread(target=use, args=(10 * k, 10 * k + 10)) for k in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
        assert not each.is_alive()
    assert most[0] <= 2


def test_an_error_reaches_whoever_asks_and_the_next_tries_again() -> None:
    tried: list[int] = []

    def make(first: int, last: int) -> int:
        tried.append(first)
        if len(tried) == 1:
            raise OSError("no disk")
        return first

    shared = SharedGroups(GROUPS, 2, make)
    with pytest.raises(OSError, match="no disk"):
        list(shared.parts(0, 2))
    shared.begin_anew()
    assert [found for found, _, _ in shared.parts(0, 9)] == [0, 4, 5]
