"""Trainings on machines that come and go: against Daly's formula, against reckoning by hand, and damaged traces."""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from siafu.base.errors import BadInput
from siafu.cluster.runtime import LOST_AFTER_SECONDS, LOST_SOON_SECONDS
from siafu.cost.fleet import Fleet
from siafu.cost.instances import Rental
from siafu.cost.prices import price_book
from siafu.planning.estimate import Estimates
from siafu.planning.offer import TrainingSetup
from siafu.planning.spot.offer_risk import LossRate
from siafu.planning.spot.paces import EagerPace, paces_of
from siafu.planning.spot.replay import SpotTraining, replay, young_daly
from siafu.planning.spot.replayed_training import ReplayedTraining
from siafu.planning.spot.risk import DETECTION_SECONDS, WARM_DETECTION_SECONDS, Spread, of_traces
from siafu.planning.spot.trace import Change, Trace, compressed, from_rate, from_trace, held, read_trace
from tests.planning.plans import reference, small_request

SEEDS = 3000


@pytest.mark.parametrize(("every", "saving"), [(None, 0.0), (1, 2.0), (4, 3.0)])
def test_the_mean_is_dalys(every: int | None, saving: float) -> None:
    """J. T. Daly, 2006: segments of work that a loss destroys take (1/λ + R) (e^(λ t) - 1) each, in the mean."""
    rate, absent, epoch, epochs = 20.0, 30.0, 25.0, 8
    training = SpotTraining(1, epochs, epoch, 0.0, 0.0, every, saving)
    found = [
        replay(training, from_rate(rate, 1, absent, random.Random(seed))).seconds for seed in range(SEEDS)
    ]
    a_second, group = rate / 3600, every or 1
    segments = [group * epoch + saving] * (epochs // group - 1) + [group * epoch]
    wanted = sum((1 / a_second + absent) * math.expm1(a_second * each) for each in segments)
    mean = sum(found) / SEEDS
    error = math.sqrt(sum((each - mean) ** 2 for each in found)) / SEEDS
    assert abs(mean - wanted) < 4 * error


def test_every_second_of_a_replay_is_accounted_for() -> None:
    training = SpotTraining(2, 10, 10.0, 5.0, 1.0)
    changes = [
        Change(0, "a", True),
        Change(0, "b", True),
        Change(3, "spare", True),
        Change(
            38, "b", False
        ),  # works from 5: three epochs have ended; the spare machine works from 38 + 1 + 5
        Change(50, "spare", False),  # none has ended since, and none is there
        Change(55, "a", False),
        Change(80, "c", True),
        Change(90, "d", True),  # works from 95
        Change(1e6, "c", False),
    ]
    found = replay(training, changes)
    assert found.seconds == 95 + 7 * 10
    assert (found.losses, found.epochs_lost) == (3, 0)
    # Of the fourth epoch 3 s are done, and are done again from 44; at 50, when 3 s more are done, and then 6 s, from 95.
    assert (found.longest_pause, found.paused) == (101 - 50, (47 - 38) + (101 - 50))
    assert found.waited == (44 - 39) + (55 - 51) + (95 - 56)  # from when losses are known
    assert found.on == (0.0, 0.0, 33 + 3 + (165 - 101))
    assert found.machine_seconds == 2 * 50 + 5 + 10 + 2 * (165 - 90)
    saving = SpotTraining(2, 10, 10.0, 5.0, 1.0, checkpoint_epochs=2)
    assert replay(saving, changes).epochs_lost == 1
    assert replay(saving, changes).seconds == 95 + 8 * 10


def test_warm_copies_take_over_and_the_run_goes_on_with_fewer_machines() -> None:
    cold = SpotTraining(2, 10, 10.0, 5.0, 1.0, paces=(math.inf, 20.0, 10.0))
    changes = [Change(0, "a", True), Change(0, "b", True), Change(38, "b", False), Change(80, "c", True)]
    far = [*changes, Change(1e6, "c", False)]
    # 3.3 epochs are done at 38; what follows is 1 s until that is known, perhaps a start, and 0.3 epochs again.
    warm = replay(replace(cold, warm=True), far)
    assert warm.paused == pytest.approx(1 + 3)
    first = (85 - 42) / 20  # the third machine works after 5 s, beside the run
    assert warm.seconds == pytest.approx(85 + (10 - 3.3 - first) * 10)
    assert replay(cold, far).paused == pytest.approx(1 + 5 + 3)
    eager = replay(replace(cold, warm=True, spared=0.2), far)
    assert eager.paused == pytest.approx(1 + 1)
    # Without any of the two it stands still: the memory of those that stay does not do for all.
    second = [*changes[:3], Change(60, "a", False), changes[3], Change(90, "d", True), far[-1]]
    gone = replay(replace(cold, warm=True), second)
    assert gone.waited == pytest.approx(85 - 61)


def test_a_server_lost_while_copies_are_made_again_starts_cold() -> None:
    training = SpotTraining(3, 100, 10.0, 5.0, 1.0, paces=(40.0, 20.0, 15.0, 10.0), warm=True)
    there = [Change(0, each, True) for each in "abc"]
    soon = replay(
        training, [*there, Change(35, "a", False), Change(40.5, "b", False), Change(1e6, "c", False)]
    )
    later = replay(
        training, [*there, Change(35, "a", False), Change(55, "b", False), Change(1e6, "c", False)]
    )
    # Three epochs are done at 35, copies are there again at 41, and work goes on from 36, an epoch in 15 s.
    assert soon.longest_pause == pytest.approx(1 + 5 + 4.5 / 15 * 10)
    assert later.longest_pause == pytest.approx(1 + (19 / 15 - 1) * 10)
    assert (soon.epochs_lost, later.epochs_lost) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_a_replay_knows_of_other_machines_only_when_it_holds_them(seed: int) -> None:
    source = random.Random(seed)
    trace = Trace("t", tuple(islice(from_rate(40.0, 5, 90.0, source), 200)), 1e6)
    training = SpotTraining(3, 60, 10.0, 5.0, 1.0, paces=(math.inf, 30.0, 20.0, 10.0), warm=seed % 2 == 0)
    offset = source.random() * 1000
    found, wanted = (
        replay(training, changes)
        for changes in (held(from_trace(trace, offset), 3), from_trace(trace, offset))
    )
    assert found.losses == wanted.losses > 0
    assert (found.seconds, found.machine_seconds, found.paused) == pytest.approx(
        (wanted.seconds, wanted.machine_seconds, wanted.paused)
    )
    there = 0
    for each in islice(held(from_trace(trace, offset), 3), 50):
        there += 1 if each.comes else -1
        assert 0 <= there <= 3


def test_a_compressed_trace_is_that_of_shorter_epochs() -> None:
    def training(times: float) -> SpotTraining:
        return SpotTraining(3, 60, 10.0 / times, 5.0 / times, 1.0 / times, paces=(math.inf, 30.0 / times) * 2)

    def losses() -> Iterator[Change]:
        return from_rate(40.0, 3, 90.0, random.Random(1))

    slow, fast = replay(training(1), losses()), replay(training(8), compressed(losses(), 8))
    assert slow.losses == fast.losses > 0
    assert slow.seconds == pytest.approx(8 * fast.seconds)


def test_copies_may_take_longer_than_a_start() -> None:
    there = [Change(0, each, True) for each in "abc"]
    lost = [*there, Change(35, "a", False), Change(55, "b", False), Change(1e6, "c", False)]
    training = SpotTraining(3, 100, 10.0, 5.0, 1.0, paces=(40.0, 20.0, 15.0, 10.0), warm=True)
    longer = replay(replace(training, copies_seconds=30.0), lost).longest_pause
    assert longer == pytest.approx(replay(training, lost).longest_pause + 5.0)


@pytest.mark.parametrize("every", [None, 1, 3])
def test_progress_does_not_depend_on_where_it_is_looked_at(every: int | None) -> None:
    at_once, bit_by_bit = (ReplayedTraining(12, every, 2.0) for _ in range(2))
    source, gone = random.Random(0), 0.0
    while gone < 70.0:
        step = source.random()
        bit_by_bit.work(step, 7.0)
        gone += step
    at_once.work(gone, 7.0)
    assert at_once.done == bit_by_bit.done
    assert (
        at_once.left(7.0)
        == pytest.approx(bit_by_bit.left(7.0))
        == pytest.approx(ReplayedTraining(12, every, 2.0).left(7.0) - gone)
    )


def test_the_interval_of_young_and_daly() -> None:
    training = SpotTraining(4, 1000, 2.0, 5.0, 1.0, checkpoint_seconds=1.0)
    assert young_daly(training, 0.5) == round(math.sqrt(2 * 1.0 * 1800) / 2)
    assert young_daly(SpotTraining(4, 10, 500.0, 5.0, 1.0), 5.0) == 1


def test_a_trace_goes_on_from_any_moment_and_begins_anew() -> None:
    trace = Trace(
        "t", (Change(0, "a", True), Change(0, "b", True), Change(10, "a", False), Change(20, "c", True)), 30.0
    )
    assert (trace.losses, trace.most, trace.machine_hours) == (1, 2, (20 + 10 + 20) / 3600)
    found = list(islice(from_trace(trace, 15.0), 8))
    times = [(each.seconds, each.comes) for each in found]
    assert times == [
        (0, True),
        (5, True),
        (25, False),
        (35, True),
        (55, False),
        (65, True),
        (85, False),
        (95, True),
    ]
    there: set[str] = set()
    for each in islice(from_trace(trace, 15.0), 200):
        assert (each.machine in there) != each.comes
        there.symmetric_difference_update({each.machine})


def test_traces_of_both_kinds_are_read(tmp_path: Path) -> None:
    changes, counts = tmp_path / "a.csv", tmp_path / "b.json"
    changes.write_text("0,add,x\n1500,add,y\n3000,remove,x\n")
    counts.write_text(json.dumps({"metadata": {"gap_seconds": 60}, "data": [2, 3, 1]}))
    first, second = read_trace(changes), read_trace(counts)
    assert first.changes[2] == Change(3.0, "x", False)
    assert (first.seconds, first.machine_hours) == (3.0, (3.0 + 1.5) / 3600)
    assert (second.losses, second.most, second.seconds) == (2, 3, 180.0)
    assert read_trace(counts) == second


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "0,add,x\n5,gone,x\n", "line 2 is not"),
        ("a.csv", "0,add,x\n-5,remove,x\n", "line 2 is not"),
        ("a.csv", "9,add,x\n5,remove,x\n", "earlier"),
        ("a.csv", "0,add,x\n5,add,x\n", "x is there already"),
        ("a.csv", "0,remove,x\n", "x is not there"),
        ("a.csv", "0,add,x\n", "no machine is lost"),
        ("a.csv", "", "no machine is lost"),
        ("a.json", "{", "damaged"),
        ("a.json", "[" * 10_000, "damaged"),
        ("a.json", "[]", "metadata"),
        ("a.json", '{"metadata": {"gap_seconds": 0}, "data": [1, 0]}', "gap_seconds"),
        ("a.json", '{"metadata": {"gap_seconds": NaN}, "data": [1, 0]}', "gap_seconds"),
        ("a.json", '{"metadata": {"gap_seconds": 60}, "data": [1, -1]}', "place 1"),
        ("a.json", '{"metadata": {"gap_seconds": 60}, "data": [1e9, 0]}', "place 0"),
        ("a.json", '{"metadata": {"gap_seconds": 60}, "data": []}', "list of counts"),
        ("a.txt", "0,add,x\n", "no trace"),
    ],
)
def test_a_damaged_trace_is_refused_in_one_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(BadInput, match=said) as refused:
        read_trace(path)
    assert "\n" not in str(refused.value)


def test_more_machines_than_a_trace_has_and_rates_that_are_none_are_refused() -> None:
    trace = Trace("few", (Change(0, "a", True), Change(9, "a", False)), 10.0)
    with pytest.raises(BadInput, match="never has more than 1"):
        of_traces([trace], 2)
    for rate in (0.0, -1.0, math.nan, 1e9):
        with pytest.raises(BadInput, match="loss rate"):
            LossRate(rate)


def test_a_training_that_never_ends_is_refused() -> None:
    training = SpotTraining(1, 5, 1000.0, 0.0, 0.0)
    with pytest.raises(BadInput, match="does not end within a year"):
        replay(training, from_rate(60.0, 1, 3600.0, random.Random(0)))


def test_a_spread_leaves_out_a_twentieth_at_each_end() -> None:
    assert Spread.of([float(each) for each in range(101)]) == Spread(50.0, 5.0, 95.0)


def test_a_silent_machine_is_known_to_be_lost_when_the_cluster_says() -> None:
    assert (DETECTION_SECONDS, WARM_DETECTION_SECONDS) == (LOST_AFTER_SECONDS, LOST_SOON_SECONDS)


def test_eager_copies_pay_up_to_the_losses_at_which_both_take_as_long() -> None:
    pace = EagerPace(forward=0.4, plain=12.0, seconds=13.0)
    every = pace.pays_every(epoch=10.0)
    # From one loss to the next: so many epochs, and what is repeated in the mean.
    assert every * 10.0 + 10.0 / 2 == pytest.approx(every * 13.0 + 12.0 * 0.6**2 / 2)
    assert pace.pays_every(epoch=4.0) == 0.0  # they repeat more than a whole epoch of warm copies
    assert math.isinf(pace.pays_every(epoch=13.0))


def test_eager_copies_of_an_offer_by_columns_are_those_by_vertices_and_with_lambdas_there_are_none() -> None:
    book = price_book()
    fleet = Fleet(Rental(book.instance("c5n.2xlarge"), spot=True), 3)

    def eager(layout: str, **setup: Any) -> EagerPace | None:
        estimates = Estimates(small_request(layout=layout), reference(), book)
        return paces_of(estimates.offer(TrainingSetup(fleet, **setup)), estimates).eager

    by_vertices = eager("vertices")
    assert by_vertices is not None
    assert by_vertices.seconds >= by_vertices.plain > 0
    assert 0 < by_vertices.forward < 1
    assert eager("columns:1") == by_vertices
    assert eager("vertices", lambda_count=2) is None
    assert eager("vertices", mode="async") is None
