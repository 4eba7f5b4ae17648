"""Lambdas: where a run's tensor tasks are computed, if not on its own threads."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from siafu.serverless.controller_options import ControllerOptions
from siafu.serverless.dispatch import Dispatch
from siafu.serverless.faults import FaultPlan
from siafu.serverless.invokers.environment import Function, Limits
from siafu.serverless.invokers.local import LocalInvoker
from siafu.wire.tensors import Tensors

_HANDLER = "siafu.serverless.handler.handler"


@dataclass(frozen=True, slots=True)
class Lambdas:
    """Lambdas on this machine.

    count:  how many at most
    limits: of each
    faults: what goes wrong on purpose; None: nothing does
    tasks:  after how many tasks an invocation returns; 0: when there are no more
    floor:  seconds that a task may take without being late
    start:  seconds that a Lambda may be silent before its first task and between two
    """

    count: int
    limits: Limits = field(default_factory=Limits)
    faults: FaultPlan | None = None
    tasks: int = 0
    floor: float = 1.0
    start: float = 10.0

    def dispatch(
        self, held: Callable[[int], Tensors | None], failed: Callable[[BaseException], None]
    ) -> Dispatch:
        """What takes tasks, not yet started."""
        function = Function(_HANDLER, (Path(__file__).parents[3],))
        spares = max(1, self.count // 4)
        invoker = LocalInvoker(
            function, self.count + spares, self.limits, keep_warm=self.count, faults=self.faults
        )
        options = ControllerOptions("the local pool", self.count, spares, floor=self.floor, start=self.start)
        return Dispatch(invoker, options, held, failed, tasks_per_invocation=self.tasks)
