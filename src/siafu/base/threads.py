"""One pool of threads for work that runs without the GIL."""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

from siafu.base.errors import BadInput

T = TypeVar("T")
R = TypeVar("R")


class PerThread(threading.local):
    """Values by name, of which every thread has its own."""

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}


@cache
def thread_count() -> int:
    """Number of threads for kernels: `$SIAFU_THREADS`, or the cores that this process may run on."""
    asked = os.environ.get("SIAFU_THREADS")
    if asked is not None:
        if not asked.isdigit() or int(asked) < 1:
            raise BadInput(f"SIAFU_THREADS is {asked!r}: set it to a whole number from 1 up, or unset it")
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_here = threading.local()


def _begin_thread() -> None:
    _here.in_pool = True


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="siafu", initializer=_begin_thread)


# A forked child has none of its parent's threads: it must start a pool of its own.
os.register_at_fork(after_in_child=_pool.cache_clear)


def run_all(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Run `work` on every item in the pool; results in the items' order, the first error raised.

    `work` that calls `run_all` itself runs its items one by one: a pool that waits for itself would never end.
    """
    listed = list(items)
    if len(listed) <= 1 or thread_count() == 1 or getattr(_here, "in_pool", False):
        return [work(item) for item in listed]
    return list(_pool().map(work, listed))
