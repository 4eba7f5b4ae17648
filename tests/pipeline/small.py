"""Small runs to try the machines on."""

from siafu.pipeline.events import Begin, Event, Proceed, TaskDone, WeightsGranted
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import Anchor, Epoch, Incarnation, IntervalId, Mode, ServerId, Version
from siafu.pipeline.instructions import Instruction, RunTask, Send
from siafu.pipeline.layout import Layout
from siafu.pipeline.schedule import evaluation_schedule, training_schedule
from siafu.pipeline.setup import Setup
from siafu.weights.policy import POLICIES

NOW = Incarnation(0)
START = Anchor(Epoch(0), Version(0))


def setup(
    *,
    intervals: tuple[int, ...] = (2,),
    reads: list[set[int]] | None = None,
    layers: int = 2,
    first: int = 1,
    mode: Mode = "pipe",
    policy: str = "stash",
    weight_servers: int = 1,
    staleness: int = 0,
    update_every: int | None = None,
    alternate: bool = False,
) -> Setup:
    """reads: for each interval, those that it reads; None: all read all."""
    count = sum(intervals)
    sets = reads or [set(range(count))] * count
    forward = tuple(frozenset(map(IntervalId, each)) for each in sets)
    backward = tuple(
        frozenset(IntervalId(reader) for reader in range(count) if source in sets[reader])
        for source in range(count)
    )
    return Setup(
        training=training_schedule(first, layers, range(first, layers + 1)),
        evaluation=evaluation_schedule(first, layers),
        layout=Layout(intervals, {"forward": forward, "backward": backward}),
        weight_servers=weight_servers,
        mode=mode,
        policy=POLICIES[policy],
        staleness=staleness,
        update_every=update_every,
        alternate=alternate,
    )


def graph_server(setup: Setup, server: int = 0, *, until: int = 9) -> GraphServer:
    """A graph server that has begun and may proceed."""
    machine = GraphServer(setup, ServerId(server))
    machine.handle(Begin(NOW, START, setup.exact))
    machine.handle(Proceed(Epoch(until), START if setup.exact else None))
    return machine


def grant(machine: GraphServer, interval: int, epoch: int = 0, version: int = 0) -> list[Instruction]:
    """Let an interval into an epoch."""
    return machine.handle(
        WeightsGranted(ServerId(0), IntervalId(interval), Epoch(epoch), Version(version), 1)
    )


def finish(machine: GraphServer, run: RunTask, *measures: float) -> list[Instruction]:
    return machine.handle(TaskDone(run.task, measures))


def tasks(instructions: list[Instruction]) -> list[RunTask]:
    return [each for each in instructions if isinstance(each, RunTask)]


def names(instructions: list[Instruction]) -> list[str]:
    """The stages to run, with their intervals."""
    return [f"{each.task.stage}:{each.task.interval}" for each in tasks(instructions)]


def sent(instructions: list[Instruction], kind: type[Event]) -> list[Event]:
    """The messages of a kind."""
    return [
        each.message for each in instructions if isinstance(each, Send) and isinstance(each.message, kind)
    ]


def receivers(instructions: list[Instruction], kind: type[Event]) -> list[str]:
    return [
        str(each.to) for each in instructions if isinstance(each, Send) and isinstance(each.message, kind)
    ]
