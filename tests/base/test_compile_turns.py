import os
import subprocess
import sys
from pathlib import Path

import pytest

from siafu.base.compile_turns import turn

_COMPILE = """
import sys
import numpy as np
from numba.core import event
from siafu.kernels.copying import taken_rows

sys.stdin.readline()  # all begin together
with event.install_recorder("numba:compile") as recorder:
    taken_rows(np.ones((3, 2), np.float32), np.array([2, 0]))
print(sum(each.is_start for _, each in recorder.buffer))
"""


@pytest.mark.slow
def test_processes_that_start_together_compile_a_kernel_once(tmp_path: Path) -> None:
    environment = {**os.environ, "SIAFU_CACHE": str(tmp_path)}
    several = [
        subprocess.Popen(
            [sys.executable, "-c", _COMPILE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(3)
    ]
    for each in several:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    compiled = sorted(int(each.communicate()[0]) for each in several)
    assert compiled == [0, 0, 1]


def test_a_turn_may_be_taken_within_a_turn_and_again(tmp_path: Path) -> None:
    with turn(tmp_path, "outer"), turn(tmp_path, "inner"), turn(tmp_path, "outer"):
        pass
    with turn(tmp_path, "outer"):
        pass


def test_nobody_waits_where_nothing_can_be_locked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with turn(tmp_path / "file", "kernel"):
        pass
