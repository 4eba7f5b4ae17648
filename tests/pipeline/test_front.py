"""How far a stage's rows are there, in the order in which gathers add them."""

from siafu.pipeline.front import Front
from siafu.pipeline.ids import IntervalId, ServerId
from siafu.pipeline.layout import Layout

ORDER = [IntervalId(k) for k in (2, 3, 0, 1)]


def test_rows_count_up_to_the_first_that_is_missing() -> None:
    front, rows = Front(ORDER, 4), [-1, -1, -1, -1]
    rows[3] = 0
    assert not front.advance(rows, 0)
    assert front.missing(0) is None
    rows[2] = 0
    assert front.advance(rows, 0)
    assert front.missing(0) == 0


def test_gathers_are_told_when_a_whole_part_is_there() -> None:
    front, rows = Front(ORDER, 2), [-1, -1, -1, -1]
    told = []
    for came in ORDER:
        rows[came] = 5
        told.append((front.advance(rows, 5), front.missing(5)))
    assert told == [(False, None), (True, 0), (False, 0), (True, None)]


def test_a_new_epoch_begins_with_nothing_there() -> None:
    front, rows = Front(ORDER, 4), [0, 0, 0, 0]
    front.advance(rows, 0)
    rows[2] = 1
    assert front.advance(rows, 1)
    assert front.missing(1) == 3
    assert front.missing(0) is None


def test_a_server_adds_its_own_rows_before_others() -> None:
    reads = tuple(frozenset(IntervalId(k) for k in each) for each in ((0, 1, 2, 3), (1,), (2, 0), (3, 1)))
    layout = Layout((2, 2), {"forward": reads, "backward": reads})
    assert layout.sources(ServerId(0), "forward") == (0, 1, 2, 3)
    assert layout.sources(ServerId(1), "forward") == (2, 3, 0, 1)
