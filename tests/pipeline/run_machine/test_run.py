"""The run: events in, instructions out."""

import math
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.base.errors import SiafuError
from siafu.objective.metric import ACCURACY
from siafu.objective.score import Score
from siafu.pipeline.events import (
    Begin,
    BestKept,
    CheckpointAsked,
    CheckpointSaved,
    EpochClosed,
    EpochFinished,
    EvaluationStarted,
    Event,
    HandOverAsked,
    Measures,
    Noted,
    Proceed,
    Ready,
    Resume,
    ServerGone,
    Settle,
    Settled,
    StateMade,
    StopAsked,
    TakenOver,
    WeightsAsked,
    WeightsGranted,
    WeightsReleased,
)
from siafu.pipeline.ids import Address, Anchor, Epoch, Incarnation, LaneName, Life, ServerId, Version
from siafu.pipeline.instructions import (
    CloseEpochs,
    HoldCheckpoint,
    Instruction,
    KeepBest,
    KeepState,
    RecordEpoch,
    Replace,
    Rewind,
    SaveCheckpoint,
    Send,
    Stop,
)
from siafu.pipeline.run_machine.records import Evaluation, Records
from siafu.pipeline.run_machine.run import RunMachine
from siafu.pipeline.run_machine.run_options import RunOptions
from siafu.pipeline.setup import Setup
from siafu.report.files.metrics import EpochMetrics, best_epoch
from tests.pipeline.small import NOW, START, sent, setup


def score(measures: Measures) -> Score:
    return Score(accuracy=measures[1], loss=measures[0])


class Driver:
    """A run with one graph server and one weight server that do what they are told at once.

    accuracies: what the evaluations of the epochs find
    loss:       of every epoch
    """

    def __init__(
        self, given: Setup, options: RunOptions, accuracies: list[float], loss: float = 1.0, **more: object
    ) -> None:
        self.run = RunMachine(given, options, score, **more)  # type: ignore[arg-type]
        self.accuracies = accuracies
        self.loss = loss
        self.out: list[Instruction] = []
        self.entered = self.run._until

    def go(self) -> "Driver":
        """Until nothing is left to do."""
        self.take(self.run.begin())
        return self

    def handle(self, event: Event) -> None:
        self.take(self.run.handle(event))

    def take(self, instructions: list[Instruction]) -> None:
        self.out += instructions
        for each in instructions:
            if isinstance(each, SaveCheckpoint):
                self.handle(CheckpointSaved(each.epochs))
            elif isinstance(each, Send):
                self.answer(each.to, each.message)

    def answer(self, to: Address, message: Event) -> None:
        if isinstance(message, Begin):
            self.entered = message.start.epoch
            self.handle(Ready(to))
        elif isinstance(message, TakenOver):
            self.handle(Noted(to, message.server, message.life))
        elif isinstance(message, Settle):
            self.handle(Settled(to.index, message))
        elif isinstance(message, WeightsAsked):
            version = Version(message.version if message.version is not None else message.epoch + 1)
            self.handle(WeightsGranted(to.index, None, message.epoch, version, 1))
        elif isinstance(message, WeightsReleased) and message.best:
            self.handle(BestKept(message.epoch))
        elif isinstance(message, EvaluationStarted):
            self.finish("evaluate", message.epoch, (self.loss, self.accuracies[message.epoch]))
        elif isinstance(message, Proceed):
            while self.entered < message.until:
                self.entered = Epoch(self.entered + 1)
                self.finish("train", Epoch(self.entered - 1), (self.loss,))

    def finish(self, lane: LaneName, epoch: Epoch, measures: Measures) -> None:
        if lane == "train" and self.run.setup.closes:
            self.handle(made(self.run))
        self.handle(EpochFinished(lane, ServerId(0), epoch, measures))

    @property
    def stop(self) -> Stop:
        (found,) = [each for each in self.out if isinstance(each, Stop)]
        return found

    def all(self, kind: type[Instruction]) -> list[Instruction]:
        return [each for each in self.out if isinstance(each, kind)]


def made(run: RunMachine) -> StateMade:
    """The open epoch's version, from the one weight server."""
    closing = run._closing
    assert closing is not None
    return StateMade(ServerId(0), Version(closing.anchor.version + 1), 2, 1)


def drive(options: RunOptions, accuracies: list[float], **more: object) -> Driver:
    return Driver(setup(), options, accuracies, **more).go()  # type: ignore[arg-type]


def test_a_run_ends_after_its_epochs_with_the_best_of_them() -> None:
    assert drive(RunOptions(4), [0.1, 0.7, 0.7, 0.3]).stop == Stop("finished", Epoch(4), Version(4), Epoch(1))


def test_every_epoch_is_recorded_once_and_in_order() -> None:
    driver = drive(RunOptions(3, evaluate_every=2), [0.0, 0.5, 0.6])
    assert driver.all(RecordEpoch) == [
        RecordEpoch(Epoch(0), (1.0,), None, None),
        RecordEpoch(Epoch(1), (1.0,), (1.0, 0.5), Version(2)),
        RecordEpoch(Epoch(2), (1.0,), (1.0, 0.6), Version(3)),
    ]


def test_the_best_model_is_kept_when_it_is_found() -> None:
    driver = drive(RunOptions(3), [0.5, 0.4, 0.6])
    assert driver.all(KeepBest) == [KeepBest(Epoch(0), Version(1)), KeepBest(Epoch(2), Version(3))]
    assert not any(each.best for each in sent(driver.out, WeightsReleased))


def test_an_asynchronous_run_has_its_best_model_from_a_weight_server() -> None:
    driver = Driver(setup(mode="async"), RunOptions(3), [0.5, 0.4, 0.6]).go()
    assert [each.best for each in sent(driver.out, WeightsReleased)] == [True, False, True]


def test_a_run_stops_when_its_patience_ends() -> None:
    driver = drive(RunOptions(9, patience=2), [0.1, 0.5, 0.4, 0.4, 0.9, 0.9, 0.9, 0.9, 0.9])
    assert driver.stop == Stop("patience", Epoch(4), Version(4), Epoch(1))


def test_patience_ends_between_evaluations_too() -> None:
    driver = drive(RunOptions(9, patience=3, evaluate_every=2), [0.0, 0.5, 0.0, 0.4, 0.0, 0.9, 0.0, 0.9, 0.9])
    assert driver.stop.epochs == 5


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_a_number_ends_the_run(loss: float) -> None:
    assert drive(RunOptions(4), [0.1] * 4, loss=loss).stop == Stop("diverged", Epoch(0), None, None)


def test_a_server_that_is_lost_before_the_last_version_was_fetched_takes_the_end_back() -> None:
    driver = drive(RunOptions(1), [0.5])
    lost = Address("weight", ServerId(0))
    out = driver.run.handle(ServerGone(lost, Life(1)))
    assert out[0] == Replace(lost, Life(2), within=True)
    assert not driver.run.ended
    driver.out.clear()
    driver.take(out)
    assert (driver.stop, driver.all(RecordEpoch)) == (Stop("finished", Epoch(1), Version(1), Epoch(0)), [])


def test_nothing_happens_after_a_run_has_diverged() -> None:
    driver = drive(RunOptions(1), [0.5], loss=math.nan)
    assert driver.run.handle(ServerGone(Address("graph", ServerId(0)), Life(1))) == []


def test_nothing_but_a_loss_happens_after_the_end() -> None:
    driver = drive(RunOptions(1), [0.5])
    assert driver.run.handle(StopAsked()) == []


def test_checkpoints_come_after_every_so_many_epochs() -> None:
    driver = drive(RunOptions(5, checkpoint_every=2), [0.1] * 5)
    assert driver.all(SaveCheckpoint) == [
        SaveCheckpoint(Epoch(2), Version(2)),
        SaveCheckpoint(Epoch(4), Version(4)),
    ]


def test_a_resumed_run_goes_on_from_its_start() -> None:
    driver = drive(RunOptions(6), [0.1] * 6, start=Anchor(Epoch(4), Version(9)))
    assert [each.epoch for each in driver.all(RecordEpoch)] == [4, 5]
    assert driver.stop.version == 11


def quiet(options: RunOptions, **changes: object) -> RunMachine:
    """A run whose servers are ready and say nothing more."""
    given = setup(**changes)  # type: ignore[arg-type]
    run = RunMachine(given, options, score)
    for each in run.begin():
        if isinstance(each, Send):
            run.handle(Ready(each.to))
    return run


def finished(
    run: RunMachine, epoch: int, lane: LaneName = "train", measures: Measures = (1.0,)
) -> list[Instruction]:
    out = run.handle(made(run)) if lane == "train" and run.setup.closes else []
    return out + run.handle(EpochFinished(lane, ServerId(0), Epoch(epoch), measures))


def until(instructions: list[Instruction]) -> list[int]:
    return [each.until for each in sent(instructions, Proceed)]


def test_no_one_proceeds_before_all_servers_have_begun() -> None:
    run = RunMachine(setup(intervals=(1, 1)), RunOptions(3), score)
    begun = [each.to for each in run.begin() if isinstance(each, Send)]
    found = [until(run.handle(Ready(to))) for to in begun]
    assert found == [[], [], [1, 1]]


def test_exact_training_waits_until_an_evaluation_has_its_version() -> None:
    run = quiet(RunOptions(5))
    out = finished(run, 0)
    assert (until(out), [each.version for each in sent(out, WeightsAsked)]) == ([], [1])
    granted = WeightsGranted(ServerId(0), None, Epoch(0), Version(1), 1)
    assert until(run.handle(granted)) == [2]
    assert run.handle(granted) == []


def test_training_waits_for_an_evaluation_that_uses_its_tables() -> None:
    run = quiet(RunOptions(5), alternate=True)
    finished(run, 0)
    granted = WeightsGranted(ServerId(0), None, Epoch(0), Version(1), 1)
    assert until(run.handle(granted)) == []
    assert until(finished(run, 0, "evaluate", (1.0, 0.5))) == [2]


def test_asynchronous_intervals_never_wait_for_one() -> None:
    with pytest.raises(SiafuError, match="beside"):
        setup(mode="async", alternate=True)


def test_one_evaluation_at_a_time() -> None:
    run = quiet(RunOptions(5))
    finished(run, 0)
    run.handle(WeightsGranted(ServerId(0), None, Epoch(0), Version(1), 1))
    assert sent(finished(run, 1), WeightsAsked) == []
    assert len(sent(finished(run, 0, "evaluate", (1.0, 0.5)), WeightsAsked)) == 1


@pytest.mark.parametrize(("update_every", "versions"), [(None, [1, 2]), (1, [2, 4]), (3, [0, 1])])
def test_an_asynchronous_evaluation_is_of_weights_that_have_the_epochs_gradients(
    update_every: int | None, versions: list[int]
) -> None:
    run = quiet(RunOptions(9), mode="async", update_every=update_every)
    (first,) = sent(finished(run, 0), WeightsAsked)
    run.handle(WeightsGranted(ServerId(0), None, Epoch(0), Version(versions[0]), 1))
    finished(run, 1)
    finished(run, 0, "evaluate", (1.0, 0.5))
    (second,) = sent(run.handle(BestKept(Epoch(0))), WeightsAsked)
    assert [(each.version, each.oldest) for each in (first, second)] == [(None, each) for each in versions]


def test_asynchronous_training_goes_on_while_an_evaluation_waits() -> None:
    run = quiet(RunOptions(9), mode="async", staleness=1)
    assert until(finished(run, 0)) == [3]


def test_reports_that_come_again_are_dropped() -> None:
    run = quiet(RunOptions(5))
    finished(run, 0)
    assert run.handle(EpochFinished("train", ServerId(0), Epoch(0), (1.0,))) == []
    assert run.handle(StateMade(ServerId(0), Version(1), 2, 1)) == []
    assert run.duplicates == 2


def saving(instructions: list[Instruction]) -> list[Instruction]:
    return [each for each in instructions if isinstance(each, HoldCheckpoint | SaveCheckpoint)]


def test_an_exact_run_stands_still_for_no_checkpoint() -> None:
    run = quiet(RunOptions(50, evaluate_every=50))
    run.handle(CheckpointAsked())
    out = finished(run, 0)
    assert saving(out) == [HoldCheckpoint(Epoch(1), Version(1)), SaveCheckpoint(Epoch(1), Version(1))]
    assert (until(out), sent(out, Settle)) == ([2], [])
    assert saving(finished(run, 1)) == []


def test_a_closed_epoch_is_a_checkpoint_when_its_evaluation_is_recorded_though_training_goes_on() -> None:
    run = quiet(RunOptions(50, checkpoint_every=1))
    assert saving(finished(run, 0)) == [HoldCheckpoint(Epoch(1), Version(1))]
    assert until(run.handle(WeightsGranted(ServerId(0), None, Epoch(0), Version(1), 1))) == [2]
    assert saving(finished(run, 1)) == [HoldCheckpoint(Epoch(2), Version(2))]
    out = finished(run, 0, "evaluate", (1.0, 0.5))
    assert saving(out) == [SaveCheckpoint(Epoch(1), Version(1))]
    kinds = [type(each) for each in out]
    assert kinds.index(KeepBest) < kinds.index(RecordEpoch) < kinds.index(SaveCheckpoint)


def test_an_asynchronous_run_stands_still_for_a_checkpoint() -> None:
    run = quiet(RunOptions(50, evaluate_every=50), mode="async")
    run.handle(CheckpointAsked())
    finished(run, 0)
    (settle,) = sent(finished(run, 1), Settle)
    assert settle == Settle(Anchor(Epoch(2), Version(2)), False)
    assert run.handle(Settled(ServerId(0), settle)) == [SaveCheckpoint(Epoch(2), Version(2))]
    assert until(run.handle(CheckpointSaved(Epoch(2)))) == [4]
    assert run.handle(CheckpointSaved(Epoch(2))) == []


def test_a_run_that_is_asked_to_stop_stops_and_saves_at_its_end() -> None:
    run = quiet(RunOptions(50, evaluate_every=50))
    run.handle(StopAsked())
    out = finished(run, 0)
    (settle,) = sent(out, Settle)
    out += run.handle(Settled(ServerId(0), settle))
    assert (saving(out), out[-1]) == ([], Stop("asked", Epoch(1), Version(1), None))


def test_an_asynchronous_run_does_not_end_before_its_best_model_is_kept() -> None:
    run = quiet(RunOptions(1), mode="async")
    (settle,) = sent(finished(run, 0), Settle)
    run.handle(Settled(ServerId(0), settle))
    run.handle(WeightsGranted(ServerId(0), None, Epoch(0), Version(1), 1))
    assert not any(isinstance(each, Stop) for each in finished(run, 0, "evaluate", (1.0, 0.5)))
    record = RecordEpoch(Epoch(0), (1.0,), (1.0, 0.5), Version(1))
    assert run.handle(BestKept(Epoch(0))) == [record, Stop("finished", Epoch(1), Version(1), Epoch(0))]


def test_an_epoch_is_closed_when_all_have_finished_it_and_what_it_made_is_here() -> None:
    run = quiet(RunOptions(50, evaluate_every=50), weight_servers=2)
    done = [
        EpochFinished("train", ServerId(0), Epoch(0), (1.0,)),
        *(StateMade(ServerId(each), Version(1), 2, 1) for each in range(2)),
    ]
    for last in range(3):
        run = quiet(RunOptions(50, evaluate_every=50), weight_servers=2)
        for each in [*done[:last], *done[last + 1 :]]:
            assert until(run.handle(each)) == []
        out = run.handle(done[last])
        kept = [each for each in out if isinstance(each, KeepState)]
        assert kept == ([KeepState(ServerId(last - 1), Version(1), Epoch(1))] if last else [])
        assert CloseEpochs(Epoch(1), Version(1), None) in out
        assert until(out) == [2]


def rejoin(run: RunMachine, server: Address) -> list[Instruction]:
    """One in a lost server's place is ready, and all others know of it."""
    told = [
        (each.to, each.message)
        for each in run.handle(Ready(server))
        if isinstance(each, Send) and isinstance(each.message, TakenOver)
    ]
    return [each for to, message in told for each in run.handle(Noted(to, message.server, message.life))]


def settled(run: RunMachine, out: list[Instruction]) -> list[Instruction]:
    """What follows, with what the weight server does that was asked to settle."""
    return out + [each for settle in sent(out, Settle) for each in run.handle(Settled(ServerId(0), settle))]


def test_after_a_loss_the_others_go_on_and_an_evaluation_is_run_again() -> None:
    run = quiet(RunOptions(50))
    finished(run, 0)
    run.handle(WeightsGranted(ServerId(0), None, Epoch(0), Version(1), 1))
    finished(run, 1)
    lost = Address("graph", ServerId(0))
    again = EvaluationStarted(Epoch(0), Version(1), ServerId(0))
    resume = Resume(NOW, Anchor(Epoch(2), Version(2)), True, again, ((lost, Life(2)),))
    assert run.handle(ServerGone(lost, Life(1))) == [Replace(lost, Life(2), within=True), Send(lost, resume)]
    assert run.handle(ServerGone(lost, Life(1))) == []
    out = rejoin(run, lost)
    assert sent(out, EvaluationStarted) == [again]
    assert until(out) == []
    records = finished(run, 0, "evaluate", (1.0, 0.5))
    assert RecordEpoch(Epoch(0), (1.0,), (1.0, 0.5), Version(1)) in records


def test_nothing_is_closed_before_all_know_of_one_in_a_lost_servers_place() -> None:
    run = quiet(RunOptions(50, evaluate_every=50), intervals=(1, 1))
    run.handle(made(run))
    first, second = (Address("graph", ServerId(each)) for each in (0, 1))
    run.handle(ServerGone(first, Life(1)))
    for server in (1, 0):
        run.handle(EpochFinished("train", ServerId(server), Epoch(0), (1.0,)))
    told = sent(run.handle(Ready(first)), TakenOver)
    assert told == [TakenOver(first, Life(2), START, None)] * 2
    assert run.handle(Noted(Address("weight", ServerId(0)), first, Life(2))) == []
    assert run.handle(Noted(second, first, Life(1))) == []
    out = run.handle(Noted(second, first, Life(2)))
    assert [each for each in out if isinstance(each, CloseEpochs)] == [
        CloseEpochs(Epoch(1), Version(1), None)
    ]


def test_measures_and_states_of_a_lost_server_are_taken_back() -> None:
    run = quiet(RunOptions(50, evaluate_every=50), intervals=(1, 1))
    lost, other = (Address("graph", ServerId(each)) for each in (0, 1))
    run.handle(EpochFinished("train", ServerId(0), Epoch(0), (1.0,)))
    run.handle(ServerGone(lost, Life(1)))
    run.handle(EpochFinished("train", ServerId(1), Epoch(0), (1.0,)))
    run.handle(made(run))
    home = Address("weight", ServerId(0))
    assert not [each for each in rejoin(run, lost) if isinstance(each, CloseEpochs)]
    run.handle(ServerGone(home, Life(1)))
    rejoin(run, home)
    assert not run.handle(EpochFinished("train", ServerId(0), Epoch(0), (1.0,)))
    assert CloseEpochs(Epoch(1), Version(1), None) in run.handle(made(run))
    assert run.handle(EpochFinished("train", other.index, Epoch(0), (1.0,))) == []


@pytest.mark.parametrize("role", ["graph", "weight"])
def test_what_is_held_for_a_checkpoint_outlives_a_loss(role: Literal["graph", "weight"]) -> None:
    run = quiet(RunOptions(50, checkpoint_every=1))
    assert saving(finished(run, 0)) == [HoldCheckpoint(Epoch(1), Version(1))]
    run.handle(WeightsGranted(ServerId(0), None, Epoch(0), Version(1), 1))
    lost = Address(role, ServerId(0))
    assert saving(run.handle(ServerGone(lost, Life(1)))) == []
    assert saving(rejoin(run, lost)) == []
    assert saving(finished(run, 0, "evaluate", (1.0, 0.5))) == [SaveCheckpoint(Epoch(1), Version(1))]


def test_a_server_is_handed_over_when_the_epoch_is_closed_and_the_next_waits_for_it() -> None:
    run = quiet(RunOptions(50, evaluate_every=50))
    moving = Address("graph", ServerId(0))
    assert run.handle(HandOverAsked(moving)) == []
    out = finished(run, 0)
    resume = Resume(NOW, Anchor(Epoch(1), Version(1)), True, None, ((moving, Life(2)),))
    assert out[-2:] == [Replace(moving, Life(2), within=True), Send(moving, resume)]
    assert until(out) == []
    assert until(rejoin(run, moving)) == [2]
    assert until(finished(run, 1)) == [3], "it is handed over once"


def test_one_that_is_lost_before_it_is_handed_over_is_replaced_once() -> None:
    run = quiet(RunOptions(50, evaluate_every=50))
    moving = Address("weight", ServerId(0))
    run.handle(HandOverAsked(moving))
    run.handle(ServerGone(moving, Life(1)))
    rejoin(run, moving)
    assert not [each for each in finished(run, 0) if isinstance(each, Replace)]


def test_where_all_would_begin_again_nothing_is_handed_over() -> None:
    run = forgetful(RunOptions(50, evaluate_every=50))
    run.handle(HandOverAsked(Address("graph", ServerId(0))))
    assert until(finished(run, 0)) == [2]


def forgetful(options: RunOptions) -> RunMachine:
    """A run whose rows do not stay; all are ready."""
    run = RunMachine(replace(setup(), rows_stay=False), options, score)
    run.begin()
    for to in run._servers:
        run.handle(Ready(to))
    return run


def test_where_rows_do_not_stay_all_begin_the_open_epoch_again() -> None:
    run = forgetful(RunOptions(50, evaluate_every=50))
    finished(run, 0)
    lost = Address("graph", ServerId(0))
    out = run.handle(ServerGone(lost, Life(1)))
    assert out[:2] == [Rewind(Epoch(1), to_checkpoint=False), Replace(lost, Life(2))]
    begin = Begin(Incarnation(1), Anchor(Epoch(1), Version(1)), True, None, ((lost, Life(2)),))
    assert sent(out, Begin) == [begin] * 2


def test_what_the_owner_says_late_of_a_record_holds_though_all_began_again() -> None:
    run = forgetful(RunOptions(50, evaluate_every=50, closes=True))
    assert until(finished(run, 0)) == []
    run.handle(ServerGone(Address("graph", ServerId(0)), Life(1)))
    run.handle(EpochClosed(NOW, Epoch(0)))
    out = [each for to in run._servers for each in run.handle(Ready(to))]
    assert until(out) == [2]


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_what_the_owner_said_of_a_record_holds_after_a_loss(stop: bool, late: bool) -> None:
    run = quiet(RunOptions(50, evaluate_every=50, closes=True))
    assert until(finished(run, 0)) == []
    seen = EpochClosed(NOW, Epoch(0), stop)
    before = [] if late else run.handle(seen)
    lost = Address("graph", ServerId(0))
    run.handle(ServerGone(lost, Life(1)))
    if late:
        run.handle(seen)
    out = settled(run, before + rejoin(run, lost))
    stops = [each for each in out if isinstance(each, Stop)]
    assert stops == ([Stop("told", Epoch(1), Version(1), None)] if stop else [])
    assert set(until(out)) == (set() if stop else {2})


def test_in_an_asynchronous_run_with_updates_of_its_own_a_loss_starts_again_from_the_checkpoint() -> None:
    run = quiet(RunOptions(50, evaluate_every=50, checkpoint_every=1), mode="async", update_every=2)
    (settle,) = sent(finished(run, 0), Settle)
    run.handle(Settled(ServerId(0), settle))
    run.handle(CheckpointSaved(Epoch(1)))
    lost = Address("weight", ServerId(0))
    out = run.handle(ServerGone(lost, Life(1)))
    assert out[:2] == [Rewind(Epoch(1), to_checkpoint=True), Replace(lost, Life(2))]
    assert (
        sent(out, Begin)
        == [Begin(Incarnation(1), Anchor(Epoch(1), Version(1)), False, None, ((lost, Life(2)),))] * 2
    )


def test_in_an_asynchronous_run_a_loss_takes_no_record_back() -> None:
    run = quiet(RunOptions(50, evaluate_every=50), mode="async", staleness=1)
    finished(run, 0)
    finished(run, 1)
    lost = Address("graph", ServerId(0))
    out = run.handle(ServerGone(lost, Life(1)))
    assert out[:2] == [Rewind(Epoch(2), to_checkpoint=False), Replace(lost, Life(2))]
    assert {each.start for each in sent(out, Begin)} == {Anchor(Epoch(2), Version(2))}


def test_asynchronous_epochs_that_waited_for_one_are_closed_together() -> None:
    run = quiet(
        RunOptions(50, evaluate_every=50), mode="async", staleness=2, intervals=(1, 1), weight_servers=1
    )
    for version in (1, 2):
        run.handle(StateMade(ServerId(0), Version(version), 2, 1))
    for epoch in (0, 1):
        run.handle(EpochFinished("train", ServerId(0), Epoch(epoch), (1.0,)))
    run.handle(EpochFinished("train", ServerId(1), Epoch(1), (1.0,)))
    out = run.handle(EpochFinished("train", ServerId(1), Epoch(0), (1.0,)))
    assert [each.epochs for each in out if isinstance(each, CloseEpochs)] == [1, 2]


def test_a_best_model_that_is_lost_on_its_way_is_evaluated_again() -> None:
    run = quiet(RunOptions(50), mode="async")
    finished(run, 0)
    run.handle(WeightsGranted(ServerId(0), None, Epoch(0), Version(1), 1))
    finished(run, 0, "evaluate", (1.0, 0.5))
    out = run.handle(ServerGone(Address("weight", ServerId(0)), Life(1)))
    assert not any(isinstance(each, RecordEpoch) for each in out)
    again = [
        each
        for to in run.setup.graph_addresses + run.setup.weight_addresses
        for each in run.handle(Ready(to))
    ]
    (asked,) = sent(again, WeightsAsked)
    assert (asked.epoch, asked.version, asked.oldest) == (Epoch(0), None, Version(1))


def test_a_run_that_was_about_to_turn_exact_does_so_after_a_loss() -> None:
    run = quiet(RunOptions(50, exact_above=0.4), mode="async")
    finished(run, 0)
    run.handle(WeightsGranted(ServerId(0), None, Epoch(0), Version(1), 1))
    finished(run, 0, "evaluate", (1.0, 0.5))
    run.handle(BestKept(Epoch(0)))
    out = run.handle(ServerGone(Address("graph", ServerId(0)), Life(1)))
    assert {each.exact for each in sent(out, Begin)} == {True}


def test_an_asynchronous_run_goes_on_exactly_once_it_is_good_enough() -> None:
    given = setup(mode="async", update_every=1)
    driver = Driver(given, RunOptions(6, exact_above=0.8), [0.1, 0.9, 0.9, 0.9, 0.9, 0.9]).go()
    settles = sent(driver.out, Settle)
    switch = next(each for each in settles if each.exact)
    assert switch.anchor.version == 2 * switch.anchor.epoch  # two intervals, an update each
    assert [each.exact for each in sent(driver.out, Proceed)][-1] is not None
    assert driver.stop.version == switch.anchor.version_of(Epoch(6))


def test_what_is_left_of_gradients_makes_one_more_version() -> None:
    driver = Driver(setup(intervals=(3,), mode="async", update_every=2), RunOptions(1), [0.5]).go()
    assert driver.stop.version == 2


def test_it_says_what_it_waits_for() -> None:
    (line,) = quiet(RunOptions(3)).waiting()
    assert line.startswith("run: 0 epochs trained, 0 recorded, until 1")


scores = st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([1.0, 2.0]))


@given(st.lists(scores, min_size=1, max_size=8))
def test_the_best_is_the_one_that_the_report_names(history: list[tuple[float, float]]) -> None:
    records = Records(Epoch(0), 1, lambda measures: Score(accuracy=measures[1], loss=measures[0]))
    for epoch, (accuracy, loss) in enumerate(history):
        records.add_evaluation(Epoch(epoch), Evaluation(Version(epoch + 1), (loss, accuracy)))
    metrics = [
        EpochMetrics(
            epoch=epoch + 1,
            train_loss=0.0,
            val_loss=loss,
            train_accuracy=0.0,
            val_accuracy=accuracy,
            test_accuracy=None,
            seconds=0.0,
            evaluate_seconds=0.0,
        )
        for epoch, (accuracy, loss) in enumerate(history)
    ]
    best = best_epoch(metrics, ACCURACY)
    assert best is not None
    assert records.best is not None
    assert records.best.epoch == best.epoch - 1


def test_a_stop_that_the_owner_has_told_outlives_a_loss() -> None:
    """After it, no server is let go on: the run ends where it stood."""
    for told in (False, True):
        run = quiet(RunOptions(50, evaluate_every=50, closes=True))
        finished(run, 0)
        before = run.handle(EpochClosed(NOW, Epoch(0), stop=told))
        lost = Address("graph", ServerId(0))
        run.handle(ServerGone(lost, Life(1)))
        out = settled(run, before + rejoin(run, lost))
        assert until(out) == ([] if told else [2, 2])
        stops = [each.reason for each in out if isinstance(each, Stop)]
        assert stops == (["told"] if told else [])


@given(st.integers(1, 20), st.integers(1, 30), st.integers(0, 40))
def test_the_next_epoch_that_is_evaluated_is_the_first_of_those(every: int, epochs: int, first: int) -> None:
    options = RunOptions(epochs, evaluate_every=every)
    expected = next(each for each in range(first, 100) if options.is_evaluated(Epoch(each)))
    assert options.next_evaluated(Epoch(first)) == expected
