"""The pool of threads."""

import subprocess
import sys

import pytest

from siafu.base import threads
from siafu.base.errors import BadInput


def test_results_come_in_the_items_order() -> None:
    assert threads.run_all(lambda k: k * k, range(20)) == [k * k for k in range(20)]


def test_the_first_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        threads.run_all(lambda k: 1 // k, [1, 0, 2])


def test_the_number_of_threads_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIAFU_THREADS", "3")
    assert threads.thread_count.__wrapped__() == 3
    monkeypatch.setenv("SIAFU_THREADS", "none")
    with pytest.raises(BadInput, match="SIAFU_THREADS is 'none'"):
        threads.thread_count.__wrapped__()


def test_a_forked_child_has_threads_of_its_own() -> None:
    program = """
import os
from siafu.base.threads import run_all
run_all(abs, range(9))
child = os.fork()
if child == 0:
    os._exit(0 if run_all(abs, range(9)) == list(range(9)) else 1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], env={"SIAFU_THREADS": "2", "PATH": ""}, timeout=60, check=False
    )
    assert ended.returncode == 0
