"""Gathering block by block: sources that fit a core's own cache are used up before the next come in.

A row's sources ascend, so the edges from one block of sources stand together; `splits` says where. Each row is
visited once a block, which pays where a visit finds several edges: in dense graphs, not in sparse ones.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.jit import kernel
from siafu.kernels.chunks import over_rows

_EDGES_PER_VISIT = 4  # fewer, and going through the rows again costs more than the cache saves
_GOOD_VISIT = 8  # edges that make a visit's cost small
_TYPICAL_CACHE = 1 << 20  # bytes, where the system does not say


class Blocks(NamedTuple):
    """Where each row's edges from each block of sources begin.

    size:   sources of a block
    splits: [blocks + 1, V] uint16 or uint32: row i's edges from block b are those from indptr[i] + splits[b, i] up to
            indptr[i] + splits[b + 1, i]
    """

    size: int
    splits: NDArray[Any]


@cache
def near_cache_bytes() -> int:
    """The size of a core's own second-level cache."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text()
    except OSError:
        return _TYPICAL_CACHE
    match = re.fullmatch(r"(\d+)([KM]?)\s*", text)
    if match is None:
        return _TYPICAL_CACHE
    return int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[match[2]]


def block_size(vertices: int, edges: int, row_bytes: int, *, sources: int | None = None) -> int | None:
    """How many sources a block should have; None: blocks do not pay.

    sources: how many there are; None: as many as `vertices`
    A power of two, so that tables of similar width share one set of splits. Half the cache is left to the sums and
    the edges that stream by, unless visits would find few edges then.
    """
    largest = _power_below(near_cache_bytes() // row_bytes)
    size = _power_below(near_cache_bytes() // 2 // row_bytes)
    count = vertices if sources is None else sources
    if _edges_per_visit(vertices, edges, count, size) < _GOOD_VISIT:
        size = largest
    if size >= count or _edges_per_visit(vertices, edges, count, size) < _EDGES_PER_VISIT:
        return None
    return size


def _edges_per_visit(vertices: int, edges: int, sources: int, size: int) -> float:
    return edges / (vertices * -(-sources // size)) if vertices else 0.0


def _power_below(value: int) -> int:
    return 1 << max(0, value.bit_length() - 1)


def split_rows(
    indptr: NDArray[np.int64], indices: NDArray[Any], size: int, *, sources: int | None = None
) -> Blocks:
    """Find where the blocks begin in every row: one pass over the edges, on every core. sources: as in `block_size`."""
    vertices = len(indptr) - 1
    longest = int(np.diff(indptr).max(initial=0))
    kind = np.uint16 if longest < 1 << 16 else np.uint32
    count = vertices if sources is None else sources
    splits = np.empty((-(-count // size) + 1, vertices), kind)
    over_rows(indptr, 1, lambda first, last: _split(indptr, indices, size, splits, first, last))
    return Blocks(size, splits)


@kernel
def _split(indptr: Any, indices: Any, size: int, splits: Any, first: int, last: int) -> None:
    blocks = splits.shape[0] - 1
    for i in range(first, last):
        edge = indptr[i]
        for b in range(blocks):
            splits[b, i] = edge - indptr[i]
            end = (b + 1) * size
            while edge < indptr[i + 1] and indices[edge] < end:
                edge += 1
        splits[blocks, i] = indptr[i + 1] - indptr[i]
