"""Connections: limits on their number and on how long a header may take, so that nobody can take all of them.

A connection is a *stranger's* until a request on it was let in. When there are too many of either kind the oldest of that kind
goes, so that who comes next is always heard: a browser asks at once, and is no stranger any more when others crowd in.
"""

import asyncio
from collections import OrderedDict
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

LET_IN = "siafu.let_in"
"""The extension of an ASGI scope to be called when its request was let in."""

STRANGERS = 128
KNOWN = 256
HEADER_SECONDS = 10.0
"""How long a request's header may take, from its first byte, or from the connection's beginning, to its last."""


class Connections:
    """All open connections, the oldest first."""

    def __init__(
        self, strangers: int = STRANGERS, known: int = KNOWN, seconds: float = HEADER_SECONDS
    ) -> None:
        self.seconds = seconds
        self._most = {False: strangers, True: known}
        self._open: dict[bool, OrderedDict[Connection, None]] = {False: OrderedDict(), True: OrderedDict()}

    def opened(self, connection: "Connection") -> None:
        self._add(connection, known=False)

    def let_in(self, connection: "Connection") -> None:
        if self._open[False].pop(connection, connection) is None:
            self._add(connection, known=True)

    def closed(self, connection: "Connection") -> None:
        for each in self._open.values():
            each.pop(connection, None)

    def count(self) -> int:
        return sum(map(len, self._open.values()))

    def _add(self, connection: "Connection", *, known: bool) -> None:
        kind = self._open[known]
        kind[connection] = None
        while len(kind) > self._most[known]:
            kind.popitem(last=False)[0].drop()


class Connection(H11Protocol):
    """uvicorn's protocol for a connection that ends when a header takes too long."""

    crowd: Connections

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.crowd.opened(self)
        self._wait_for_header()

    def connection_lost(self, error: Exception | None) -> None:
        self._header_is_there()
        self.crowd.closed(self)
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._wait_for_header()
        super().data_received(data)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not None and self.cycle is not before:
            # The application has not begun: it runs in a task of its own.
            extensions: dict[str, Any] = self.scope.setdefault("extensions", {})
            extensions[LET_IN] = lambda: self.crowd.let_in(self)
        if self.conn.their_state is not h11.IDLE or not self.conn.trailing_data[0]:
            self._header_is_there()

    def drop(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    def _wait_for_header(self) -> None:
        if self._waiting is None and self.conn.their_state is h11.IDLE:
            self._waiting = self.loop.call_later(self.crowd.seconds, self.drop)

    def _header_is_there(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
