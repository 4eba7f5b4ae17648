"""One weight server: events in, instructions out."""

from hypothesis import given
from hypothesis import strategies as st

from siafu.pipeline.events import (
    Begin,
    BestKept,
    Closed,
    GradientArrived,
    GradientTaken,
    Noted,
    Ready,
    Resume,
    RoomMade,
    Settle,
    Settled,
    TakenOver,
    UpdateDone,
    UpdateDue,
    WeightsAsked,
    WeightsGranted,
    WeightsMade,
    WeightsReleased,
)
from siafu.pipeline.gradients import Gradients
from siafu.pipeline.ids import (
    RUN,
    Address,
    Anchor,
    Epoch,
    IntervalId,
    Life,
    PhaseId,
    Role,
    ServerId,
    Version,
)
from siafu.pipeline.instructions import (
    Accumulate,
    FreeWeights,
    Instruction,
    KeepBest,
    KeepWeights,
    Restore,
    Update,
)
from siafu.pipeline.setup import Setup
from siafu.pipeline.weight_server import WeightServer
from tests.pipeline.small import NOW, START, receivers, sent, setup


def server(setup: Setup, number: int = 0) -> WeightServer:
    machine = WeightServer(setup, ServerId(number))
    machine.handle(Begin(NOW, START, setup.exact))
    return machine


def ask(
    machine: WeightServer,
    interval: int | None,
    epoch: int = 0,
    version: int | None = None,
    oldest: int | None = None,
) -> list[Instruction]:
    return machine.handle(
        WeightsAsked(
            RUN if interval is None else Address("graph", ServerId(0)),
            None if interval is None else IntervalId(interval),
            Epoch(epoch),
            None if version is None else Version(version),
            None if oldest is None else Version(oldest),
        )
    )


def release(
    machine: WeightServer, interval: int | None, epoch: int = 0, best: bool = False
) -> list[Instruction]:
    return machine.handle(
        WeightsReleased(None if interval is None else IntervalId(interval), Epoch(epoch), best)
    )


def gradient(machine: WeightServer, interval: int, phase: int = 1, epoch: int = 0) -> list[Instruction]:
    return machine.handle(GradientArrived(Epoch(epoch), PhaseId(phase), IntervalId(interval)))


def updated(machine: WeightServer, version: int) -> list[Instruction]:
    return machine.handle(UpdateDone(Version(version)))


def updates(instructions: list[Instruction]) -> list[Version]:
    return [each.version for each in instructions if isinstance(each, Update)]


def granted(instructions: list[Instruction]) -> list[Version]:
    return [each.version for each in sent(instructions, WeightsGranted)]


def train_epoch(machine: WeightServer, epoch: int = 0, intervals: int = 2) -> list[Instruction]:
    """All gradients of an epoch of a one-layer model."""
    return [each for interval in range(intervals) for each in gradient(machine, interval, 1, epoch)]


def test_it_begins_with_the_version_it_is_told() -> None:
    machine = WeightServer(setup(), ServerId(0))
    out = machine.handle(Begin(NOW, Anchor(Epoch(4), Version(6)), True))
    assert out[0] == Restore(Epoch(4), Version(6))
    assert len(sent(out, Ready)) == 1
    assert granted(ask(machine, 0, epoch=4, version=6)) == [6]


def test_a_version_that_is_not_there_yet_is_granted_when_it_is() -> None:
    machine = server(setup(layers=1))
    assert granted(ask(machine, 0, epoch=1, version=1)) == []
    assert updates(train_epoch(machine)) == [1]
    assert granted(updated(machine, 1)) == [1]


def test_the_latest_version_is_waited_for_where_it_would_be_too_old() -> None:
    machine = server(setup(layers=1, mode="async"))
    assert granted(ask(machine, 0, epoch=1, oldest=1)) == []
    assert updates(train_epoch(machine)) == [1]
    assert granted(updated(machine, 1)) == [1]
    train_epoch(machine, epoch=1)
    updated(machine, 2)
    assert granted(ask(machine, 1, epoch=1, oldest=1)) == [2]


def test_who_asks_for_the_latest_while_a_newer_one_is_made_waits_for_that() -> None:
    machine = server(setup(layers=1, mode="async"))
    assert updates(train_epoch(machine)) == [1]
    assert granted(ask(machine, 0, epoch=1)) == []
    assert granted(updated(machine, 1)) == [1]


def test_nobody_waits_for_parts_of_the_newer_version_that_others_have_yet_to_make() -> None:
    machine = server(setup(layers=2, mode="async", weight_servers=2))
    assert updates([*gradient(machine, 0), *gradient(machine, 1)]) == [1]
    assert granted(ask(machine, 0, epoch=1)) == []
    assert granted(updated(machine, 1)) == [0]


def test_a_request_that_comes_again_is_not_granted_again() -> None:
    machine = server(setup())
    ask(machine, 0)
    assert ask(machine, 0) == []
    release(machine, 0)
    assert ask(machine, 0) == []


def test_a_grant_tells_the_load() -> None:
    machine = server(setup(mode="async"))
    ask(machine, 0)
    assert [each.load for each in sent(ask(machine, 1), WeightsGranted)] == [2]


def test_a_version_in_use_is_kept_and_freed_by_its_last_holder() -> None:
    machine = server(setup(layers=1, mode="async"))
    for interval in (0, 1):
        ask(machine, interval)
    train_epoch(machine)
    assert FreeWeights(Version(0)) not in updated(machine, 1)
    assert FreeWeights(Version(0)) not in release(machine, 0)
    assert FreeWeights(Version(0)) in release(machine, 1)
    assert machine.counts.versions_peak == 2


def test_a_version_that_no_one_holds_is_freed_at_once() -> None:
    machine = server(setup(layers=1, mode="async"))
    train_epoch(machine)
    assert FreeWeights(Version(0)) in updated(machine, 1)


def test_the_best_model_is_copied_before_its_version_is_freed() -> None:
    machine = server(setup(layers=1, mode="async"))
    ask(machine, None, version=0)
    train_epoch(machine)
    updated(machine, 1)
    out = release(machine, None, best=True)
    assert [out[0], out[-1]] == [KeepBest(Epoch(0), Version(0)), FreeWeights(Version(0))]
    assert sent(out, BestKept) == [BestKept(Epoch(0))]


def test_a_release_that_comes_again_is_dropped() -> None:
    machine = server(setup())
    ask(machine, 0)
    release(machine, 0)
    assert release(machine, 0) == []


def test_a_gradient_is_acknowledged_to_its_server_and_counts_once() -> None:
    machine = server(setup(intervals=(1, 1), layers=1))
    assert receivers(gradient(machine, 1), GradientTaken) == ["graph server 1"]
    again = gradient(machine, 1)
    assert [receivers(again, GradientTaken), len(again)] == [["graph server 1"], 1]
    assert (machine.counts.gradients, machine.counts.duplicates) == (1, 1)


def test_an_update_waits_for_every_phase_at_home_here() -> None:
    machine = server(setup(intervals=(1,)))
    assert updates(gradient(machine, 0, phase=2)) == []
    assert updates(gradient(machine, 0, phase=1)) == [1]


def test_an_update_that_is_done_twice_counts_once() -> None:
    machine = server(setup(layers=1))
    train_epoch(machine)
    updated(machine, 1)
    assert updated(machine, 1) == []


def test_a_new_version_goes_to_all_other_weight_servers() -> None:
    machine = server(setup(layers=1, weight_servers=3))
    train_epoch(machine)
    assert receivers(updated(machine, 1), WeightsMade) == ["weight server 1", "weight server 2"]


def test_a_version_is_complete_when_all_parts_are_there() -> None:
    machine = server(setup(weight_servers=2))
    ask(machine, 0, epoch=1, version=1)
    train_epoch(machine)
    assert granted(updated(machine, 1)) == []
    out = machine.handle(WeightsMade(ServerId(1), Version(1)))
    assert out[0] == KeepWeights(ServerId(1), Version(1))
    assert granted(out) == [1]


def test_a_part_that_comes_again_or_too_late_is_not_kept() -> None:
    machine = server(setup(layers=1, mode="async", weight_servers=2), 1)
    made = [WeightsMade(ServerId(0), Version(version)) for version in (1, 2)]
    assert machine.handle(made[1]) == [KeepWeights(ServerId(0), Version(2)), FreeWeights(Version(0))]
    assert machine.handle(made[1]) == []
    assert machine.handle(made[0]) == []


def test_asynchronous_updates_are_made_of_as_many_gradients_as_asked() -> None:
    machine = server(setup(intervals=(4,), layers=1, mode="async", update_every=2))
    assert updates(train_epoch(machine, intervals=4)) == [1]
    assert updates(updated(machine, 1)) == [2]


def test_no_asynchronous_update_before_the_first_epochs_gradients_are_all_there() -> None:
    machine = server(setup(intervals=(3,), layers=1, mode="async", update_every=1))
    assert updates(gradient(machine, 0)) == []
    assert updates(gradient(machine, 1)) == []
    assert updates(gradient(machine, 2)) == [1]


def test_what_is_left_is_applied_when_the_weights_settle() -> None:
    machine = server(setup(intervals=(3,), layers=1, mode="async", update_every=2))
    train_epoch(machine, intervals=3)
    assert updates(updated(machine, 1)) == []
    settle = Settle(Anchor(Epoch(1), Version(2)), False)
    assert updates(machine.handle(settle)) == [2]
    assert sent(updated(machine, 2), Settled) == [Settled(ServerId(0), settle)]
    assert machine.handle(settle) == []


def test_after_a_switch_every_epoch_makes_one_version() -> None:
    machine = server(setup(intervals=(3,), layers=1, mode="async", update_every=1))
    train_epoch(machine, intervals=3)
    for version in (1, 2, 3):
        updated(machine, version)
    machine.handle(Settle(Anchor(Epoch(1), Version(3)), True))
    assert updates(train_epoch(machine, epoch=1, intervals=3)) == [4]


def test_two_versions_are_the_most_that_2bw_holds() -> None:
    machine = server(setup(intervals=(1,), layers=1, mode="async", policy="2bw"))
    for epoch in (0, 1, 2):
        ask(machine, 0, epoch)
        if epoch < 2:
            assert updates(gradient(machine, 0, epoch=epoch)) == ([epoch + 1] if epoch == 0 else [])
        if epoch == 0:
            updated(machine, 1)
    assert updates(release(machine, 0, epoch=0)) == [2]


def test_flush_lets_no_one_in_until_all_are_out_and_the_update_is_made() -> None:
    machine = server(setup(intervals=(2,), layers=1, mode="async", policy="flush", staleness=1))
    for interval in (0, 1):
        ask(machine, interval)
    assert updates(train_epoch(machine)) == []
    assert granted(ask(machine, 0, epoch=1)) == []
    release(machine, 0)
    assert updates(release(machine, 1)) == [1]
    assert granted(updated(machine, 1)) == [1]
    assert machine.counts.versions_peak == 1


def test_flush_asks_the_other_servers_for_room_and_waits_for_them() -> None:
    machine = server(setup(intervals=(1,), layers=1, mode="async", policy="flush", weight_servers=2))
    out = gradient(machine, 0)
    assert (receivers(out, UpdateDue), updates(out)) == (["weight server 1"], [])
    assert updates(machine.handle(RoomMade(ServerId(1), Version(1)))) == [1]


def test_a_server_without_holders_makes_room_when_it_is_asked() -> None:
    machine = server(setup(intervals=(1,), layers=1, mode="async", policy="flush", weight_servers=2), 1)
    ask(machine, 0)
    due = UpdateDue(Version(1))
    assert sent(machine.handle(due), RoomMade) == []
    assert sent(release(machine, 0), RoomMade) == [RoomMade(ServerId(1), Version(1))]
    assert machine.handle(due) == []


def test_it_says_what_waits_for_what() -> None:
    machine = server(setup(policy="flush", mode="async"))
    ask(machine, 0)
    ask(machine, 1, version=2)
    assert machine.waiting() == [
        "weight server 0: has made 0, holds [0], latest 0, room {0: 0}",
        "weight server 0: interval 1 waits for version 2, for epoch 1",
        "weight server 0: interval 0 holds version 0 for epoch 1",
    ]


def test_where_epochs_close_versions_are_held_from_the_open_epochs_on() -> None:
    machine = server(setup(layers=1))
    train_epoch(machine)
    assert [each for each in updated(machine, 1) if isinstance(each, FreeWeights)] == []
    assert machine.handle(Closed(Version(1), None)) == [FreeWeights(Version(0))]
    assert machine.handle(Closed(Version(1), None)) == []


def test_an_evaluations_version_is_held_until_an_epoch_closes_after_it() -> None:
    machine = server(setup(layers=1))
    for epoch, held in ((0, 0), (1, None)):
        train_epoch(machine, epoch)
        updated(machine, epoch + 1)
        out = machine.handle(Closed(Version(epoch + 1), None if held is None else Version(held)))
        assert out == ([] if epoch == 0 else [FreeWeights(Version(0)), FreeWeights(Version(1))])


def taken_over(role: Role, start: int = 0) -> TakenOver:
    anchor = Anchor(Epoch(start), Version(start))
    return TakenOver(Address(role, ServerId(0)), Life(2), anchor, None)


def test_intervals_of_a_new_graph_server_may_ask_again() -> None:
    machine = server(setup())
    assert granted(ask(machine, 0)) == [0]
    noted = Noted(machine.address, Address("graph", ServerId(0)), Life(2))
    assert sent(machine.handle(taken_over("graph")), Noted) == [noted]
    assert granted(ask(machine, 0)) == [0]


def test_a_new_weight_server_gets_the_parts_that_others_have_made_and_shares_its_own() -> None:
    machine = server(setup(weight_servers=2), 1)
    for interval in (0, 1):
        gradient(machine, interval, phase=2)
    updated(machine, 1)
    assert sent(machine.handle(taken_over("weight")), WeightsMade) == [WeightsMade(ServerId(1), Version(1))]
    fresh = WeightServer(setup(weight_servers=2), ServerId(0), Life(2))
    out = fresh.handle(Resume(NOW, START, True))
    assert out[0] == Restore(Epoch(0), Version(0))
    assert sent(out, WeightsMade) == [WeightsMade(ServerId(0), Version(0))]


@given(st.permutations([(phase, interval) for phase in (0, 1) for interval in range(4)]))
def test_exact_sums_are_in_the_order_of_intervals_whatever_the_order_of_arrival(
    arrivals: list[tuple[int, int]],
) -> None:
    gradients = Gradients((PhaseId(0), PhaseId(1)), 4, 4, START, exact=True)
    found: list[Accumulate] = []
    for place, (phase, interval) in enumerate(arrivals):
        added = gradients.take(Epoch(0), PhaseId(phase), IntervalId(interval))
        assert added is not None
        found += added
        assert gradients.complete(Version(1)) == (place == len(arrivals) - 1)
    for phase in (0, 1):
        assert [each.interval for each in found if each.phase == phase] == [0, 1, 2, 3]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=40), st.integers(1, 5))
def test_each_gradient_is_added_once_however_often_it_comes(
    arrivals: list[tuple[int, int]], every: int
) -> None:
    gradients = Gradients((PhaseId(0),), 4, every, START, exact=False)
    taken = [gradients.take(Epoch(epoch), PhaseId(0), IntervalId(interval)) for epoch, interval in arrivals]
    added = [(each.epoch, each.interval) for some in taken for each in some or []]
    assert len(added) == len(set(added)) == len(set(arrivals))
