"""What servers of a cluster did, as the driver hears of it."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.base.activity import About, Activity, Span, together
from siafu.pipeline.ids import Address, ServerId
from siafu.report.files.metrics import EpochMetrics
from siafu.runtime.counters.server_activity import RunActivity, ServerActivity
from siafu.runtime.happenings import EpochActivity
from tests.cluster.cluster_runs import CrewTrainer, train_on_crew

EPOCHS = 6

works = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 3),
        st.sampled_from(["train T0", "evaluate ∇G1"]),
        st.none() | st.integers(0, 5),
        st.integers(1, 9),
    ),
    max_size=40,
)


@given(works)
def test_what_servers_tell_arrives_as_it_was(work: list[tuple[int, int, str, int | None, int]]) -> None:
    driver, told = RunActivity(1000), []
    for server in (0, 1):
        activity = Activity(1000)
        activity.zero = 100.0 * server
        for of, epoch, kind, interval, seconds in work:
            if of == server:
                about = About(f"graph server {server}", epoch, interval)
                activity.note(about, kind, 1, 0.0, float(seconds), seconds)
                told.append((Span(about, kind, 1, 0.0, float(seconds), seconds), activity.zero))
        sender = Address("graph", ServerId(server))
        driver.hear(sender, *ServerActivity(activity, None).told(9, Counter({1: 2}), 50))
    for epoch in range(4):
        done = driver.take(epoch)
        mine = [(span, zero) for span, zero in told if span.about.epoch == epoch]
        assert [(span, each.zero) for each in done.threads for span in each.spans] == mine
        sums: dict[str, float] = {}
        for span, _ in mine:
            sums[span.kind] = sums.get(span.kind, 0.0) + span.ended
        assert together(done.threads) == sums
        assert done.staleness == ({"1": 4} if epoch == 0 else {})
        assert done.bytes_scattered == (100 if epoch == 0 else 0)


def test_only_what_is_new_is_told() -> None:
    server, driver = ServerActivity(Activity(), None), RunActivity()
    for staleness, scattered in ((Counter({0: 3}), 10), (Counter({0: 3, 1: 1}), 25)):
        driver.hear(Address("graph", ServerId(0)), *server.told(0, staleness, scattered))
    done = driver.take(0)
    assert (done.staleness, done.bytes_scattered) == ({"0": 3, "1": 1}, 25)


@pytest.mark.slow
def test_the_driver_hears_of_every_task_of_every_server() -> None:
    found: list[tuple[EpochMetrics, EpochActivity]] = []

    def heard(trainer: CrewTrainer, event: Any) -> None:
        if isinstance(event, EpochMetrics):
            found.append((event, trainer.activity))

    ran = train_on_crew("gcn", epochs=EPOCHS, servers=2, intervals=3, heard=heard)
    for metrics, activity in found:
        spans = [span for taken in activity.threads for span in taken.spans]
        assert {span.about.epoch for span in spans} == {metrics.epoch - 1}
        assert {span.about.server for span in spans} == {"graph server 0", "graph server 1"}
        by_kind: dict[str, list[Span]] = {}
        for span in spans:
            by_kind.setdefault(span.kind, []).append(span)
        for kind, mine in by_kind.items():
            assert metrics.busy_seconds is not None
            spent = sum(span.ended - span.began for span in mine)
            assert spent == pytest.approx(metrics.busy_seconds[kind], rel=1e-6)
            if kind not in ("scatter", "enter"):
                assert sorted(span.about.interval or 0 for span in mine) == list(range(6))
    assert sum(metrics.bytes_scattered or 0 for metrics, _ in found) == ran.counters["bytes_scattered"]
    entered = Counter[str]()
    for metrics, _ in found:
        entered.update(metrics.staleness or {})
    assert dict(entered) == ran.counters["staleness_histogram"]
