"""Processes on this machine: ended whole, and no others."""

import os
import subprocess
import sys
from pathlib import Path

from siafu.launch import sessions

_WAIT = "import time; time.sleep(600)"
_DEAF = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
_PARENT = (
    "import subprocess, sys, time; "
    "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]]); print(child.pid, flush=True); child.wait()"
)


def _started(log: Path, *words: str) -> tuple[dict[str, int], subprocess.Popen[bytes]]:
    process = sessions.start([sys.executable, "-c", *words], log)
    return sessions.identity(process.pid), process


def _first_line(log: Path) -> str:
    while "\n" not in (said := log.read_text()):
        os.sched_yield()
    return said.splitlines()[0]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_is_ended_with_its_children(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process, _ = _started(log, _PARENT, _WAIT)
    child = int(_first_line(log))
    assert sessions.alive(process)
    sessions.end([process], seconds=0.2)
    assert not sessions.alive(process)
    assert not _runs(child)


def test_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process, _ = _started(log, _DEAF)
    assert _first_line(log) == "deaf"
    sessions.end([process], seconds=0.1)
    assert not sessions.alive(process)


def test_children_whose_parent_is_gone_are_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process, started = _started(log, _PARENT, _WAIT)
    child = int(_first_line(log))
    started.kill()
    started.wait()
    assert _runs(child)
    sessions.end([process], seconds=5.0)
    assert not _runs(child)


def test_a_process_that_got_the_number_of_another_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process, started = _started(log, _WAIT)
    sessions.end([process | {"started": process["started"] - 1}], seconds=0.1)
    assert started.poll() is None
    sessions.end([process], seconds=5.0)
    assert not _runs(started.pid)


def test_one_that_is_gone_is_no_error(tmp_path: Path) -> None:
    process, started = _started(tmp_path / "log", _WAIT)
    started.kill()
    started.wait()
    assert not sessions.alive(process)
    sessions.end([process], seconds=0.1)
