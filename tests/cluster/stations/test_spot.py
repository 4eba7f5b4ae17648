"""The spot watch, against a small metadata service of our own."""

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from siafu.cluster.stations.metadata import SpotNotice
from siafu.cluster.stations.spot import SpotWatch
from tests.cluster.fork_crew import NO_METADATA

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


Answer = Callable[[BaseHTTPRequestHandler], tuple[int, str]]


def answer_as_aws(metadata: Metadata) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> tuple[int, str]:
        if request.command == "PUT":
            assert request.path == "/latest/api/token"
            assert int(request.headers["X-aws-ec2-metadata-token-ttl-seconds"]) > 0
            metadata.tokens += 1
            return 200, f"token {metadata.tokens}"
        assert request.path == "/latest/meta-data/spot/instance-action"
        return metadata.answer(request.headers["X-aws-ec2-metadata-token"])

    return answer


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, text = answer(self)
            self.send_response(code)
            if self.headers["Metadata-Flavor"] == "Google":
                self.send_header("Metadata-Flavor", "Google")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_PUT = do_GET  # noqa: N815 (as the library has it)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def watching(
    answer: Metadata | Answer, monkeypatch: pytest.MonkeyPatch, cloud: str = "aws"
) -> Iterator[tuple[SpotWatch, queue.SimpleQueue[SpotNotice]]]:
    noticed: queue.SimpleQueue[SpotNotice] = queue.SimpleQueue()
    for name, value in NO_METADATA.items():
        monkeypatch.setenv(name, value)
    with serving(answer_as_aws(answer) if isinstance(answer, Metadata) else answer) as host:
        off, where, url = {
            "aws": ("AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{host}"),
            "google": ("NO_GCE_CHECK", "GCE_METADATA_HOST", host),
            "azure": ("AZURE_METADATA_DISABLED", "AZURE_METADATA_ENDPOINT", f"http://{host}"),
        }[cloud]
        monkeypatch.delenv(off)
        monkeypatch.setenv(where, url)
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
        assert noticed.get(timeout=10) == SpotNotice("AWS", "terminate", "2030-01-02T03:04:05Z")
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
    with serving(answer_as_aws(Metadata((200, NOTICE)))) as host:
        pass
    for name in ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "AZURE_METADATA_ENDPOINT"):
        monkeypatch.setenv(name, f"http://{host}")
    monkeypatch.setenv("GCE_METADATA_HOST", host)
    noticed: queue.SimpleQueue[SpotNotice] = queue.SimpleQueue()
    watch = SpotWatch(noticed.put)
    watch.start()
    assert watch.wait(10)
    assert noticed.empty()


def test_where_there_is_no_metadata_service_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata((200, NOTICE))
    with serving(answer_as_aws(metadata)) as host:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{host}")
        for name, value in NO_METADATA.items():
            monkeypatch.setenv(name, value)
        watch = SpotWatch(lambda notice: None)
        watch.start()
        assert watch.wait(0)
    assert metadata.tokens == 0


def test_google_says_it_while_a_question_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, str]:
        assert request.headers["Metadata-Flavor"] == "Google"
        path, _, question = request.path.partition("?")
        assert path == "/computeMetadata/v1/instance/preempted"
        questions.append(question)
        return 200, "TRUE" if "wait_for_change=true" in question and len(questions) > 4 else "FALSE"

    with watching(answer, monkeypatch, "google") as (_, noticed):
        notice = noticed.get(timeout=10)
    assert notice == SpotNotice("Google", "preempt", "")
    assert str(notice) == "Google will preempt its machine soon"


def azure(*events: dict[str, Any]) -> Answer:
    """One after the other, then none."""
    left = list(events)

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, str]:
        assert request.headers["Metadata"] == "true"
        if request.path.startswith("/metadata/instance/compute/name?"):
            return 200, "mine"
        assert request.path == "/metadata/scheduledevents?api-version=2020-07-01"
        found = [left.pop(0)] if left else []
        return 200, json.dumps({"DocumentIncarnation": 1, "Events": found})

    return answer


def test_azure_says_it_in_a_list_of_events_of_all_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    when = "Mon, 19 Sep 2030 18:29:47 GMT"
    events = azure(
        {"EventType": "Reboot", "Resources": ["mine"], "NotBefore": "soon"},
        {"EventType": "Preempt", "Resources": ["another"], "NotBefore": "soon"},
        {"EventType": "Preempt", "Resources": ["another", "mine"], "NotBefore": when},
    )
    with watching(events, monkeypatch, "azure") as (_, noticed):
        assert noticed.get(timeout=10) == SpotNotice("Azure", "preempt", when)


def test_a_machine_of_another_cloud_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """At one address: what answers is not AWS's, and not Google's."""
    event = azure({"EventType": "Preempt", "Resources": ["mine"]})

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, str]:
        return event(request) if request.headers["Metadata"] == "true" else (404, "")

    with watching(answer, monkeypatch, "azure") as (_, noticed):
        assert noticed.get(timeout=10) == SpotNotice("Azure", "preempt", "")
    with serving(answer) as host:
        for name in NO_METADATA:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{host}")
        monkeypatch.setenv("GCE_METADATA_HOST", host)
        monkeypatch.setenv("AZURE_METADATA_ENDPOINT", f"http://{host}")
        watch = SpotWatch(lambda notice: None, every=SOON)
        watch.start()
        assert not watch.wait(0.5), "Azure's is asked"
        watch.stop()
        assert watch.wait(10)


@pytest.mark.parametrize("text", ["", "[]", '{"Events": 3}', '{"Events": [3]}'])
def test_an_answer_of_azure_that_is_no_list_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    good, asked = azure({"EventType": "Preempt", "Resources": ["mine"]}), []

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, str]:
        asked.append(request.path)
        return (200, text) if len(asked) == 2 else good(request)

    with watching(answer, monkeypatch, "azure") as (_, noticed):
        assert noticed.get(timeout=10).cloud == "Azure"
