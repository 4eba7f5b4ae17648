"""A process that Ray ends says so, though it cannot say anything itself."""

import subprocess
import sys

import pytest

_SCRIPT = "import os; from siafu.cluster.on_ray.exit_message import ExitMessage; words = ExitMessage('siafu: ended, $0 \"so\"'); {}"
LINE = 'siafu: ended, $0 "so"\n'


def said(how: str) -> str:
    """What a process says on stderr that ends like this."""
    ended = subprocess.run([sys.executable, "-c", _SCRIPT.format(how)], capture_output=True, text=True)
    return ended.stderr


@pytest.mark.parametrize("how", ["os.abort()", "os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_a_process_that_is_ended_leaves_a_line(how: str) -> None:
    assert said(how).endswith(LINE)


@pytest.mark.parametrize(
    "how", ["words.withdraw(); os._exit(1)", "pass", "words.withdraw(); words.withdraw()"]
)
def test_one_that_ends_well_leaves_none(how: str) -> None:
    assert said(how) == ""
