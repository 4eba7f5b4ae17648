"""Dropout: numbers of rows that a batch takes as 0, at random, and the rest scaled so that sums keep their size."""

from typing import Any

import numpy as np

from siafu.base.jit import kernel

_LANES = 4  # numbers that one hash decides on, by 16 bits each


def drop(rows: Any, share: float, key: int) -> None:
    """Set a share of the numbers to 0, in place, and divide the rest by what is kept.

    The same key drops the same places: applied to the gradients of rows that it was applied to, it gives those of the rows before.
    """
    if share > 0:
        _drop(rows, np.uint64(key), np.uint64(round(share * 65536)), rows.dtype.type(1 / (1 - share)))


@kernel
def _drop(rows: Any, key: Any, least: Any, scale: Any) -> None:
    zero, sixteen, mask = rows.dtype.type(0), np.uint64(16), np.uint64(0xFFFF)
    blocks = -(-rows.shape[1] // _LANES)
    for i in range(rows.shape[0]):
        for block in range(blocks):
            # splitmix64 of the place: any thread finds the same, in any order.
            h = key + np.uint64(i * blocks + block + 1) * np.uint64(0x9E3779B97F4A7C15)
            h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            h = h ^ (h >> np.uint64(31))
            for j in range(block * _LANES, min((block + 1) * _LANES, rows.shape[1])):
                rows[i, j] = rows[i, j] * scale if (h & mask) >= least else zero
                h = h >> sixteen
