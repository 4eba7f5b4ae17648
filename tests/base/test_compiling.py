"""Compilation is told as it begins, and a clock leaves it out."""

import threading

import numba
import pytest

from siafu.base import compiling as module
from siafu.base import jit
from siafu.base.activity import About, Activity
from siafu.base.compiling import compile_seconds, compiling, told_of_compiling, working_clock
from siafu.runtime.pool import After, Pool


def test_kernels_tell_when_they_are_compiled_and_not_when_they_run() -> None:
    assert jit.kernel  # listens from its import on
    heard: list[str] = []

    def increased(number: int) -> int:
        return number + 1

    compiled = numba.njit(increased)
    before = compile_seconds()
    with told_of_compiling(heard.append):
        assert compiled(1) == 2
        assert compiled(2) == 3
    assert heard == ["kernels"]
    assert compile_seconds() > before
    assert compiled(1.5) == 2.5
    assert heard == ["kernels"]


def test_the_working_clock_stands_still_during_nested_compilations(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "perf_counter", lambda: now)
    begun = working_clock()
    with compiling("the model"):
        now += 5
        with pytest.raises(ValueError, match="no"), compiling("kernels"):
            now += 2
            raise ValueError("no")
        assert working_clock() == begun
        now += 1
    now += 3
    assert working_clock() == begun + 3


def test_a_task_that_compiles_is_busy_for_the_rest_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "perf_counter", lambda: now)
    ended = threading.Event()
    pool = Pool(1, lambda error: None)

    def job() -> After:
        nonlocal now
        with compiling("kernels"):
            now += 7
        now += 2
        return After(ended.set)

    pool.add((0,), "kind", job, About("graph server 0", 0, 0))
    pool.start()
    ended.wait()
    pool.close()
    assert pool.activity.busy_seconds == {"kind": 2.0}


def test_seconds_of_compiling_never_make_work_negative() -> None:
    activity = Activity()
    activity.note(None, "kind", 0, 1.0, 2.0, compiling=5.0)
    assert activity.busy_seconds == {"kind": 0.0}
