"""Servers that are ended, or paused, at a point of their work that is known beforehand."""

import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from siafu.cluster.graph_host import GraphHost
from siafu.cluster.weight_host import WeightHost
from siafu.pipeline.instructions import Instruction, RunTask, Send
from siafu.runtime.pool import After


@dataclass(frozen=True, slots=True)
class Doom:
    """What happens to a server: a signal, when it comes to a point of its work for the n-th time.

    point:   a kind of task ("train forward gather" …), an instruction or a message by its name, or a call
    seconds: instead of a signal: how much longer than usual that takes
    """

    point: str
    count: int = 1
    signal: int = signal.SIGKILL
    seconds: float = 0.0


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
    "WeightsReleased",
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
    "KeepBest",
    "Settled",
    "report",
)


class _Doomed:
    """Counts the points that a server comes to."""

    doom: Doom | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._seen: Counter[str] = Counter()
        super().__init__(*arguments, **options)

    def come_to(self, point: str) -> None:
        self._seen[point] += 1
        doom = self.doom
        if doom is not None and (point, self._seen[point]) == (doom.point, doom.count):
            if doom.seconds:
                time.sleep(doom.seconds)
            else:
                os.kill(os.getpid(), doom.signal)

    def _obey(self, what: Instruction, came: Any) -> None:
        if not isinstance(what, RunTask):
            self.come_to(type(what.message if isinstance(what, Send) else what).__name__)
        super()._obey(what, came)  # type: ignore[misc]

    def join(self, setup: Any, members: Any) -> None:
        self.come_to("join")
        super().join(setup, members)  # type: ignore[misc]

    def _begin(self, begin: Any, letter: Any) -> None:
        self.come_to("begin")
        super()._begin(begin, letter)  # type: ignore[misc]

    def _report(self, wanted: Any) -> Any:
        self.come_to("report")
        return super()._report(wanted)  # type: ignore[misc]


class DoomedGraphHost(_Doomed, GraphHost):
    def share(self) -> Any:
        self.come_to("share")
        return super().share()

    def reads(self, bounds: Any) -> Any:
        self.come_to("reads")
        return super().reads(bounds)

    def _run(self, what: RunTask) -> After | None:
        stage = what.task.stage
        self.come_to(f"{what.task.lane} {stage.direction} {stage.kind}")
        return super()._run(what)

    def _send_rows(self, to: Any, message: Any) -> After:
        self.come_to("scatter")
        return super()._send_rows(to, message)


class DoomedWeightHost(_Doomed, WeightHost):
    pass
