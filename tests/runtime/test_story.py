"""Story: what is kept of events and instructions, and how it is told."""

from typing import Any

import pytest

from siafu.base.activity import About
from siafu.pipeline import events as happens
from siafu.pipeline import instructions as does
from siafu.pipeline.ids import RUN, Address, Epoch, Incarnation, IntervalId, PhaseId, ServerId, Version
from siafu.pipeline.schedule import training_schedule
from siafu.pipeline.task import Task
from siafu.runtime.story import LONGEST_TEXT, Story, fit, stuck
from siafu.runtime.story_words import _WORDS
from siafu.serverless.control import events as lambda_happens
from siafu.serverless.control import instructions as lambda_does
from siafu.serverless.control.ids import InvocationId, TaskId

NOW = Incarnation(0)
GRAPH, WEIGHT = Address("graph", ServerId(0)), Address("weight", ServerId(0))


def gradient(interval: int, epoch: int = 0) -> happens.GradientArrived:
    return happens.GradientArrived(Epoch(epoch), PhaseId(1), IntervalId(interval))


def task(interval: int, epoch: int) -> Task:
    stage = training_schedule(0, 1, {0, 1}).stages[1]
    return Task("train", Epoch(epoch), stage, IntervalId(interval))


@pytest.mark.parametrize(
    ("module", "base"),
    [
        (happens, happens.Event),
        (does, does.Instruction),
        (lambda_happens, lambda_happens.ControllerEvent),
        (lambda_does, lambda_does.ControllerInstruction),
    ],
)
def test_every_event_and_instruction_has_words(module: Any, base: type) -> None:
    kinds = {each for each in vars(module).values() if isinstance(each, type) and issubclass(each, base)}
    assert {each for each in kinds if each.__module__ == module.__name__} - {base} <= _WORDS.keys()


def test_the_latest_entries_are_kept() -> None:
    story = Story(most=3)
    for interval in range(10):
        story.note(GRAPH, gradient(interval))
    assert [each.interval for each in story.of()] == [7, 8, 9]


def test_an_intervals_story_is_told_in_order_with_epochs_from_1() -> None:
    story = Story()
    run = does.RunTask(task(3, 4), Version(4), ServerId(0))
    story.note(GRAPH, run)
    story.note(GRAPH, does.RunTask(task(2, 4), Version(4), ServerId(0)))
    story.note(GRAPH, happens.TaskDone(run.task))
    story.note(GRAPH, does.Send(WEIGHT, gradient(3, epoch=4)))
    story.note(WEIGHT, gradient(3, epoch=4))
    assert [(each.at, each.text) for each in story.of(interval=3)] == [
        ("graph server 0", "run G1 of interval 3, train epoch 5, version 4"),
        ("graph server 0", "G1 of interval 3, train epoch 5 is done"),
        ("graph server 0", "tell weight server 0: gradient of interval 3 for phase 1, epoch 5, arrives"),
        ("weight server 0", "gradient of interval 3 for phase 1, epoch 5, arrives"),
    ]


def test_entries_are_found_by_epoch_stage_and_server() -> None:
    story = Story()
    story.note(GRAPH, does.RunTask(task(3, 4), Version(4), ServerId(0)))
    story.note(WEIGHT, gradient(3, epoch=6))
    story.note(RUN, does.Send(GRAPH, happens.Proceed(Epoch(9), None)))
    assert [each.what for each in story.of(epoch=5)] == ["RunTask"]
    assert [each.what for each in story.of(stage=1)] == ["RunTask"]
    assert [each.what for each in story.of(server="weight server 0")] == ["GradientArrived"]
    assert [each.what for each in story.of(server="graph server 0")] == ["RunTask", "Send Proceed"]


def test_a_lambdas_story_is_that_of_its_tasks_interval_too() -> None:
    story = Story()
    offer = lambda_does.OfferTask(InvocationId(7), b"peer", TaskId(1))  # type: ignore[arg-type]
    story.note_lambdas(offer, About("graph server 1", 0, 5))
    story.note_lambdas(lambda_does.CancelInvocation(InvocationId(8)), None)
    assert story.of(invocation=7) == story.of(interval=5) == story.of(server="graph server 1")
    assert story.of(invocation=7)[0].text == "offer task 1 to Lambda 7, interval 5, epoch 1"


def test_the_message_of_a_stuck_run_has_the_last_lines_and_what_waits() -> None:
    story = Story()
    for interval in range(9):
        story.note(GRAPH, gradient(interval))
    told = stuck("stuck", story, ["a waits", "b waits", "c waits"], last=2, most=2).splitlines()
    assert (told[0], told[1], told[4:]) == (
        "stuck",
        "Last:",
        ["Waiting:", "a waits", "b waits", "and 1 more"],
    )
    assert "interval 7" in told[2]
    assert "interval 8" in told[3]


def test_no_line_is_endless_or_moves_the_cursor() -> None:
    assert fit("a\x1b[2J\nb") == "a [2J b"
    assert len(fit("x" * 10_000)) == LONGEST_TEXT
