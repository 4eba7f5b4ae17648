"""Dropout: numbers of rows that a batch takes as 0, at random, and the rest scaled so that sums keep their size."""

from typing import Any

import numpy as np

from siafu.base.jit import kernel


def drop(rows: Any, share: float, key: int) -> None:
    """Set a share of the numbers to 0, in place, and divide the rest by what is kept.

    The same key drops the same places: applied to the gradients of rows that it was applied to, it gives those of the rows before.
    """
    if share > 0:
        least = np.uint32(min(round(share * 2.0**32), 2**32 - 1))
        _drop(rows, np.uint64(key), least, rows.dtype.type(1 / (1 - share)))


@kernel
def _drop(rows: Any, key: Any, least: Any, scale: Any) -> None:
    zero = rows.dtype.type(0)
    first, second, odd = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35), np.uint32(0x9E3779B9)
    sixteen, thirteen = np.uint32(16), np.uint32(13)
    for i in range(rows.shape[0]):
        # A row's own number by splitmix64, then MurmurHash's last step for each column: any thread finds the same, in any
        # order, and LLVM makes vectors of the 32 bits.
        h = key + np.uint64(i + 1) * np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        seed = np.uint32(h >> np.uint64(32))
        row = rows[i]
        for j in range(len(row)):
            x = np.uint32(seed + np.uint32(j) * odd)
            x = np.uint32((x ^ (x >> sixteen)) * first)
            x = np.uint32((x ^ (x >> thirteen)) * second)
            x = np.uint32(x ^ (x >> sixteen))
            row[j] = row[j] * scale if x >= least else zero
