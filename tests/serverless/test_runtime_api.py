"""The local Runtime API gives invocations to its own process, and to nobody else on the machine."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from siafu.serverless.platforms.local_invoker import LocalInvoker
from siafu.serverless.platforms.runtime_api import RuntimeApi
from tests.serverless.calls import TOY, Calls

NOBODY = 65534
NEXT = "/2018-06-01/runtime/invocation/next"


@pytest.fixture
def pool() -> Iterator[LocalInvoker]:
    invoker = LocalInvoker(TOY, 1)
    invoker.start()
    yield invoker
    invoker.stop()


def api_of(pool: LocalInvoker) -> RuntimeApi:
    return pool._all[0]._api


def asked(pool: LocalInvoker, path: str, host: str | None = None) -> int:
    """The status of the answer to who asks for `path`."""
    address = api_of(pool)._host
    host_name, port = address.split(":")
    with socket.socket() as raw:  # without looking a name up, for which another user would need our files
        raw.settimeout(20)
        raw.connect((host_name, int(port)))
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: {host or address}\r\n\r\n".encode())
        return int(raw.recv(4096).split()[1])


def as_nobody(work: Callable[[], Any]) -> Any:
    """What `work` gives in a process of another user. Forked: that user may not be allowed to start our Python."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            told: Any = work()
        except BaseException as error:
            told = repr(error)
        os.write(writer, json.dumps(told).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return json.loads(told)


def read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        return type(error).__name__


def test_another_user_of_the_machine_gets_no_invocation_and_no_secret(pool: LocalInvoker) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    calls = Calls(pool)
    pid = calls.answer().receipt["pid"]
    status, command, environment = as_nobody(
        lambda: [asked(pool, NEXT), read(f"/proc/{pid}/cmdline"), read(f"/proc/{pid}/environ")]
    )
    assert status == 403
    assert "process" in command
    assert api_of(pool)._secret not in command
    assert environment == "PermissionError"
    assert calls.answer().receipt["calls"] == 2


@pytest.mark.parametrize("prefix", ["", "/", "/x", "/" + "x" * 43, "/é"])
def test_who_does_not_know_the_secret_gets_nothing(pool: LocalInvoker, prefix: str) -> None:
    calls = Calls(pool)
    calls.answer()
    assert asked(pool, prefix + NEXT) == 403
    assert api_of(pool).strangers == 1
    assert calls.answer().receipt["calls"] == 2


def test_a_request_that_was_meant_for_another_name_gets_nothing(pool: LocalInvoker) -> None:
    Calls(pool).answer()
    assert asked(pool, f"/{api_of(pool)._secret}{NEXT}", host="evil.example") == 403


def test_each_process_has_a_secret_of_its_own(pool: LocalInvoker) -> None:
    calls = Calls(pool)
    calls.answer()
    before = api_of(pool)._secret
    calls.failure(do="exit")
    calls.answer()
    assert api_of(pool)._secret != before


def test_many_connections_that_say_nothing_keep_the_process_from_nothing(pool: LocalInvoker) -> None:
    calls = Calls(pool)
    calls.answer()
    host, port = api_of(pool)._host.split(":")
    with ExitStack() as stack:
        crowd = [stack.enter_context(socket.create_connection((host, int(port)), 30)) for _ in range(100)]
        assert calls.answer().receipt["calls"] == 2
        assert crowd[0].recv(1) == b""
        assert len(api_of(pool)._unknown) <= 16


def test_what_went_wrong_before_the_first_invocation_comes_through(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise ZeroDivisionError('at once')")
    from siafu.serverless.platforms.environment import Function

    pool = LocalInvoker(Function("broken.handler", (tmp_path,)), 1)
    pool.start()
    try:
        assert "at once" in Calls(pool).failure().failure.detail
    finally:
        pool.stop()
