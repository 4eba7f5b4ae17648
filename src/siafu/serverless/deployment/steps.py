"""Steps: calls of AWS as data, to be shown or to be done."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from siafu.serverless.deployment.aws import aws_errors, error_code
from siafu.serverless.deployment.observed import Clients

NEW_SECURITY_GROUP = "(the security group made above)"
_ROLE_SECONDS = 60.0  # that a new role takes until it is known everywhere


@dataclass(frozen=True, slots=True)
class DeploymentStep:
    """One call.

    purpose:   in words
    operation: boto3's name of it
    wait:      boto3's waiter that follows it
    keep:      the field of the answer that stands for `NEW_SECURITY_GROUP` in later steps
    """

    purpose: str
    service: str
    operation: str
    arguments: dict[str, Any]
    wait: str | None = None
    keep: str | None = None

    def lines(self) -> list[str]:
        """The step for people: what for, and the call as it will be made."""
        shown = json.dumps(_shown(self.arguments), indent=2, ensure_ascii=False).splitlines()
        return [
            self.purpose,
            *(f"  {line}" for line in [f"{self.service}.{self.operation} {shown[0]}", *shown[1:]]),
        ]


def run(
    steps: Iterable[DeploymentStep],
    clients: Clients,
    told: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Do them in order. What was done stays done if one fails: doing all again goes on from there."""
    made = NEW_SECURITY_GROUP
    for step in steps:
        told(step.purpose)
        with aws_errors(step.purpose):
            answer = _call(step, clients, _put_in(step.arguments, made), sleep)
            if step.wait is not None:
                name = {"FunctionName": step.arguments["FunctionName"]}
                clients[step.service].get_waiter(step.wait).wait(**name)
        if step.keep is not None:
            made = str(answer[step.keep])


def _call(
    step: DeploymentStep, clients: Clients, arguments: dict[str, Any], sleep: Callable[[float], None]
) -> dict[str, Any]:
    from botocore.exceptions import ClientError

    waited, pause = 0.0, 1.0
    while True:
        try:
            answer: dict[str, Any] = getattr(clients[step.service], step.operation)(**arguments)
            return answer
        except ClientError as error:
            new_role = error_code(error) == "InvalidParameterValueException" and "role" in str(error).lower()
            if not new_role or waited >= _ROLE_SECONDS:
                raise
        sleep(pause)
        waited, pause = waited + pause, min(2 * pause, 10.0)


def _put_in(value: Any, made: str) -> Any:
    if isinstance(value, dict):
        return {name: _put_in(each, made) for name, each in value.items()}
    if isinstance(value, list):
        return [_put_in(each, made) for each in value]
    return made if value == NEW_SECURITY_GROUP else value


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shown(each) for each in value]
    if isinstance(value, bytes):
        return f"({len(value):,} bytes, SHA-256 {hashlib.sha256(value).hexdigest()})"
    return _document(value) if isinstance(value, str) and value.startswith("{") else value


def _document(text: str) -> Any:
    """A policy inside an argument is text to AWS and JSON to people."""
    try:
        return json.loads(text)
    except ValueError:
        return text
