"""An eager copy: it runs forward tasks and sends nothing; and a server that was one begins with what it did."""

from typing import Any

from siafu.pipeline.ahead import KnownCopies
from siafu.pipeline.events import (
    Begin,
    CopyStands,
    Proceed,
    Ready,
    Resume,
    RowsArrived,
    RunAhead,
    TaskDone,
    WeightsAsked,
)
from siafu.pipeline.graph_copy import GraphCopy
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import Address, Anchor, Epoch, IntervalId, Life, ServerId, StageId, Version
from siafu.pipeline.instructions import Abandon, Adopt, CompareRows, Instruction, KeepRows, Send
from siafu.pipeline.setup import Setup
from siafu.pipeline.task import Task
from tests.pipeline.small import NOW, START, grant, graph_server, receivers, sent, setup
from tests.pipeline.small import tasks as to_run

COPY = Address("copy", ServerId(1))
TWO = setup(intervals=(1, 1), first=0)
"""Two servers with an interval each, which read each other's rows: T0 G1 T1 G2, and then the loss."""


def begun(made: Setup = TWO) -> GraphCopy:
    copy = GraphCopy(made, ServerId(1))
    copy.handle(Begin(NOW, START, True))
    return copy


def rows(epoch: int = 0, stage: int = 0, interval: int = 0) -> RowsArrived:
    return RowsArrived("train", Epoch(epoch), StageId(stage), IntervalId(interval))


def ahead(epoch: int = 0) -> RunAhead:
    return RunAhead(Epoch(epoch), Version(epoch))


def tasks(out: list[Instruction]) -> list[Task]:
    return [each.task for each in to_run(out)]


def finish_all(copy: GraphCopy, out: list[Instruction]) -> list[str]:
    """Finish tasks until there are none; their names."""
    names, ready = [], tasks(out)
    while ready:
        task = ready.pop(0)
        names.append(str(task.stage))
        ready += tasks(copy.handle(TaskDone(task)))
    return names


def promoted(copy: GraphCopy, start: Anchor = START) -> tuple[GraphServer, list[Instruction]]:
    machine = GraphServer(TWO, ServerId(1), Life(2), copy.ahead)
    return machine, machine.handle(Resume(NOW, start, True))


def test_it_begins_by_saying_so_and_does_nothing_before_an_epoch_is_open() -> None:
    copy = GraphCopy(TWO, ServerId(1))
    out = copy.handle(Begin(NOW, START, True))
    assert isinstance(out[0], Abandon)
    assert sent(out, Ready) == [Ready(COPY)]
    assert copy.ahead is None


def test_it_runs_forward_tasks_as_rows_come_and_sends_nothing() -> None:
    copy = begun()
    out = copy.handle(ahead())
    assert finish_all(copy, out) == ["T0"], "gathers wait for the other server's rows"
    out = copy.handle(rows())
    assert isinstance(out[0], KeepRows)
    assert finish_all(copy, out) == ["G1", "T1"]
    assert finish_all(copy, copy.handle(rows(stage=2))) == ["G2"], "the last stage makes the loss"
    copy.validate()
    assert copy.ahead is not None
    assert copy.ahead.done == {1: 4}
    assert (StageId(2), IntervalId(1)) in copy.ahead.rows


def test_rows_of_another_epoch_do_not_count() -> None:
    copy = begun()
    copy.handle(ahead(1))
    assert copy.handle(rows(0)) == []
    assert copy.is_early(rows(2))
    assert copy.handle(rows(2)) == []
    assert copy.handle(ahead(1)) == [], "an epoch begins once"
    assert copy.duplicates == 3


def test_an_epoch_that_is_not_done_is_dropped_for_the_next() -> None:
    copy = begun()
    late = tasks(copy.handle(ahead(0)))
    out = copy.handle(ahead(1))
    assert isinstance(out[0], Abandon)
    assert copy.handle(TaskDone(late[0])) == []
    assert copy.ahead is not None
    assert copy.ahead.done == {1: 0}


def test_a_server_that_was_one_goes_on_where_it_was_and_sends_what_it_made() -> None:
    copy = begun()
    finish_all(copy, copy.handle(ahead()))
    finish_all(copy, copy.handle(rows()))
    machine, out = promoted(copy)
    assert isinstance(out[0], Adopt)
    asked = machine.handle(Proceed(Epoch(1), START))
    assert len(sent(asked, WeightsAsked)) == 1, "weights are asked for as ever"
    out = grant(machine, 1)
    assert receivers(out, RowsArrived) == ["graph server 0"] * 2, (
        "rows of T0 and T1 may have been lost with the other"
    )
    assert tasks(out) == [], "G2 waits for rows of T1"
    assert machine.counts.adopted == 3
    assert sum(machine.counts.row_ages.values()) == 2, "G1 read two intervals' rows"
    assert isinstance(machine.handle(rows())[0], CompareRows), "rows that it has are compared"
    assert [str(each.stage) for each in tasks(machine.handle(rows(stage=2)))] == ["G2"]
    machine.validate()


def test_what_is_of_another_epoch_or_version_is_dropped() -> None:
    for start in (Anchor(Epoch(1), Version(1)), Anchor(Epoch(0), Version(1))):
        copy = begun()
        finish_all(copy, copy.handle(ahead()))
        machine, out = promoted(copy, start)
        assert isinstance(out[0], Abandon)
        machine.handle(Proceed(Epoch(start.epoch + 1), start))
        out = grant(machine, 1, start.epoch, start.version)
        assert [str(each.stage) for each in tasks(out)] == ["T0"]


def also(out: list[Instruction]) -> list[Any]:
    return [each.also for each in out if isinstance(each, Send) and isinstance(each.message, RowsArrived)]


def test_rows_go_to_copies_that_are_there_along_with_their_servers() -> None:
    machine = graph_server(TWO)
    machine.handle(CopyStands(COPY, Life(1)))
    first = tasks(grant(machine, 0))[0]
    assert also(machine.handle(TaskDone(first))) == [COPY]
    other = graph_server(TWO)
    other.handle(CopyStands(COPY, Life(1), there=False))
    other.handle(CopyStands(COPY, Life(1)))  # came late
    assert also(other.handle(TaskDone(tasks(grant(other, 0))[0]))) == [None]


def test_of_copies_the_latest_news_count() -> None:
    known = KnownCopies()
    assert known.of(ServerId(1)) is None
    assert known.take(CopyStands(COPY, Life(2)))
    assert not known.take(CopyStands(COPY, Life(1), there=False))
    assert known.of(ServerId(1)) == COPY
    assert known.take(CopyStands(COPY, Life(2), there=False))
    assert known.of(ServerId(1)) is None
    assert known.take(CopyStands(COPY, Life(3)))


def test_copies_run_ahead_only_where_rows_can_be_sent_again() -> None:
    assert TWO.ahead is not None
    assert [str(each) for each in TWO.ahead.stages] == ["T0", "G1", "T1", "G2"]
    assert setup(intervals=(1, 1), mode="async").ahead is None
