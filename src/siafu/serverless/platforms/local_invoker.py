"""Lambdas on this machine: a pool of processes, each with AWS's own runtime client in it."""

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from siafu.base.errors import BadInput
from siafu.serverless.control.failure import Failure, FailureKind
from siafu.serverless.control.ids import InvocationId
from siafu.serverless.function.faults import Fault, FaultKind, FaultPlan
from siafu.serverless.function.garbled_link import FAULTS_VARIABLE
from siafu.serverless.platforms.environment import Environment, Function, Limits
from siafu.serverless.platforms.invoker import Invocation, InvocationFailed, Tell, Usage

T = TypeVar("T")
_AGAIN_SECONDS = 0.05


class LocalInvoker:
    """A pool of at most `slots` Lambdas; an invocation beyond that is throttled, as AWS would.

    A process is started when it is first needed (a cold start) and stays (warm) until it dies, is killed for its
    time or memory, or the pool stops.

    keep_warm: number of processes started before the first invocation
    faults:    faults on purpose; None: none
    """

    def __init__(
        self,
        function: Function,
        slots: int,
        limits: Limits | None = None,
        *,
        keep_warm: int = 0,
        faults: FaultPlan | None = None,
    ) -> None:
        self._function = function if faults is None else _garbling(function, faults)
        self._limits = limits or Limits()
        self._slots = slots
        self._keep_warm = min(keep_warm, slots)
        self._faults = faults
        self._free: list[Environment] = []
        self._all: list[Environment] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self) -> None:
        """Start the processes that are kept warm, and wait for them; one that is killed meanwhile is not waited for."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="siafu-lambdas", daemon=True)
        self._thread.start()
        if failure := self._in_loop(self._open()):
            self.stop()
            raise BadInput(
                f"the handler {self._function.handler} does not start in a process of its own: {failure.detail}"
            )

    def invoke(self, invocation: Invocation, tell: Tell) -> None:
        """Run an invocation in a free slot, a warm one if there is any."""
        invocation.body()  # what cannot be sent is refused in the caller's thread
        self._loop.call_soon_threadsafe(self._admit, invocation, tell)

    def cancel(self, number: InvocationId) -> None:
        """Kill the processes that run an invocation, if any."""
        self._loop.call_soon_threadsafe(self._cancel, number)

    def stop(self) -> None:
        """Kill every process; returns when they are gone."""
        if self._thread is None:
            return
        try:
            self._in_loop(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._thread = None

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> Failure | None:
        self._all = [Environment(slot, self._function, self._limits) for slot in range(self._slots)]
        self._free = list(self._all)
        failures = await asyncio.gather(
            *(environment.warm_up() for environment in self._all[: self._keep_warm])
        )
        return next((failure for failure in failures if failure is not None and failure.is_final), None)

    async def _close(self) -> None:
        self._stopping = True
        await asyncio.gather(*(environment.close() for environment in self._all))
        while self._tasks:  # a process that was just being started is killed once it is there
            for environment in self._all:
                environment.kill()
            await asyncio.wait(self._tasks, timeout=_AGAIN_SECONDS)
        await asyncio.gather(*(environment.close() for environment in self._all))

    def _admit(self, invocation: Invocation, tell: Tell) -> None:
        if self._stopping:
            return
        fault = None if self._faults is None else self._faults.fault(invocation.number)
        self._occupy(invocation, fault, tell)
        if fault is not None and fault.kind is FaultKind.DUPLICATE and self._free:
            self._occupy(invocation, fault, tell)

    def _occupy(self, invocation: Invocation, fault: Fault | None, tell: Tell) -> None:
        if not self._free:
            failure = Failure(FailureKind.THROTTLED, "local", f"all {self._slots} slots are taken")
            tell(InvocationFailed(invocation.number, failure, Usage(0, self._limits.memory_mb)))
            return
        environment = next((each for each in self._free if each.is_warm), self._free[0])
        self._free.remove(environment)
        task = self._loop.create_task(self._serve(environment, invocation, fault, tell))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(
        self, environment: Environment, invocation: Invocation, fault: Fault | None, tell: Tell
    ) -> None:
        try:
            outcome = await environment.run(invocation, fault)
        finally:
            self._free.append(environment)
        if not self._stopping:
            tell(outcome)

    def _cancel(self, number: InvocationId) -> None:
        for environment in self._all:
            if environment.running is not None and environment.running.number == number:
                environment.cancel()


def _garbling(function: Function, faults: FaultPlan) -> Function:
    """The function with the faults of its connections in its environment: the Lambda makes them itself."""
    if not faults.share(FaultKind.GARBLE):
        return function
    return replace(function, variables={**function.variables, FAULTS_VARIABLE: faults.text()})
