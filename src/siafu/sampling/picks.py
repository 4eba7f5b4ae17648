"""Kernels of the sampler: edges picked at random, and vertices numbered as they are found.

Random numbers have no state: the n-th of a vertex is a hash of (key, vertex, n). Whoever samples a vertex, and on which thread, the
picks are the same.
"""

from typing import Any

import numpy as np

from siafu.base.hashing import GOLDEN, mix
from siafu.base.jit import kernel
from siafu.base.prefetch import prefetch
from siafu.options import ALL_EDGES

ALL = ALL_EDGES

_FEW = 48  # picks that are compared with each other; more are drawn in one walk along the row
_ROWS_BEHIND = 4
_SLOTS_AHEAD = 16  # sources whose slots are brought near before they are read
_BITS = 64  # of a word, one for each edge of a short row
_SHORT = 64  # edges of a row whose order is counted, in six bits; longer rows are sorted


@kernel
def batch_key(seed: Any, epoch: Any, batch: Any) -> Any:
    """Seed of a batch's random numbers."""
    return mix(mix(mix(np.uint64(seed) + GOLDEN) + np.uint64(epoch) + GOLDEN) + np.uint64(batch) + GOLDEN)


@kernel
def count_picks(indptr: Any, vertices: Any, fanout: int, starts: Any) -> Any:
    """The number of edges that are picked for all vertices; starts[i] is set to that of those before vertices[i].

    starts: [len(vertices) + 1]
    """
    total = np.int64(0)
    for i in range(len(vertices)):
        starts[i] = total
        degree = indptr[vertices[i] + 1] - indptr[vertices[i]]
        total += degree if fanout == ALL else min(degree, np.int64(fanout))
    starts[len(vertices)] = total
    return total


@kernel
def pick_edges(
    indptr: Any, indices: Any, vertices: Any, key: Any, starts: Any, picked: Any, sources: Any
) -> None:
    """Pick in-edges, each as likely as any other: those of vertices[i] at starts[i]:starts[i + 1].

    picked:  set to the edges' places among all edges
    sources: set to the edges' sources
    """
    behind = 0  # edges whose sources were read: those of a row are asked for when it is picked, and read some rows later
    for i in range(len(vertices)):
        v = vertices[i]
        first, degree = indptr[v], indptr[v + 1] - indptr[v]
        at, count = starts[i], starts[i + 1] - starts[i]
        if count == degree:
            for n in range(degree):
                picked[at + n] = first + n
        elif count <= _FEW:
            _pick_few(mix(key + np.uint64(v) * GOLDEN), first, degree, picked[at : at + count])
        else:
            _pick_many(mix(key + np.uint64(v) * GOLDEN), first, degree, picked[at : at + count])
        for e in range(at, at + count):
            prefetch(indices, picked[e])
        if i >= _ROWS_BEHIND:
            behind = read_sources(indices, picked, sources, behind, starts[i - _ROWS_BEHIND + 1])
    read_sources(indices, picked, sources, behind, len(picked))


@kernel
def read_sources(indices: Any, picked: Any, sources: Any, first: int, last: int) -> int:
    """Sources of the edges picked[first:last], by their places; `last`."""
    for e in range(first, last):
        sources[e] = indices[picked[e]]
    return last


@kernel
def _below(state: Any, n: Any, most: Any) -> Any:
    """The n-th random number of a state, from 0 up to and not at `most`, which is below 2**32."""
    bits = mix(state + np.uint64(n) * GOLDEN) >> np.uint64(32)
    return np.int64((bits * np.uint64(most)) >> np.uint64(32))


@kernel
def _pick_few(state: Any, first: Any, degree: Any, picked: Any) -> None:
    """Floyd's way: of the first j + 1 edges draw one, and where it was drawn before take the j-th.

    All are drawn first, which LLVM makes vectors of. In a short row, bits of 64 say what was drawn; in a long one they say that
    no edge was drawn twice, which is so for most rows.
    """
    count = len(picked)
    for n in range(count):
        picked[n] = _below(state, n + 1, degree - count + n + 1)
    if degree <= _BITS:
        _replace_drawn(degree - count, picked)
    elif _may_repeat(picked):
        _replace_found(degree - count, picked)
    for n in range(count):
        picked[n] += first


@kernel
def _replace_drawn(least: Any, drawn: Any) -> None:
    """Replace the n-th number, if it was drawn before, by least + n; all are below 64."""
    seen = np.uint64(0)
    for n in range(len(drawn)):
        number = drawn[n]
        number += np.int64((seen >> np.uint64(number)) & np.uint64(1)) * (least + n - number)
        seen |= np.uint64(1) << np.uint64(number)
        drawn[n] = number


@kernel
def _may_repeat(drawn: Any) -> Any:
    """Whether two of the numbers share their last six bits."""
    seen, shared = np.uint64(0), np.uint64(0)
    for n in range(len(drawn)):
        bit = np.uint64(1) << np.uint64(drawn[n] & (_BITS - 1))
        shared |= seen & bit
        seen |= bit
    return shared != np.uint64(0)


@kernel
def _replace_found(least: Any, drawn: Any) -> None:
    """Replace the n-th number, if it is among those before it, by least + n."""
    for n in range(1, len(drawn)):
        found = False
        for m in range(n):
            found |= drawn[m] == drawn[n]
        if found:
            drawn[n] = least + n


@kernel
def _pick_many(state: Any, first: Any, degree: Any, picked: Any) -> None:
    """Walk along the row, and take each edge with the share of those left that are still to be taken."""
    count, taken = len(picked), 0
    for n in range(degree):
        if _below(state, n + 1, degree - n) < count - taken:
            picked[taken] = first + n
            taken += 1
            if taken == count:
                return


@kernel
def number_sources(sources: Any, slots: Any, base: int, found: Any, known: int) -> int:
    """Number the sources of edges in the order in which they are found, in place; how many vertices are known then.

    sources: vertices; set to their numbers
    slots:   [V] of all vertices: base and the number; below base: it is not known yet
    found:   the vertex of each number; the first `known` are there. One longer than it can become
    """
    near = len(sources) - _SLOTS_AHEAD
    for e in range(len(sources)):
        if e < near:
            prefetch(slots, sources[np.uint64(e + _SLOTS_AHEAD)])
        # Without a branch, which would be guessed wrong every third time; without signs, which would be looked at.
        v = np.uint64(sources[np.uint64(e)])
        found[np.uint64(known)] = v
        slot = slots[v]
        new = slot < base
        slot = np.int32(base + known) if new else slot
        slots[v] = slot
        sources[np.uint64(e)] = slot - base
        known += new
    return known


@kernel
def order_rows(starts: Any, sources: Any, picked: Any) -> None:
    """Have the sources of each row ascend, and their edges' places with them, in place; parallel edges keep their order.

    A source's place in a short row is the number of those below it, which takes no branch; long rows are sorted.
    """
    keys, places = np.empty(_SHORT, np.int64), np.empty(_SHORT, np.int64)
    for i in range(len(starts) - 1):
        first, count = starts[i], starts[i + 1] - starts[i]
        if count > _SHORT:
            order = np.argsort(sources[first : first + count], kind="mergesort")
            sources[first : first + count] = sources[first : first + count][order]
            picked[first : first + count] = picked[first : first + count][order]
            continue
        falls = 0
        for n in range(count):
            keys[n] = (np.int64(sources[first + n]) << np.int64(6)) | n
            places[n] = picked[first + n]
            falls += n > 0 and keys[n] < keys[n - 1]
        if falls:
            for n in range(count):
                key, rank = keys[n], 0
                for m in range(count):
                    rank += keys[m] < key
                sources[first + rank], picked[first + rank] = key >> np.int64(6), places[n]


@kernel
def number_vertices(vertices: Any, slots: Any, base: int) -> int:
    """Number vertices in their order; the place of the first that comes twice, or -1."""
    for i in range(len(vertices)):
        if slots[vertices[i]] >= base:
            return i
        slots[vertices[i]] = base + i
    return -1
