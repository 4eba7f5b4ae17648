"""The dashboard over HTTP, really served."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from siafu.dashboard import app as module
from siafu.dashboard.access import Access
from siafu.report.files.metrics import MetricsFile
from siafu.report.files.stop_file import StopFile
from tests.dashboard.runs import add_epochs, epoch, make_run
from tests.dashboard.served import Served, served

TOKEN = "a token of some length"
HOSTILE = "<img src=x onerror=alert(1)>\"'&\n${name}"


def _client() -> httpx.Client:
    # What it would read of certificates and proxies takes longer than all that it is asked for here.
    return httpx.Client(verify=False, trust_env=False, timeout=20)


def get(url: str, **options: Any) -> httpx.Response:
    with _client() as client:
        return client.get(url, **options)


def post(url: str, **options: Any) -> httpx.Response:
    with _client() as client:
        return client.post(url, **options)


@contextmanager
def events(at: Served, path: str) -> Iterator[Iterator[tuple[str, Any]]]:
    """The events of a stream, as they come."""
    with _client() as client, client.stream("GET", at.url + path) as answer:
        assert answer.status_code == 200

        def parsed() -> Iterator[tuple[str, Any]]:
            name = ""
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield name, json.loads(line.removeprefix("data: "))

        yield parsed()


def ids(at: Served) -> dict[str, str]:
    return {run["name"]: run["id"] for run in get(f"{at.url}/api/runs").json()["runs"]}


def session(at: Served) -> str:
    """The secret that a page carries."""
    found = re.search(r'name="siafu-session" content="([^"]+)"', get(at.url).text)
    assert found is not None
    return found[1]


def test_runs_are_told_once_and_then_only_what_changes(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one")
    with served(tmp_path) as at, events(at, "/events") as coming:
        _, first = next(coming)
        assert first["first"]
        assert [run["name"] for run in first["changed"]] == ["one"]
        make_run(tmp_path / "two")
        _, news = next(coming)
        assert ([run["name"] for run in news["changed"]], news["gone"]) == (["two"], [])
        shutil.rmtree(one)
        _, news = next(coming)
        assert (news["changed"], news["gone"]) == ([], [first["changed"][0]["id"]])


def test_a_run_is_told_epoch_by_epoch_and_anew_when_it_begins_anew(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", epochs=2)
    with served(tmp_path) as at, events(at, f"/events/{ids(at)['one']}") as coming:
        name, news = next(coming)
        assert (name, news["restarted"], [row["epoch"] for row in news["rows"]]) == ("epochs", True, [1, 2])
        add_epochs(run, epoch(3))
        rows = next(news for name, news in coming if name == "epochs")
        assert (rows["restarted"], [row["epoch"] for row in rows["rows"]]) == (False, [3])
        (run / "metrics.jsonl").unlink()
        add_epochs(run, epoch(1))
        begun = next(news for name, news in coming if name == "epochs" and news["restarted"] and news["rows"])
        assert [row["epoch"] for row in begun["rows"]] == [1]


def test_a_run_that_vanishes_is_said_to_be_gone_and_may_come_back(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one")
    with served(tmp_path) as at, events(at, f"/events/{ids(at)['one']}") as coming:
        next(coming)
        shutil.rmtree(run)
        assert any(name == "gone" for name, _ in coming)
        make_run(run, epochs=1)
        assert any(name == "epochs" and news["restarted"] and news["rows"] for name, news in coming)


def test_the_button_leaves_a_request_for_a_run_that_runs(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one")
    training = MetricsFile(run / "metrics.jsonl")
    with served(tmp_path) as at:
        answer = post(f"{at.url}/api/runs/{ids(at)['one']}/stop", headers={"x-siafu-session": session(at)})
        assert answer.status_code == 202
        assert StopFile(run).there
        assert get(f"{at.url}/api/runs").json()["runs"][0]["status"] == "stopping"
    training.close()


def test_a_run_that_does_not_run_cannot_be_stopped(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one")
    with served(tmp_path) as at:
        headers = {"x-siafu-session": session(at)}
        assert post(f"{at.url}/api/runs/{ids(at)['one']}/stop", headers=headers).status_code == 409
        assert post(f"{at.url}/api/runs/0123456789abcdef/stop", headers=headers).status_code == 404
    assert not StopFile(run).there


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-siafu-session": "guess"},
        {"origin": "http://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example"},
        {"content-type": "text/plain"},
    ],
)
def test_no_other_page_can_stop_a_run(tmp_path: Path, headers: dict[str, str]) -> None:
    run = make_run(tmp_path / "one")
    training = MetricsFile(run / "metrics.jsonl")
    with served(tmp_path) as at:
        known = (
            {}
            if not headers or "x-siafu-session" in headers or "content-type" in headers
            else {"x-siafu-session": session(at)}
        )
        answer = post(f"{at.url}/api/runs/{ids(at)['one']}/stop", headers={**known, **headers})
        assert answer.status_code in (403, 421)
        assert get(f"{at.url}/api/runs/{ids(at)['one']}/stop").status_code == 405
    assert not StopFile(run).there
    training.close()


@pytest.mark.parametrize("path", ["/", "/api/runs", "/events", "/metrics", "/assets/style.css"])
def test_a_name_that_somebody_else_points_here_gets_nothing(tmp_path: Path, path: str) -> None:
    with served(tmp_path) as at:
        answer = get(at.url + path, headers={"host": f"evil.example:{at.port}"})
    assert answer.status_code == 421
    assert "session" not in answer.text


def test_with_a_token_nothing_is_seen_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WRONG_TOKEN_SECONDS", 0.0)
    make_run(tmp_path / "secret-name")
    access = Access(TOKEN)
    with served(tmp_path, access) as at:
        for path in ("/", "/api/runs", "/events", "/metrics", "/runs/0", "/?token=wrong"):
            answer = get(at.url + path)
            assert answer.status_code == 401, path
            assert "secret-name" not in answer.text
            assert access.session not in answer.text
        assert post(f"{at.url}/login", data={"token": "wrong"}).status_code == 401
        assert get(f"{at.url}/metrics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_token_is_exchanged_for_a_cookie_that_no_script_and_no_other_site_gets(tmp_path: Path) -> None:
    with served(tmp_path, Access(TOKEN)) as at:
        answer = get(at.url, params={"token": TOKEN})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        assert TOKEN not in cookie
        assert (
            get(at.url, headers={"cookie": answer.headers["set-cookie"].partition(";")[0]}).status_code == 200
        )
        assert post(f"{at.url}/login", data={"token": TOKEN}).status_code == 303
        foreign = post(f"{at.url}/login", data={"token": TOKEN}, headers={"origin": "http://evil.example"})
        assert foreign.status_code == 403
        assert post(f"{at.url}/login", content=b"token=" + b"x" * 10_000).status_code == 413


def test_every_answer_keeps_the_browser_on_our_side(tmp_path: Path) -> None:
    with served(tmp_path) as at:
        for path in ("/", "/api/runs", "/nowhere", "/runs/0", "/assets/charts.js", "/assets/../app.py"):
            headers = get(at.url + path).headers
            assert "script-src 'self'" in headers["content-security-policy"], path
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in headers
            assert "server" not in headers


def test_pages_have_no_script_of_their_own_and_hostile_names_stay_text(tmp_path: Path) -> None:
    make_run(tmp_path / HOSTILE.replace("/", ""))
    with served(tmp_path) as at:
        (run_id,) = ids(at).values()
        text = get(f"{at.url}/runs/{run_id}").text
    assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)


@pytest.mark.parametrize(
    "path",
    ["/assets/run.html", "/assets/LICENSE", "/assets/%2e%2e%2fapp.py", "/runs/..%2f..", "/api/runs/%00"],
)
def test_only_what_is_meant_for_browsers_is_served(tmp_path: Path, path: str) -> None:
    with served(tmp_path) as at:
        assert get(at.url + path).status_code == 404


def test_prometheus_reads_every_run_whatever_its_name(tmp_path: Path) -> None:
    make_run(tmp_path / HOSTILE.replace("/", ""), epochs=4)
    make_run(tmp_path / "new", epochs=0)
    with served(tmp_path) as at:
        answer = get(f"{at.url}/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    sample = re.compile(r'siafu_run_\w+\{(\w+="(\\[\\n"]|[^"\\\n])*",?)+\} -?[0-9.e+-]+')
    samples = [line for line in answer.text.splitlines() if not line.startswith("#")]
    assert samples and all(sample.fullmatch(line) for line in samples)
    assert any(line.startswith("siafu_run_epoch{") and line.endswith(" 4") for line in samples)


def test_two_dashboards_on_one_directory_see_the_same(tmp_path: Path) -> None:
    make_run(tmp_path / "one")
    with served(tmp_path) as one, served(tmp_path) as other:
        assert ids(one) == ids(other)
        with events(one, "/events") as here, events(other, "/events") as there:
            next(here), next(there)
            add_epochs(tmp_path / "one", epoch(4))
            assert next(here)[1]["changed"][0]["epoch"] == next(there)[1]["changed"][0]["epoch"] == 4


def test_a_browser_that_never_reads_holds_a_bounded_piece_and_nobody_up(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", epochs=0)
    line = json.dumps(epoch(1, padding="x" * 30_000))
    with (run / "metrics.jsonl").open("w") as file:
        file.writelines(line.replace('"epoch": 1', f'"epoch": {number}') + "\n" for number in range(1, 1001))
    reads = 0
    with served(tmp_path) as at:
        run_id = ids(at)["one"]
        original = module.EpochFeed.read

        def counted(feed: module.EpochFeed) -> Any:
            nonlocal reads
            reads += 1
            return original(feed)

        with pytest.MonkeyPatch.context() as patch, socket.socket() as browser:
            patch.setattr(module.EpochFeed, "read", counted)
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            browser.connect(("127.0.0.1", at.port))
            browser.sendall(f"GET /events/{run_id} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            browser.recv(1)
            with events(at, "/events") as others:
                next(others)
                for number in range(1001, 1011):
                    add_epochs(run, epoch(number))
                    next(others)  # while one does not read, another is served
            # 30 MB lie there in some 120 pieces: only what the sockets hold was ever read.
            assert 1 <= reads < 60


def test_one_that_stalls_is_let_go(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", epochs=0)
    add_epochs(run, *(epoch(number, padding="x" * 30_000) for number in range(1, 401)))
    with served(tmp_path) as at:
        at.dashboard.streams.stalled_seconds = 0.2
        with socket.socket() as browser, events(at, "/events") as others:
            next(others)
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            browser.connect(("127.0.0.1", at.port))
            browser.sendall(f"GET /events/{ids(at)['one']} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            browser.recv(1)
            number = 400
            while at.dashboard.streams.open == 2:
                number += 1
                add_epochs(run, epoch(number))
                next(others)
            assert at.dashboard.streams.open == 1


def test_too_many_streams_are_told_to_wait(tmp_path: Path) -> None:
    with served(tmp_path) as at:
        at.dashboard.streams.most = 1
        with events(at, "/events") as coming:
            next(coming)
            assert get(f"{at.url}/events").status_code == 503


def test_a_page_that_is_closed_frees_its_stream(tmp_path: Path) -> None:
    make_run(tmp_path / "one")
    with served(tmp_path) as at:
        with events(at, "/events") as coming:
            next(coming)
        with events(at, "/events") as coming:
            next(coming)
            number = 3
            while at.dashboard.streams.open > 1:
                number += 1
                add_epochs(tmp_path / "one", epoch(number))
                next(coming)


def test_a_trace_is_shown_as_the_report_shows_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one")
    span = {"name": "train T0", "cat": "train", "ph": "X", "ts": 1.0, "dur": 2.0, "pid": 1, "tid": 0}
    (run / "trace.json").write_text(
        "[\n" + json.dumps({**span, "args": {"epoch": 1, "interval": 0}}) + ',\n{"cut o'
    )
    with served(tmp_path) as at:
        shown = get(f"{at.url}/api/runs/{ids(at)['one']}/trace").json()
    assert shown["kinds"] == ["train T0"]
    assert shown["epochs"][0]["spans"] == [[0, 0, 0.0, 2.0, 0, 0]]


def test_a_trace_that_is_missing_elsewhere_or_no_file_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("[\n")
    (make_run(tmp_path / "runs" / "link") / "trace.json").symlink_to(tmp_path / "secret")
    os.mkfifo(make_run(tmp_path / "runs" / "pipe") / "trace.json")
    make_run(tmp_path / "runs" / "none")
    with served(tmp_path / "runs") as at:
        for run_id in ids(at).values():
            assert get(f"{at.url}/api/runs/{run_id}/trace").status_code == 404


def test_the_report_is_a_file_to_keep_not_a_page_of_ours(tmp_path: Path) -> None:
    make_run(tmp_path / HOSTILE.replace("/", ""))
    with served(tmp_path) as at:
        (run_id,) = ids(at).values()
        answer = get(f"{at.url}/runs/{run_id}/report.html")
    assert answer.status_code == 200
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "<img src=x" not in answer.text


def test_a_report_of_a_broken_run_says_what_is_wrong(tmp_path: Path) -> None:
    (make_run(tmp_path / "one") / "config.json").write_text("{")
    with served(tmp_path) as at:
        answer = get(f"{at.url}/runs/{ids(at)['one']}/report.html")
    assert answer.status_code == 409
    assert "config.json" in answer.text


def test_a_dashboard_needs_no_pytorch() -> None:
    loaded = "import sys, siafu.dashboard.server; assert not {'torch', 'numba'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", loaded], check=True)
