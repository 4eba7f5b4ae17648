"""Calling an invoker and waiting for what comes of it."""

import itertools
import queue
from pathlib import Path
from typing import Any

from siafu.serverless.control.ids import InvocationId
from siafu.serverless.platforms.environment import Function
from siafu.serverless.platforms.invoker import (
    Invocation,
    InvocationAnswered,
    InvocationFailed,
    InvocationOutcome,
    Invoker,
)

TOY = Function("toy_handler.handler", (Path(__file__).parent,))
_PATIENCE = 60.0


class Calls:
    """The invocations of one test: `calls.send` starts one, `calls.next` is the next that ended."""

    def __init__(self, invoker: Invoker) -> None:
        self.invoker = invoker
        self._numbers = itertools.count()
        self._ended: queue.Queue[InvocationOutcome] = queue.Queue()

    def send(self, number: int | None = None, **payload: Any) -> InvocationId:
        """Start an invocation; its number."""
        given = InvocationId(next(self._numbers) if number is None else number)
        self.invoker.invoke(Invocation(given, payload), self._ended.put)
        return given

    def next(self) -> InvocationOutcome:
        """The next invocation that ended."""
        return self._ended.get(timeout=_PATIENCE)

    def nothing_more(self) -> bool:
        """Whether no end was told that was not fetched."""
        return self._ended.empty()

    def answer(self, number: int | None = None, **payload: Any) -> InvocationAnswered:
        """Send, wait, and expect a receipt."""
        self.send(number, **payload)
        outcome = self.next()
        assert isinstance(outcome, InvocationAnswered), outcome
        return outcome

    def failure(self, number: int | None = None, **payload: Any) -> InvocationFailed:
        """Send, wait, and expect a failure."""
        self.send(number, **payload)
        outcome = self.next()
        assert isinstance(outcome, InvocationFailed), outcome
        return outcome
