"""Compilation of kernels and models: who wants to know of it hears when it begins, and a clock has what it took so far."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Told = Callable[[str], None]

_lock = threading.Lock()
_told: list[Told] = []
_depth, _began, _seconds = 0, 0.0, 0.0


def compile_seconds() -> float:
    """Seconds during which this process was compiling something, up to now."""
    if not _depth:  # nearly always, and asked for with every task: without the lock
        return _seconds
    with _lock:
        return _seconds + (time.perf_counter() - _began if _depth else 0.0)


def working_clock() -> float:
    """Seconds of a clock that stands still while this process compiles."""
    return time.perf_counter() - compile_seconds()


def compile_begins(what: str) -> None:
    """Compilation of `what` begins; one may begin within another."""
    global _depth, _began
    with _lock:
        if not _depth:
            _began = time.perf_counter()
        _depth += 1
        told = list(_told)
    for each in told:
        each(what)


def compile_ends() -> None:
    """The compilation that began last has ended, well or not."""
    global _depth, _seconds
    with _lock:
        _depth -= 1
        if not _depth:
            _seconds += time.perf_counter() - _began


@contextmanager
def compiling(what: str) -> Iterator[None]:
    """Compile something in this block."""
    compile_begins(what)
    try:
        yield
    finally:
        compile_ends()


@contextmanager
def told_of_compiling(told: Told) -> Iterator[None]:
    """Have `told` called, on any thread, with what is compiled as it begins, while the block lasts."""
    with _lock:
        _told.append(told)
    try:
        yield
    finally:
        with _lock:
            _told.remove(told)
