"""handler: the function that a Lambda runs, on AWS and anywhere else. It needs NumPy and ZeroMQ, and nothing else.

It computes tensor tasks for a graph server (`lambda_session`), with connections, programs and weights of earlier invocations
(`warm`), and returns a receipt. Nothing that it receives is code: programs are lists of known operations.
"""

from functools import cache
from typing import Any, Protocol

from siafu.serverless.function.lambda_session import LambdaSession
from siafu.serverless.function.payload import Payload
from siafu.serverless.function.warm import Warm, over_tcp


class Context(Protocol):
    """The part that we read of the context that AWS's runtime client gives a handler."""

    def get_remaining_time_in_millis(self) -> int: ...


def handler(event: Any, context: Context) -> dict[str, Any]:
    """One invocation: the payload in, the receipt out, both as JSON objects."""
    return handle(event, context, _warm())


def handle(event: Any, context: Context, warm: Warm) -> dict[str, Any]:
    session = LambdaSession(Payload.of(event), warm, lambda: context.get_remaining_time_in_millis() / 1000)
    return session.run().form()


@cache
def _warm() -> Warm:
    return Warm(over_tcp())
