"""Activity: seconds by kind and epoch, spans within their bounds."""

from hypothesis import given
from hypothesis import strategies as st

from siafu.base.activity import About, Activity, together

works = st.lists(
    st.tuples(
        st.sampled_from(["graph server 0", "graph server 1"]),
        st.integers(0, 4),
        st.sampled_from(["train T0", "scatter"]),
        st.integers(1, 8),
    ),
    max_size=60,
)


def told(work: list[tuple[str, int, str, int]], spans: int) -> Activity:
    activity = Activity(spans)
    for server, epoch, kind, seconds in work:
        activity.note(About(server, epoch, 0), kind, 0, 0.0, float(seconds))
    return activity


@given(works)
def test_seconds_are_those_of_the_epochs_that_are_taken_each_once(
    work: list[tuple[str, int, str, int]],
) -> None:
    activity = told(work, 0)
    for epoch in range(5):
        sums: dict[str, float] = {}
        for _, of, kind, seconds in work:
            if of == epoch:
                sums[kind] = sums.get(kind, 0.0) + seconds
        assert activity.take(epoch).busy_seconds == sums
    assert activity.take(4).busy_seconds == {}
    assert sum(activity.busy_seconds.values()) == sum(seconds for *_, seconds in work)


@given(works)
def test_spans_add_up_to_the_seconds_of_their_epoch(work: list[tuple[str, int, str, int]]) -> None:
    taken = told(work, 100).take(2)
    sums: dict[str, float] = {}
    for span in taken.spans:
        assert span.about.epoch <= 2
        sums[span.kind] = sums.get(span.kind, 0.0) + span.ended - span.began
    assert sums == taken.busy_seconds
    assert taken.dropped == 0


@given(works, st.integers(1, 5))
def test_of_each_server_only_the_latest_spans_are_kept_and_the_others_counted(
    work: list[tuple[str, int, str, int]], most: int
) -> None:
    taken = told(work, most).take(9)
    for server in ("graph server 0", "graph server 1"):
        mine = [(epoch, kind, float(seconds)) for of, epoch, kind, seconds in work if of == server]
        kept = [(s.about.epoch, s.kind, s.ended) for s in taken.spans if s.about.server == server]
        assert kept == mine[-most:]
    assert taken.dropped == len(work) - len(taken.spans)


def test_work_of_no_epoch_counts_with_the_next_that_is_taken_and_has_no_span() -> None:
    activity = Activity(10)
    activity.note(None, "other", 0, 1.0, 3.0)
    taken = activity.take(0)
    assert taken.busy_seconds == {"other": 2.0}
    assert taken.spans == ()


def test_what_was_told_before_a_new_beginning_is_void() -> None:
    activity = told([("graph server 0", 0, "train T0", 1)], 10)
    activity.forget()
    assert activity.take(9).busy_seconds == {}


def test_the_seconds_of_several_servers_add_up_by_kind() -> None:
    one, other = told([("a", 0, "x", 1), ("a", 0, "y", 2)], 0), told([("b", 0, "x", 4)], 0)
    assert together([one.take(0), other.take(0)]) == {"x": 5.0, "y": 2.0}
