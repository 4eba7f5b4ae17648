"""The spot watch, against a small metadata service of our own."""

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from siafu.cluster.spot import SpotNotice, SpotWatch

NOTICE = json.dumps({"action": "terminate", "time": "2030-01-02T03:04:05Z"})
SOON = 0.01  # seconds between looks


class Metadata:
    """A metadata service: says `answers` one after the other, the last for ever."""

    def __init__(self, *answers: tuple[int, str]) -> None:
        self.answers = list(answers)
        self.tokens = 0
        self.looks = 0
        self.looked = threading.Semaphore(0)

    def answer(self, token: str | None) -> tuple[int, str]:
        if token != f"token {self.tokens}":
            return 401, ""
        self.looks += 1
        self.looked.release()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serving(metadata: Metadata) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            assert self.path == "/latest/api/token"
            assert int(self.headers["X-aws-ec2-metadata-token-ttl-seconds"]) > 0
            metadata.tokens += 1
            self._say(200, f"token {metadata.tokens}")

        def do_GET(self) -> None:
            assert self.path == "/latest/meta-data/spot/instance-action"
            self._say(*metadata.answer(self.headers["X-aws-ec2-metadata-token"]))

        def _say(self, code: int, text: str) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def watching(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[SpotWatch, queue.SimpleQueue[SpotNotice]]]:
    noticed: queue.SimpleQueue[SpotNotice] = queue.SimpleQueue()
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    with serving(metadata) as url:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        watch = SpotWatch(noticed.put, every=SOON)
        watch.start()
        try:
            yield watch, noticed
        finally:
            watch.stop()
            assert watch.wait(10)


def test_a_notice_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata((404, ""), (404, ""), (200, NOTICE))
    with watching(metadata, monkeypatch) as (watch, noticed):
        assert noticed.get(timeout=10) == SpotNotice("terminate", "2030-01-02T03:04:05Z")
        assert watch.wait(10)
    assert noticed.empty()
    assert metadata.looks == 3
    assert metadata.tokens == 1


def test_no_notice_tells_nothing_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata((404, ""))
    with watching(metadata, monkeypatch) as (watch, noticed):
        for _ in range(3):
            assert metadata.looked.acquire(timeout=10)
        assert not watch.wait(0)
    assert noticed.empty()


def test_an_expired_token_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata((401, ""), (200, NOTICE))
    with watching(metadata, monkeypatch) as (_, noticed):
        assert noticed.get(timeout=10).action == "terminate"
    assert metadata.tokens == 2


@pytest.mark.parametrize("answer", [(500, ""), (200, "soon"), (200, "[]"), (200, "{}"), (200, "")])
def test_an_answer_that_is_no_notice_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str]
) -> None:
    with watching(Metadata(answer, (200, NOTICE)), monkeypatch) as (_, noticed):
        assert noticed.get(timeout=10).action == "terminate"


def test_where_nothing_answers_the_watch_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Metadata((200, NOTICE))) as url:
        pass
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
    noticed: queue.SimpleQueue[SpotNotice] = queue.SimpleQueue()
    watch = SpotWatch(noticed.put)
    watch.start()
    assert watch.wait(10)
    assert noticed.empty()


def test_where_there_is_no_metadata_service_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata((200, NOTICE))
    with serving(metadata) as url:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        watch = SpotWatch(lambda notice: None)
        watch.start()
        assert watch.wait(0)
    assert metadata.tokens == 0
