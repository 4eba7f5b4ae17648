"""Lambdas on AWS, through boto3: one thread waits for each invocation that is out."""

import base64
import math
import re
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from siafu.base.errors import BadInput
from siafu.cost.lambda_prices import VCPU_MB
from siafu.cost.prices import Architecture
from siafu.serverless.control.ids import InvocationId
from siafu.serverless.deployment.aws import Place, aws_errors, failure_from, may_have_run
from siafu.serverless.platforms.invoker import (
    Invocation,
    InvocationFailed,
    InvocationOutcome,
    Tell,
    Usage,
    outcome_of,
)

_GRACE_SECONDS = 30.0  # for an answer to come after the function's own timeout


@dataclass(frozen=True, slots=True)
class DeployedFunction:
    """A function that was deployed.

    name:            its name or ARN (an ARN names the account too)
    qualifier:       a version or alias; None: the newest code
    memory_mb:       as deployed; used where AWS's answer does not tell
    timeout_seconds: as deployed; the longest time until an answer
    """

    name: str = "siafu"
    place: Place = field(default_factory=Place)
    qualifier: str | None = None
    memory_mb: int = VCPU_MB
    timeout_seconds: float = 900.0

    @property
    def where(self) -> str:
        """The function, for people."""
        place = self.place.endpoint or self.place.region
        return f"function {self.name}" + (f" in {place}" if place else "")

    def addressed(self) -> dict[str, str]:
        """The arguments of `Invoke` that name it."""
        return {"FunctionName": self.name} | ({"Qualifier": self.qualifier} if self.qualifier else {})


def deployed_function(
    name: str, place: Place, qualifier: str | None = None
) -> tuple[DeployedFunction, str, Architecture]:
    """A function's deployment, region and processor; one that does not exist or that we may not see is refused."""
    named = {"FunctionName": name} | ({"Qualifier": qualifier} if qualifier else {})
    client = place.client("lambda", connect_timeout=10, read_timeout=30)
    try:
        with aws_errors(f"describe function {name}"):
            found = client.get_function_configuration(**named)
    finally:
        client.close()
    function = DeployedFunction(
        name, place, qualifier, memory_mb=int(found["MemorySize"]), timeout_seconds=float(found["Timeout"])
    )
    architecture: Architecture = "arm64" if "arm64" in found.get("Architectures", ()) else "x86_64"
    return function, str(client.meta.region_name), architecture


class AwsInvoker:
    """Synchronous invocations, any number at once.

    most:      number of connections that are kept open
    may_check: ask AWS at the start whether this account may invoke the function; an emulator would run it instead
    """

    def __init__(self, function: DeployedFunction, *, most: int = 100, may_check: bool = True) -> None:
        self._function = function
        self._most = most
        self._may_check = may_check
        self._client: Any = None

    def start(self) -> None:
        """Make the client; a wrong account or function is found here, before anything is invoked."""
        client = self._function.place.client(
            "lambda",
            connect_timeout=10,
            read_timeout=self._function.timeout_seconds + _GRACE_SECONDS,
            max_pool_connections=self._most,
            retries={"total_max_attempts": 1},  # the controller counts, and waits, itself
            tcp_keepalive=True,
        )
        if self._may_check:
            self._check(client)
        self._client = client

    def invoke(self, invocation: Invocation, tell: Tell) -> None:
        """Send an invocation from a thread of its own."""
        body = invocation.body()
        threading.Thread(
            target=self._call,
            args=(self._client, invocation.number, body, tell),
            name=f"siafu-lambda-{invocation.number}",
            daemon=True,
        ).start()

    def cancel(self, number: InvocationId) -> None:
        """AWS cannot end an invocation: it goes on, and is billed, until it finds nothing to do."""

    def stop(self) -> None:
        """Forget the invocations under way. AWS ends them at their idle time or timeout."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _check(self, client: Any) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            client.invoke(**self._function.addressed(), InvocationType="DryRun")
        except (BotoCoreError, ClientError) as error:
            raise BadInput(str(failure_from(error, self._function.where))) from error

    def _call(self, client: Any, number: InvocationId, body: bytes, tell: Tell) -> None:
        outcome = self._outcome(client, number, body)
        if client is self._client:  # else: stopped meanwhile
            tell(outcome)

    def _outcome(self, client: Any, number: InvocationId, body: bytes) -> InvocationOutcome:
        began = time.monotonic()
        try:
            answer = client.invoke(**self._function.addressed(), Payload=body, LogType="Tail")
            said = answer["Payload"].read()
        except Exception as error:  # of boto3, of its connection, of a client that `stop` closed
            failure = failure_from(error, self._function.where)
            billed_ms = _since(began) if may_have_run(error) else 0
            return InvocationFailed(number, failure, Usage(billed_ms, self._function.memory_mb))
        took = _since(began)
        log = base64.b64decode(answer.get("LogResult") or "").decode(errors="replace")
        return outcome_of(number, said, usage_from(log, took, self._function.memory_mb), self._function.where)


def _since(began: float) -> int:
    return math.ceil((time.monotonic() - began) * 1000)


def usage_from(log: str, took_ms: int, memory_mb: int) -> Usage:
    """Usage from the REPORT line at the end of an invocation's log; without one, as measured here."""

    def figure(name: str) -> float | None:
        found = re.search(rf"\b{name}: ([0-9.]+) M?[mB]", log[log.rfind("REPORT RequestId") :])
        return float(found[1]) if found and "REPORT RequestId" in log else None

    billed, memory, init = figure("Billed Duration"), figure("Memory Size"), figure("Init Duration")
    return Usage(
        math.ceil(took_ms if billed is None else billed),
        memory_mb if memory is None else int(memory),
        None if init is None else math.ceil(init),
    )
