"""Servers that are ended, or paused, at a point of their work that is known beforehand."""

import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from siafu.cluster.stations.graph_station import GraphStation
from siafu.cluster.stations.station import WeightStation
from siafu.pipeline.events import Begin
from siafu.pipeline.instructions import Instruction, RunTask, Send
from siafu.runtime.executor import ThreadExecutor
from siafu.runtime.hosts.graph_host import GraphHost
from siafu.runtime.hosts.weight_host import WeightHost


@dataclass(frozen=True, slots=True)
class Doom:
    """What happens to a server: a signal, when it comes to a point of its work for the n-th time.

    point:   a kind of task ("train forward gather" …), an instruction or a message by its name, or a call
    seconds: instead of a signal: how much longer than usual that takes
    error:   instead of a signal: what is raised there
    skipped: instead of a signal: the instruction is not done
    """

    point: str
    count: int = 1
    signal: int = signal.SIGKILL
    seconds: float = 0.0
    error: str = ""
    skipped: bool = False


GRAPH_POINTS = (
    "train forward tensor",
    "train forward gather",
    "train backward tensor",
    "train backward gather",
    "evaluate forward tensor",
    "evaluate forward gather",
    "begin",
    "Ready",
    "scatter",
    "KeepRows",
    "WeightsAsked",
    "GradientArrived",
    "EpochFinished",
    "report",
)
WEIGHT_POINTS = (
    "begin",
    "Restore",
    "Ready",
    "WeightsGranted",
    "Accumulate",
    "GradientTaken",
    "Update",
    "WeightsMade",
    "KeepWeights",
    "FreeWeights",
    "StateMade",
    "Settled",
    "report",
)


class _Fate:
    """Counts the points that a server comes to; a process has one server."""

    def __init__(self) -> None:
        self.doom: Doom | None = None
        self._seen: Counter[str] = Counter()

    def come_to(self, point: str) -> bool:
        """Whether what happens there is to be skipped."""
        self._seen[point] += 1
        doom = self.doom
        if doom is not None and (point, self._seen[point]) == (doom.point, doom.count):
            if doom.error:
                raise RuntimeError(doom.error)
            if doom.skipped:
                return True
            if doom.seconds:
                time.sleep(doom.seconds)
            else:
                os.kill(os.getpid(), doom.signal)
        return False


FATE = _Fate()


class _DoomedHost:
    def _obey(self, what: Instruction, came: Any) -> None:
        if not isinstance(what, RunTask) and FATE.come_to(
            type(what.message if isinstance(what, Send) else what).__name__
        ):
            return
        super()._obey(what, came)  # type: ignore[misc]

    def _report(self, wanted: Any) -> Any:
        FATE.come_to("report")
        return super()._report(wanted)  # type: ignore[misc]


class _DoomedGraphHost(_DoomedHost, GraphHost):
    pass


class _DoomedWeightHost(_DoomedHost, WeightHost):
    pass


class _DoomedExecutor(ThreadExecutor):
    def _run(self, task: Any, *rest: Any) -> Any:
        FATE.come_to(f"{task.lane} {task.stage.direction} {task.stage.kind}")
        return super()._run(task, *rest)

    def _hand_over(self, what: RunTask, *rest: Any) -> None:
        stage = what.task.stage
        FATE.come_to(f"{what.task.lane} {stage.direction} {stage.kind}")
        super()._hand_over(what, *rest)

    def _pack(self, *arguments: Any) -> Any:
        FATE.come_to("scatter")
        return super()._pack(*arguments)


class _DoomedStation:
    def join(self, setup: Any, members: Any) -> None:
        FATE.come_to("join")
        super().join(setup, members)  # type: ignore[misc]

    def _pass_on(self, sender: Any, letter: Any) -> None:
        if isinstance(letter.event, Begin):
            FATE.come_to("begin")
        super()._pass_on(sender, letter)  # type: ignore[misc]


class DoomedGraphStation(_DoomedStation, GraphStation):
    host_kind = _DoomedGraphHost
    executor_kind = _DoomedExecutor

    def share(self) -> Any:
        FATE.come_to("share")
        return super().share()

    def reads(self, bounds: Any) -> Any:
        FATE.come_to("reads")
        return super().reads(bounds)


class DoomedWeightStation(_DoomedStation, WeightStation):
    host_kind = _DoomedWeightHost
