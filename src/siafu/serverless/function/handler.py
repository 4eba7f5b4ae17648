"""handler: what a Lambda runs, on AWS and anywhere else. It needs NumPy and ZeroMQ, and nothing else.

It does tensor tasks for a graph server (`visit`), with what it kept from earlier invocations (`warm`), and returns a
receipt. Nothing that it receives is code: programs are lists of known operations.
"""

from functools import cache
from typing import Any, Protocol

from siafu.serverless.function.payload import Payload
from siafu.serverless.function.visit import Visit
from siafu.serverless.function.warm import Warm, over_tcp


class Context(Protocol):
    """What AWS's runtime client gives a handler, as far as we read it."""

    def get_remaining_time_in_millis(self) -> int: ...


def handler(event: Any, context: Context) -> dict[str, Any]:
    """One invocation: the payload in, the receipt out, both as JSON has them."""
    return handle(event, context, _warm())


def handle(event: Any, context: Context, warm: Warm) -> dict[str, Any]:
    visit = Visit(Payload.of(event), warm, lambda: context.get_remaining_time_in_millis() / 1000)
    return visit.run().form()


@cache
def _warm() -> Warm:
    return Warm(over_tcp())
