"""An execution environment: a process with AWS's runtime client in it, started when needed, kept while it is well."""

import asyncio
import math
import os
import signal
import sys
import time
import uuid
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from siafu.cost.lambda_prices import VCPU_MB
from siafu.serverless.control.failure import Failure, FailureKind, one_line
from siafu.serverless.function.faults import Fault, FaultKind
from siafu.serverless.function.handler_variables import handler_variables
from siafu.serverless.function.slow_link import BANDWIDTH_VARIABLE, LATENCY_VARIABLE
from siafu.serverless.platforms.invoker import (
    Invocation,
    InvocationFailed,
    InvocationOutcome,
    Usage,
    outcome_of,
)
from siafu.serverless.platforms.process import ADDRESS_SPACE
from siafu.serverless.platforms.runtime_api import InvocationRequest, RuntimeApi

_INIT_SECONDS = 60.0
_WATCH_SECONDS = 0.05
# Stacks, arenas and libraries are mapped without being used; the cap itself is on what is resident.
_MAPPED_UNUSED = 2 * 2**30
_KEPT_OF_OUTSIDE = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one Lambda.

    latency_ms: added to every message between a Lambda and a server, one way
    mbps:       megabits a second between one Lambda and all servers, each way; None: no limit
    The last two are kept by the handler's own `SlowLink`: it finds them in its environment.
    """

    memory_mb: int = VCPU_MB
    timeout_seconds: float = 900.0
    latency_ms: float = 0.0
    mbps: float | None = None

    def variables(self) -> dict[str, str]:
        """Environment variables that give these limits to a process."""
        told = {
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.memory_mb),
            **handler_variables(self.memory_mb),
            ADDRESS_SPACE: str(self.memory_mb * 2**20 + _MAPPED_UNUSED),
        }
        if self.latency_ms:
            told[LATENCY_VARIABLE] = str(self.latency_ms)
        if self.mbps is not None:
            told[BANDWIDTH_VARIABLE] = str(self.mbps)
        return told


@dataclass(frozen=True, slots=True)
class Function:
    """The function that a Lambda runs: `module.function`, paths of its modules, further variables."""

    handler: str
    paths: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


class _NotStarted(Exception):
    """The process ended before it asked for an invocation. `kind` says whether another may succeed."""

    def __init__(self, why: str, kind: FailureKind = FailureKind.UNFIT) -> None:
        super().__init__(why)
        self.kind = kind


class Environment:
    """One slot of the pool. All methods run in the pool's event loop; one invocation at a time."""

    def __init__(self, slot: int, function: Function, limits: Limits) -> None:
        self.running: Invocation | None = None
        self._function = function
        self._limits = limits
        self._where = f"local slot {slot}"
        self._api = RuntimeApi()
        self._process: asyncio.subprocess.Process | None = None
        self._exited: asyncio.Task[int] | None = None
        self._helpers: list[asyncio.Task[None]] = []
        self._said: deque[str] = deque(maxlen=20)
        self._killed: Failure | None = None

    @property
    def is_warm(self) -> bool:
        """Whether a process runs already."""
        return self._exited is not None and not self._exited.done()

    async def warm_up(self) -> Failure | None:
        """Start the process now, if there is none; what prevented it."""
        if self.is_warm:
            return None
        try:
            await self._start()
        except _NotStarted as error:
            return self._killed or Failure(error.kind, self._where, str(error))
        return None

    async def run(self, invocation: Invocation, fault: Fault | None) -> InvocationOutcome:
        """Run one invocation to its end, whatever that is."""
        self.running = invocation
        try:
            outcome = await self._run(invocation, fault)
            if isinstance(outcome, InvocationFailed) and not self._api.was_taken and self._killed is None:
                # The process died of its last invocation before it saw this one.
                outcome = await self._run(invocation, fault)
            return outcome
        finally:
            self.running = None

    async def _run(self, invocation: Invocation, fault: Fault | None) -> InvocationOutcome:
        began = time.monotonic()
        init_ms = None
        if not self.is_warm:
            failure = await self.warm_up()
            init_ms = _whole_ms(time.monotonic() - began)
            if failure is not None:
                return InvocationFailed(invocation.number, failure, self._usage(began, init_ms))
        posted = await self._hand_over(invocation, fault)
        usage = self._usage(began, init_ms)
        if isinstance(posted, Failure):
            return InvocationFailed(invocation.number, posted, usage)
        body = bytes(reversed(posted)) if _is(fault, FaultKind.GARBAGE) else posted
        return outcome_of(invocation.number, body, usage, self._where)

    def kill(self, why: Failure | None = None) -> None:
        """End the process, if there is one."""
        self._killed = self._killed or why
        self._signal(signal.SIGKILL)

    def cancel(self) -> None:
        """End the process in the middle of its invocation."""
        self.kill(Failure(FailureKind.CRASHED, self._where, "cancelled"))

    async def close(self) -> None:
        """End the process and the server, and wait until they are gone."""
        self.kill()
        if self._exited is not None:
            await self._exited
        await self._forget()
        await self._api.close()

    async def _start(self) -> None:
        await self._forget()
        self._killed = None
        self._said.clear()
        address = await self._api.open()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "siafu.serverless.platforms.process",
            self._function.handler,
            env=self._variables(address),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us: we let a run end well, and need Lambdas for it
        )
        self._exited = asyncio.create_task(self._process.wait())
        self._helpers = [asyncio.create_task(self._listen()), asyncio.create_task(self._watch_memory())]
        initialised = asyncio.create_task(self._api.initialised.wait())
        either: set[asyncio.Task[Any]] = {initialised, self._exited}
        await asyncio.wait(either, timeout=_INIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        initialised.cancel()
        if self._api.initialised.is_set() and self._api.init_error is None:
            return
        await self._explain_no_start()

    async def _explain_no_start(self) -> None:
        told = self._api.init_error
        if told is None and self.is_warm:
            self.kill()
            raise _NotStarted(f"no invocation asked for within {_INIT_SECONDS:.0f} s of starting")
        if told is None and self._was_killed:
            raise _NotStarted(f"the process ended while it started ({self._end})", FailureKind.CRASHED)
        self.kill()
        assert self._exited is not None
        await self._exited
        await asyncio.sleep(0)  # let what it said last be read
        raise _NotStarted(
            one_line((told or " ".join(self._said).encode() or b"it ended at once").decode(errors="replace"))
        )

    async def _hand_over(self, invocation: Invocation, fault: Fault | None) -> bytes | Failure:
        assert self._exited is not None
        timeout = self._limits.timeout_seconds
        body = b"{this is no JSON" if _is(fault, FaultKind.ERROR) else invocation.body()
        self._said.clear()
        answer = self._api.hand_over(
            InvocationRequest(
                str(uuid.uuid4()), body, time.time() + timeout, f"local:{self._function.handler}"
            )
        )
        wanted = asyncio.create_task(self._struck(fault, answer))
        try:
            either: set[asyncio.Task[Any]] = {wanted, self._exited}
            await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if wanted.done():
                return wanted.result()
            if self._exited.done():
                return self._why_it_ended()
            self.kill()
            await self._exited
            return Failure(FailureKind.TIMED_OUT, self._where, f"Task timed out after {timeout:.2f} seconds")
        finally:
            wanted.cancel()

    async def _struck(self, fault: Fault | None, answer: asyncio.Future[bytes]) -> bytes:
        """The answer. What is to be killed, to hang or to be slow is so even if it answers before the fault strikes."""
        await self._strike(fault)
        return await answer

    async def _strike(self, fault: Fault | None) -> None:
        if fault is None or fault.kind not in (FaultKind.KILL, FaultKind.HANG, FaultKind.SLOW):
            return
        await asyncio.sleep(fault.after)
        self._signal(signal.SIGKILL if fault.kind is FaultKind.KILL else signal.SIGSTOP)
        if fault.kind is FaultKind.SLOW:
            await asyncio.sleep(fault.lasting)
            self._signal(signal.SIGCONT)
            return
        await asyncio.Event().wait()

    def _why_it_ended(self) -> Failure:
        if self._killed is not None:
            return self._killed
        said = f": {self._said[-1]}" if self._said else ""
        return Failure(FailureKind.CRASHED, self._where, one_line(f"the process ended ({self._end}){said}"))

    @property
    def _was_killed(self) -> bool:
        """Whether a signal ended the process: then it is not the function's fault."""
        return self._exited is not None and self._exited.done() and self._exited.result() < 0

    @property
    def _end(self) -> str:
        """How the process ended."""
        assert self._exited is not None
        code = self._exited.result()
        return f"signal: {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def _usage(self, began: float, init_ms: int | None) -> Usage:
        return Usage(_whole_ms(time.monotonic() - began), self._limits.memory_mb, init_ms)

    def _variables(self, address: str) -> dict[str, str]:
        outside = {name: os.environ[name] for name in _KEPT_OF_OUTSIDE if name in os.environ}
        paths = [str(path) for path in self._function.paths]
        return {
            **outside,
            **self._limits.variables(),
            **self._function.variables,
            "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [outside.get("PYTHONPATH")])]),
            "PYTHONUNBUFFERED": "1",
            "AWS_LAMBDA_RUNTIME_API": address,
            "AWS_LAMBDA_FUNCTION_NAME": "siafu-local",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "_HANDLER": self._function.handler,
        }

    def _signal(self, number: signal.Signals) -> None:
        if self.is_warm and self._process is not None:
            with suppress(ProcessLookupError):  # it has ended by itself, and `_exited` is yet to be told
                self._process.send_signal(number)

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(65536):
            self._said.extend(line for line in chunk.decode(errors="replace").splitlines() if line.strip())

    async def _watch_memory(self) -> None:
        assert self._process is not None
        file = Path(f"/proc/{self._process.pid}/statm")
        most = self._limits.memory_mb * 2**20
        page = os.sysconf("SC_PAGE_SIZE")
        while True:
            try:
                resident = int(file.read_text().split()[1]) * page
            except (OSError, IndexError):  # gone, or a system that does not tell
                return
            if resident > most:
                used = f"used {resident >> 20} MB of {self._limits.memory_mb} MB"
                self.kill(Failure(FailureKind.OUT_OF_MEMORY, self._where, f"killed: {used}"))
                return
            await asyncio.sleep(_WATCH_SECONDS)

    async def _forget(self) -> None:
        for helper in self._helpers:
            helper.cancel()
        await asyncio.gather(*self._helpers, return_exceptions=True)
        self._helpers = []


def _is(fault: Fault | None, kind: FaultKind) -> bool:
    return fault is not None and fault.kind is kind


def _whole_ms(seconds: float) -> int:
    return math.ceil(seconds * 1000)
