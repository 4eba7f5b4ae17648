"""Gathering block by block: sources that fit a core's own cache are used up before the next come in.

Edges are put in order of the blocks of their sources, then of their rows, so that a pass over a block streams through
memory; a source is named by its place in the block, in two bytes. Each row is visited once a block, which pays
where a visit finds several edges: in dense graphs, not in sparse ones.

Where sources exceed the cache that cores share, larger blocks, which fit that one, pay in sparse graphs too: rows are asked for
early there, across visits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.hardware.caches import cache_bytes
from siafu.base.jit import kernel
from siafu.base.threads import run_all
from siafu.kernels.chunks import row_at
from siafu.kernels.hubs import hub_rows

_SHARE_OF_CACHE = 0.8
_MOST_SOURCES = 1 << 16  # that two bytes tell apart
_EDGES_PER_VISIT = 4  # fewer, and going through the rows again costs more than the cache saves
_GOOD_VISIT = 8  # edges that make a visit's cost small
_FAR_VISIT = 1.25  # edges of a visit in blocks for the shared cache: with fewer, larger blocks are better
_FAR_SHARES = (0.25, 0.5, 1.0)  # of the shared cache that such a block may take
_EXCEEDS = 1.5  # times the shared cache: sources that exceed it
_READ_AGAIN = 1.0  # edges of a call for each source: with fewer, what a block brings into the cache is hardly read again


class Blocks(NamedTuple):
    """Edges in the order of their sources' blocks, and within a block of their rows.

    size:    sources of a block
    base:    [blocks] where a block's edges begin in `sources`
    starts:  [blocks, rows + 1] uint32: row k's edges from block b begin at base[b] + starts[b, k]
    sources: [edges] uint16: which of its block's sources each edge comes from
    weights: [edges]; None: every edge weighs 1
    """

    size: int
    base: NDArray[np.int64]
    starts: NDArray[np.uint32]
    sources: NDArray[np.uint16]
    weights: NDArray[Any] | None


def near_cache_bytes() -> int:
    """The size of a core's own second-level cache."""
    return cache_bytes(2)


def block_size(
    vertices: int, edges: int, row_bytes: int, *, sources: int | None = None, cache: int | None = None
) -> int | None:
    """Number of sources in a block; None: blocks do not pay.

    sources: how many there are; None: as many as `vertices`
    cache:   bytes of a core's own; None: this machine's
    A power of two. A part of the cache is left to the sums and the edges that stream by, unless visits would find
    few edges then.
    """
    near = near_cache_bytes() if cache is None else cache
    largest = min(_power_below(near // row_bytes), _MOST_SOURCES)
    size = min(_power_below(int(_SHARE_OF_CACHE * near) // row_bytes), _MOST_SOURCES)
    count = vertices if sources is None else sources
    if _edges_per_visit(vertices, edges, count, size) < _GOOD_VISIT:
        size = largest
    if size >= count or _edges_per_visit(vertices, edges, count, size) < _EDGES_PER_VISIT:
        return None
    return size


def far_block_size(rows: int, edges: int, row_bytes: int, *, sources: int, pieces: int) -> int | None:
    """Number of sources in a block for the cache that cores share; None: such blocks do not pay.

    rows, edges: that are gathered for, and into them; pieces: calls that a gather is cut into, of which each reads all sources
    """
    shared = cache_bytes(3)
    if sources * row_bytes < _EXCEEDS * shared or edges < _READ_AGAIN * sources * pieces:
        return None
    sizes = [
        min(_power_below(max(1, int(share * shared) // row_bytes)), _MOST_SOURCES) for share in _FAR_SHARES
    ]
    good = (size for size in sizes if _edges_per_visit(rows, edges, sources, size) >= _FAR_VISIT)
    return next(good, sizes[-1])


def _edges_per_visit(vertices: int, edges: int, sources: int, size: int) -> float:
    return edges / (vertices * -(-sources // size)) if vertices else 0.0


def _power_below(value: int) -> int:
    return 1 << max(0, value.bit_length() - 1)


def block_edges(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    weights: NDArray[Any] | None,
    size: int,
    *,
    sources: int | None = None,
    picked: NDArray[np.int64] | None = None,
    kept: NDArray[np.bool_] | None = None,
    self_loops: bool = True,
) -> Blocks:
    """Put edges in the order of blocks: two passes over them, on every core. Edges of hubs are left out.

    sources:    how many there are; None: as many as rows
    picked:     the rows to take, ascending; None: all
    kept:       [sources] whether edges from there are taken; None: all
    self_loops: whether edges from a row to itself are
    """
    rows = len(indptr) - 1 if picked is None else len(picked)
    count = -(-(len(indptr) - 1 if sources is None else sources) // size)
    starts = np.zeros((count, rows + 1), np.uint32)
    hubs = np.zeros(len(indptr) - 1, np.bool_)
    hubs[hub_rows(indptr)] = True
    chosen = picked, hubs, kept, self_loops

    def over_picked(work: Callable[[int, int], None]) -> None:
        chunks = (
            [(rows * k // 16, rows * (k + 1) // 16) for k in range(16)] if rows >= 1 << 12 else [(0, rows)]
        )
        run_all(lambda chunk: work(*chunk), chunks)

    over_picked(lambda first, last: _count(indptr, indices, size, *chosen, starts, first, last))
    run_all(_add_up, list(starts))
    base = np.zeros(count, np.int64)
    np.cumsum(starts[:-1, -1], out=base[1:], dtype=np.int64)
    edges = int(starts[:, -1].sum(dtype=np.int64))
    found = np.empty(edges, np.uint16)
    found_weights = None if weights is None else np.empty(edges, weights.dtype)
    over_picked(
        lambda first, last: _place(
            indptr, indices, weights, size, *chosen, base, starts, found, found_weights, first, last
        )
    )
    return Blocks(size, base, starts, found, found_weights)


def _add_up(counts: NDArray[np.uint32]) -> None:
    np.cumsum(counts, out=counts)


@kernel
def _taken(kept: Any, self_loops: bool, row: int, source: int) -> bool:
    if kept is not None and not kept[source]:
        return False
    return self_loops or source != row


@kernel
def _count(
    indptr: Any,
    indices: Any,
    size: int,
    picked: Any,
    hubs: Any,
    kept: Any,
    self_loops: bool,
    starts: Any,
    first: int,
    last: int,
) -> None:
    """starts[b, k + 1] = how many edges row k has from block b."""
    for k in range(first, last):
        i = row_at(picked, k)
        if hubs[i]:
            continue
        for e in range(indptr[i], indptr[i + 1]):
            if _taken(kept, self_loops, i, indices[e]):
                starts[indices[e] // size, k + 1] += 1


@kernel
def _place(
    indptr: Any,
    indices: Any,
    weights: Any,
    size: int,
    picked: Any,
    hubs: Any,
    kept: Any,
    self_loops: bool,
    base: Any,
    starts: Any,
    sources: Any,
    placed_weights: Any,
    first: int,
    last: int,
) -> None:
    for k in range(first, last):
        i = row_at(picked, k)
        if hubs[i]:
            continue
        block, at = -1, 0
        for e in range(indptr[i], indptr[i + 1]):
            if not _taken(kept, self_loops, i, indices[e]):
                continue
            if indices[e] // size != block:
                block = indices[e] // size
                at = base[block] + starts[block, k]
            sources[at] = indices[e] - block * size
            if weights is not None:
                placed_weights[at] = weights[e]
            at += 1
