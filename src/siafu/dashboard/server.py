"""Serving a dashboard until Ctrl-C."""

import errno
import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import uvicorn

from siafu.base.addresses import is_loopback
from siafu.base.errors import BadInput
from siafu.dashboard.access import Access
from siafu.dashboard.app import Dashboard
from siafu.dashboard.connections import Connection, Connections

_GRACE_SECONDS = 2  # for open streams when the server ends


def serve(
    directory: Path,
    *,
    host: str,
    port: int,
    token: str | None,
    names: Sequence[str],
    ready: Callable[[str], None],
) -> None:
    """Serve the runs in `directory`; `ready` is told the address once it answers there.

    token: what one must know; "auto": made here, and told as part of the address
    names: host names to answer to, besides addresses, localhost and this machine's own
    """
    if directory.exists() and not directory.is_dir():
        raise BadInput(f"{directory} is a file: give the directory that holds your runs")
    if token == "auto":
        token = secrets.token_urlsafe(24)
    if token is None and not is_loopback(host):
        raise BadInput(
            f"anyone who reaches {host} could see and stop your runs: give --token TOKEN, or --token auto to have one "
            "made; or leave --host out and come through an SSH tunnel"
        )
    own = (socket.gethostname(), socket.getfqdn(), host)
    access = Access(token, frozenset(name.lower() for name in (*own, *names)))
    with listen(host, port) as listening:
        server = DashboardServer(Dashboard(directory, access))
        ready(_address(host, listening.getsockname()[1], token))
        server.run(sockets=[listening])


class DashboardServer(uvicorn.Server):
    """A server with limits on connections. It logs no addresses, which may hold the token, and ends quickly."""

    def __init__(self, dashboard: Dashboard, crowd: Connections | None = None) -> None:
        self.crowd = crowd or Connections()
        config = uvicorn.Config(
            dashboard.app(),
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            http=type("OurConnection", (Connection,), {"crowd": self.crowd}),
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        super().__init__(config)
        self._streams = dashboard.streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.over.set()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket; an error is one line that says why not."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BadInput(f"port {port} of {host} is taken: choose another --port, or 0 for any") from error
        raise BadInput(f"cannot listen at {host}, port {port} ({error.strerror}): choose others") from error
    return listening


def _address(host: str, port: int, token: str | None) -> str:
    shown = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
    shown = f"[{shown}]" if ":" in shown else shown
    return f"http://{shown}:{port}/" + ("" if token is None else f"?token={quote(token, safe='')}")
