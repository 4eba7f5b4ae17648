"""Lambda's Runtime API (2018-06-01) for one process: where AWS's runtime client fetches work and leaves answers.

AWS's client speaks HTTP over TCP and nothing else, and every user of a machine reaches its loopback address. So all paths begin
with a secret that only the process is told, in its environment, which no other user can read.
"""

import asyncio
import hmac
import secrets
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from siafu.serverless.platforms.invoker import MOST_BYTES

_PREFIX = "/2018-06-01/runtime/"
_LONGEST_HEAD = 64 * 1024
_STRANGERS = 16  # connections that have not shown the secret: one more, and the oldest goes


@dataclass(frozen=True, slots=True)
class InvocationRequest:
    """An invocation as the process sees it. `deadline` is in seconds since the epoch."""

    id: str
    body: bytes
    deadline: float
    function: str


class RuntimeApi:
    """The server of one process. Everything runs in one event loop; one request is handed over at a time.

    strangers: requests that did not know the secret, or were not meant for this address
    """

    def __init__(self) -> None:
        self.strangers = 0
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self._unknown: OrderedDict[asyncio.Task[None], None] = OrderedDict()
        self._host = self._secret = ""
        self._reset()

    def _reset(self) -> None:
        self.initialised = asyncio.Event()
        self.init_error: bytes | None = None
        self._offered: asyncio.Queue[InvocationRequest] = asyncio.Queue()
        self._current: InvocationRequest | None = None
        self._answer: asyncio.Future[bytes] | None = None

    async def open(self) -> str:
        """Serve a new process; the address, with a secret of its own, is what `AWS_LAMBDA_RUNTIME_API` is to be."""
        await self.close()
        self._reset()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_LONGEST_HEAD)
        host, port = self._server.sockets[0].getsockname()[:2]
        self._host, self._secret = f"{host}:{port}", secrets.token_urlsafe(32)
        return f"{self._host}/{self._secret}"

    async def close(self) -> None:
        """End the server and every connection."""
        if self._server is None:
            return
        self._server.close()
        for handler in list(self._handlers):
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        self._server = None

    @property
    def was_taken(self) -> bool:
        """Whether the process has fetched the last request."""
        return self._offered.empty()

    def hand_over(self, request: InvocationRequest) -> asyncio.Future[bytes]:
        """Give the process its next request; the future holds its answer: a receipt, or an error's JSON."""
        self._answer = asyncio.get_running_loop().create_future()
        self._offered.put_nowait(request)
        return self._answer

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        this = asyncio.current_task()
        assert this is not None
        self._handlers.add(this)
        self._unknown[this] = None
        while len(self._unknown) > _STRANGERS:
            self._unknown.popitem(last=False)[0].cancel()
        try:
            while await self._serve(this, reader, writer):
                pass
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # the process is gone, speaks no HTTP, or the server is closing: there is nobody to answer
        finally:
            self._handlers.discard(this)
            self._unknown.pop(this, None)
            with suppress(RuntimeError):  # the loop is gone
                writer.close()

    async def _serve(
        self, this: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        if headers.get("host") != self._host or not self._shows_secret(path):
            self.strangers += 1
            await _reply(writer, HTTPStatus.FORBIDDEN, b"{}")
            return False
        self._unknown.pop(this, None)
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(headers.get("content-length", "0"))
        if length > MOST_BYTES:
            self._fail_too_large(length)
            await _reply(writer, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return False
        body = await reader.readexactly(length)
        await self._route(method, path[len(self._secret) + 1 :], body, writer)
        return headers.get("connection", "").lower() != "close"

    def _shows_secret(self, path: str) -> bool:
        given, wanted = path[: len(self._secret) + 2], f"/{self._secret}/"
        return hmac.compare_digest(given.encode(), wanted.encode())

    async def _route(self, method: str, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if (method, path) == ("GET", _PREFIX + "invocation/next"):
            await self._next(writer)
        elif (method, path) == ("POST", _PREFIX + "init/error"):
            self.init_error = body
            self.initialised.set()
            await _reply(writer, HTTPStatus.ACCEPTED)
        elif method == "POST" and path.startswith(_PREFIX + "invocation/"):
            number, _, kind = path.removeprefix(_PREFIX + "invocation/").partition("/")
            await _reply(writer, self._take(number, kind, body))
        else:
            await _reply(writer, HTTPStatus.NOT_FOUND)

    async def _next(self, writer: asyncio.StreamWriter) -> None:
        self.initialised.set()
        request = await self._offered.get()
        self._current = request
        await _reply(
            writer,
            HTTPStatus.OK,
            request.body,
            {
                "Lambda-Runtime-Aws-Request-Id": request.id,
                "Lambda-Runtime-Deadline-Ms": str(int(request.deadline * 1000)),
                "Lambda-Runtime-Invoked-Function-Arn": request.function,
                "Lambda-Runtime-Trace-Id": f"Root=1-{int(time.time()):08x}-{request.id.replace('-', '')[:24]}",
            },
        )

    def _take(self, number: str, kind: str, body: bytes) -> HTTPStatus:
        if kind not in ("response", "error"):
            return HTTPStatus.NOT_FOUND
        if self._current is None or number != self._current.id or self._answer is None or self._answer.done():
            return HTTPStatus.BAD_REQUEST
        self._current = None
        self._answer.set_result(body)
        return HTTPStatus.ACCEPTED

    def _fail_too_large(self, length: int) -> None:
        if self._answer is not None and not self._answer.done():
            message = f'{{"errorType":"Function.ResponseSizeTooLarge","errorMessage":"{length} bytes"}}'
            self._answer.set_result(message.encode())


async def _reply(
    writer: asyncio.StreamWriter,
    status: HTTPStatus,
    body: bytes = b'{"status":"OK"}',
    headers: dict[str, str] | None = None,
) -> None:
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    writer.write("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)
    await writer.drain()
