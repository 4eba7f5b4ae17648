"""Buffers that are lent come back when the last array of them goes, and are lent again; what is idle is bounded."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from siafu.tables.page_pool import PagePool
from siafu.tables.pages import PAGE


def address(buffer: np.ndarray) -> int:
    return buffer.ctypes.data


def test_a_buffer_begins_on_a_page_and_has_the_asked_size() -> None:
    pool = PagePool(1 << 20)
    for size in (1, PAGE, PAGE + 1, 3 * PAGE):
        lent = pool.lend(size)
        assert address(lent) % PAGE == 0
        assert size <= len(lent) < size + PAGE


def test_a_buffer_is_lent_again_once_nobody_refers_to_it() -> None:
    pool = PagePool(1 << 20)
    lent = pool.lend(5 * PAGE)
    where = address(lent)
    del lent
    assert pool.idle_bytes == 5 * PAGE
    assert address(pool.lend(5 * PAGE)) == where


def test_a_view_keeps_a_buffer_from_being_lent_again() -> None:
    pool = PagePool(1 << 20)
    lent = pool.lend(4 * PAGE)
    views = [
        lent[PAGE:].view(np.float32).reshape(-1, 16)[:, :5],
        np.lib.stride_tricks.as_strided(lent[:64], (8,), (8,)),
        torch.from_numpy(lent[2 * PAGE :]),
    ]
    del lent
    while views:
        assert pool.idle_bytes == 0
        views.pop()
    assert pool.idle_bytes == 4 * PAGE


def test_a_buffer_that_is_in_use_is_never_lent_twice() -> None:
    pool = PagePool(1 << 20)

    def work(seed: int) -> bool:
        draws, good = np.random.default_rng(seed), True
        for _ in range(200):
            mine = [pool.lend(int(draws.integers(1, 8 * PAGE))) for _ in range(3)]
            for k, each in enumerate(mine):
                each[:] = 3 * seed + k
            good &= all(bool((each == 3 * seed + k).all()) for k, each in enumerate(mine))
        return good

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))


def test_idle_buffers_never_take_more_than_they_may() -> None:
    pool = PagePool(16 * PAGE)
    held = [pool.lend(size * PAGE) for size in (4, 3, 4, 2, 4, 4, 4)]
    held.clear()
    assert 0 < pool.idle_bytes <= 16 * PAGE


def test_a_buffer_that_would_fill_the_pool_is_not_kept() -> None:
    pool = PagePool(16 * PAGE)
    lent = pool.lend(5 * PAGE)
    del lent
    assert pool.idle_bytes == 0
