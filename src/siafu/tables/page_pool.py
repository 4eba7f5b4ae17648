"""PagePool: memory in whole pages that is lent again when nobody refers to it any more."""

import os
import threading
from functools import cache
from typing import Any

import numpy as np

from siafu.tables.pages import Bytes, page_buffer, whole_pages

IDLE_BYTES = 32 << 20
"""Bytes that may wait to be lent again."""
_SPARE = 8  # a buffer may be larger than asked for by one part in so many
_LARGE = 4  # one that takes more than such a part of the pool is not kept


class PagePool:
    """Lends buffers of a few sizes again and again: of new memory the system would have to clear every page.

    most: bytes that may be idle; what was idle longest goes first
    """

    def __init__(self, most: int = IDLE_BYTES) -> None:
        self._most, self._idle_bytes = most, 0
        self._idle: list[Bytes] = []
        self._lock = threading.Lock()

    @property
    def idle_bytes(self) -> int:
        """Bytes that nobody uses now."""
        return self._idle_bytes

    def lend(self, size: int) -> Bytes:
        """At least `size` bytes that begin on a page; what is in them means nothing. They come back when nobody refers to them."""
        size = whole_pages(max(1, size))
        if size > self._most // _LARGE:
            return page_buffer(size)
        found = self._taken(size)
        return np.asarray(_Loan(self, page_buffer(size) if found is None else found))[:size]

    def give_back(self, memory: Bytes) -> None:
        """Take a buffer that nobody uses any more; one that comes while another is looked for goes back to the system.

        Python may call this anywhere, also in a thread that is looking: it must not wait.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._idle.append(memory)
            self._idle_bytes += len(memory)
            while self._idle_bytes > self._most:
                self._idle_bytes -= len(self._idle.pop(0))
        finally:
            self._lock.release()

    def _taken(self, size: int) -> Bytes | None:
        """The smallest idle buffer that is large enough, and not by far."""
        with self._lock:
            fitting = [k for k, each in enumerate(self._idle) if size <= len(each) <= size + size // _SPARE]
            if not fitting:
                return None
            found = self._idle.pop(min(fitting, key=lambda k: len(self._idle[k])))
            self._idle_bytes -= len(found)
            return found


class _Loan:
    """Owns a lent buffer: arrays of it refer to this, and the last of them that goes takes it along."""

    def __init__(self, pool: PagePool, memory: Bytes) -> None:
        self._pool, self._memory = pool, memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._memory.__array_interface__

    def __del__(self) -> None:
        self._pool.give_back(self._memory)


@cache
def _pool() -> PagePool:
    return PagePool()


# A forked child may find the lock held by a thread that it does not have.
os.register_at_fork(after_in_child=_pool.cache_clear)


def lent_buffer(size: int) -> Bytes:
    """A buffer of the process's pool: see `PagePool.lend`."""
    return _pool().lend(size)
