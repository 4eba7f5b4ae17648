"""Real half-open connections, at a dashboard that is really served."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from siafu.dashboard.access import Access
from siafu.dashboard.connections import Connections
from tests.dashboard.served import Served, served

HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
TOKEN = "a token of the test's own"
LONG = 30.0


@contextmanager
def half_open(site: Served, count: int, said: bytes = HALF) -> Iterator[list[socket.socket]]:
    """So many connections that begin a request and do not end it."""
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            each = stack.enter_context(socket.create_connection(("127.0.0.1", site.port), LONG))
            each.sendall(said)
            made.append(each)
        yield made


def is_ended(connection: socket.socket) -> bool:
    """Whether the server ends it, sooner or later; time out: it does not."""
    connection.settimeout(LONG)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("token", [None, TOKEN], ids=["open", "with a token"])
def test_four_hundred_half_open_connections_keep_nobody_out(tmp_path: Path, token: str | None) -> None:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    with served(tmp_path, Access(token)) as site, httpx.Client(headers=headers, timeout=LONG) as here_before:
        assert here_before.get(f"{site.url}/api/runs").status_code == 200
        with half_open(site, 400) as crowd:
            assert here_before.get(f"{site.url}/api/runs").status_code == 200
            assert httpx.get(f"{site.url}/api/runs", headers=headers, timeout=LONG).status_code == 200
            assert is_ended(crowd[0])
            assert site.server.crowd.count() <= 130


def test_a_header_that_does_not_end_is_waited_for_only_so_long(tmp_path: Path) -> None:
    with served(tmp_path, crowd=Connections(seconds=0.05)) as site, half_open(site, 3) as crowd:
        assert all(map(is_ended, crowd))


def test_a_second_header_on_a_connection_is_not_waited_for_longer(tmp_path: Path) -> None:
    asked = b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served(tmp_path, crowd=Connections(seconds=0.05)) as site, half_open(site, 1, asked) as crowd:
        answer = b""
        while b'"all"' not in answer:
            answer += crowd[0].recv(4096)
        crowd[0].sendall(HALF)
        assert is_ended(crowd[0])


def test_a_stream_outlasts_the_time_for_headers(tmp_path: Path) -> None:
    with (
        served(tmp_path, crowd=Connections(seconds=0.05)) as site,
        httpx.stream("GET", f"{site.url}/events", timeout=LONG) as stream,
    ):
        lines = stream.iter_lines()
        assert [next(lines) for _ in range(30)]


def test_who_is_signed_in_does_not_go_for_strangers(tmp_path: Path) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    with (
        served(tmp_path, Access(TOKEN), crowd=Connections(strangers=2, known=2)) as site,
        httpx.stream("GET", f"{site.url}/events", headers=headers, timeout=LONG) as stream,
    ):
        lines = stream.iter_lines()
        next(lines)
        with half_open(site, 20) as crowd:
            assert is_ended(crowd[0])
            assert [next(lines) for _ in range(10)]


def test_a_token_that_does_not_come_is_waited_for_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("siafu.dashboard.app.HEADER_SECONDS", 0.05)
    posted = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n\r\ntoken="
    with served(tmp_path, Access(TOKEN)) as site, half_open(site, 1, posted) as (slow,):
        assert b" 408 " in slow.recv(4096)
