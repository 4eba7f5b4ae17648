import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from siafu.base import compile_turns, jit
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


def test_a_kernel_that_another_one_calls_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    @contextmanager
    def noting(directory: Path, name: str) -> Iterator[None]:
        taken.append(name.rsplit(".", 1)[-1])
        yield

    monkeypatch.setattr(jit, "turn", noting)

    @jit.kernel
    def called(values: Any) -> Any:
        return values[0]

    @jit.kernel
    def calls(values: Any) -> Any:
        return called(values) + called(values[1:])

    assert calls(np.array([1.0, 2.0])) == 3.0
    assert [name.split("(")[0] for name in taken] == ["calls"]


_HOLD = """
import sys
from pathlib import Path
from siafu.base.compile_turns import turn

with turn(Path(sys.argv[1]), "kernel"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_nobody_waits_for_ever_for_a_process_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_turns, "_PATIENCE_SECONDS", 0.1)
    hanging = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(hanging, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with turn(tmp_path, "another kernel"):
            pass
        began = time.monotonic()
        with turn(tmp_path, "kernel"):
            assert time.monotonic() - began >= 0.1
        assert other.poll() is None
        other.communicate("\n")


def test_nobody_waits_where_nothing_can_be_locked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with turn(tmp_path / "file", "kernel"):
        pass
