"""Lambdas under AWS's runtime interface emulator, invoked through boto3: one emulator is one execution environment."""

import os
import platform
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from siafu.cost.prices import LambdaPrices, lambda_prices
from siafu.serverless.control.failure import Failure, FailureKind
from siafu.serverless.control.ids import InvocationId, Seconds
from siafu.serverless.deployment.aws import Place
from siafu.serverless.function.handler_variables import handler_variables
from siafu.serverless.platforms.aws_invoker import AwsInvoker, DeployedFunction
from siafu.serverless.platforms.environment import Function
from siafu.serverless.platforms.invoker import (
    Invocation,
    InvocationFailed,
    InvocationOutcome,
    Invoker,
    Tell,
    Usage,
)
from siafu.serverless.platforms.platform import HANDLER

_MEMORY_MB = 1769
_PRICES = lambda_prices("us-east-1", "x86_64")
_TIMEOUT_SECONDS = 60


def emulator_binary(made_in: Path) -> Path:
    """AWS's emulator, made executable in `made_in`; the test skips where it is not."""
    found = find_spec("samcli")
    if found is None or not found.submodule_search_locations:
        pytest.skip("AWS's emulator is not here: pip install --no-deps aws-sam-cli")
    machine = {"aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), platform.machine())
    binary = Path(found.submodule_search_locations[0]) / "local" / "rapid" / f"aws-lambda-rie-{machine}"
    if not binary.is_file() or not sys.platform.startswith("linux"):
        pytest.skip(f"aws-sam-cli has no emulator for {sys.platform} on {machine}")
    copy = made_in / "aws-lambda-rie"
    copy.write_bytes(binary.read_bytes())
    copy.chmod(0o755)
    return copy


@dataclass
class _Slot:
    process: subprocess.Popen[bytes]
    invoker: AwsInvoker


class EmulatorInvoker:
    """As many emulators as slots, started at once; an invocation goes to one that is free."""

    def __init__(
        self, binary: Path, function: Function, slots: int, timeout_seconds: int = _TIMEOUT_SECONDS
    ) -> None:
        self._binary = binary
        self._function = function
        self._count = slots
        self._timeout = timeout_seconds
        self._all: list[_Slot] = []
        self._free: list[_Slot] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the emulators and wait until they listen."""
        self._all = [self._open() for _ in range(self._count)]
        self._free = list(self._all)

    def invoke(self, invocation: Invocation, tell: Tell) -> None:
        """Two at once would crash an emulator: what finds no free one is throttled."""
        with self._lock:
            slot = self._free.pop(0) if self._free else None
        if slot is None:
            failure = Failure(FailureKind.THROTTLED, "emulator", "every emulator is busy")
            tell(InvocationFailed(invocation.number, failure, Usage(0, _MEMORY_MB)))
            return

        def free_and_tell(outcome: InvocationOutcome) -> None:
            with self._lock:
                self._free.append(slot)
            tell(outcome)

        slot.invoker.invoke(invocation, free_and_tell)

    def cancel(self, number: InvocationId) -> None:
        """As AWS: nothing."""

    def stop(self) -> None:
        """End the emulators and the handlers in them."""
        for slot in self._all:
            slot.invoker.stop()
            slot.process.kill()
            slot.process.wait()
        self._all = self._free = []

    def _open(self) -> _Slot:
        front, api = _free_port(), _free_port()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            "AWS_LAMBDA_FUNCTION_TIMEOUT": str(self._timeout),
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(_MEMORY_MB),
            "PYTHONPATH": os.pathsep.join(map(str, self._function.paths)),
            **handler_variables(_MEMORY_MB),
            **self._function.variables,
        }
        process = subprocess.Popen(
            [
                self._binary,
                *("--log-level", "error"),
                *("--runtime-interface-emulator-address", f"127.0.0.1:{front}"),
                *("--runtime-api-address", f"127.0.0.1:{api}"),
                *(sys.executable, "-m", "awslambdaric", self._function.handler),
            ],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _wait_for(front, process)
        place = Place("us-east-1", endpoint=f"http://127.0.0.1:{front}")
        function = DeployedFunction("function", place, memory_mb=_MEMORY_MB, timeout_seconds=self._timeout)
        invoker = AwsInvoker(function, may_check=False)
        invoker.start()
        return _Slot(process, invoker)


@dataclass(frozen=True)
class EmulatorPlatform:
    """Where a run's Lambdas are the real handler under AWS's emulator, invoked through boto3."""

    binary: Path
    name: str = "emulator"
    where: str = "AWS's emulator"
    host: str = "127.0.0.1"
    listen: str = "127.0.0.1"
    lifetime: Seconds = _TIMEOUT_SECONDS + 10.0
    memory_mb: int = _MEMORY_MB
    most: int = 4
    prices: LambdaPrices = _PRICES
    paid: bool = False

    def invoker(self, slots: int, warm: int) -> Invoker:
        """All of them are started at once."""
        return EmulatorInvoker(self.binary, HANDLER, slots)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        os.sched_yield()
    raise AssertionError(f"the emulator does not listen; its exit code is {process.poll()}")
