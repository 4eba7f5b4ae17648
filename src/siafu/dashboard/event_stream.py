"""EventStream: server-sent events to one browser, no faster than it reads them."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from starlette.types import Receive, Scope, Send

_STALLED_SECONDS = 60.0
_STREAMS = 64

PageEvent = tuple[str, Any]


class Streams:
    """All open streams. When there are too many, the next page is told to wait.

    over: set when the server ends, so that nobody waits for the next event
    """

    def __init__(self, most: int = _STREAMS, stalled_seconds: float = _STALLED_SECONDS) -> None:
        self.open = 0
        self.most = most
        self.stalled_seconds = stalled_seconds
        self.over = asyncio.Event()

    @property
    def full(self) -> bool:
        return self.open >= self.most


class EventStream:
    """An ASGI response that sends `events`: pairs of a name and a value for JSON; None keeps the connection alive.

    The next event is asked for only when the one before is on its way: for a browser that does not read, nothing
    piles up, and after a minute it is let go.
    """

    def __init__(self, events: AsyncGenerator[PageEvent | None], streams: Streams) -> None:
        self._events = events
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams.open += 1
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            self._streams.open -= 1
        if sending.done() and not sending.cancelled() and (error := sending.exception()) is not None:
            raise error

    async def _send_all(self, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        with suppress(TimeoutError, OSError):
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": headers})
            async with aclosing(self._events) as events:
                async for event in events:
                    body = b": still here\n\n" if event is None else encode(event)
                    await self._send(send, {"type": "http.response.body", "body": body, "more_body": True})
            await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, message: dict[str, Any]) -> None:
        async with asyncio.timeout(self._streams.stalled_seconds):
            await send(message)


def encode(event: PageEvent) -> bytes:
    """An event on the wire. JSON has no line feed in it, which would end the event."""
    name, value = event
    return f"event: {name}\ndata: {json.dumps(value, allow_nan=False)}\n\n".encode()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
