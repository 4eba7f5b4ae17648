"""Kernels of the sampler: edges picked at random, and vertices numbered as they are found.

Random numbers have no state: the n-th of a vertex is a hash of (key, vertex, n). Whoever samples a vertex, and on which thread, the
picks are the same.
"""

from typing import Any

import numpy as np

from siafu.base.hashing import GOLDEN, mix
from siafu.base.jit import kernel
from siafu.options import ALL_EDGES

ALL = ALL_EDGES

_FEW = 48  # picks that are compared with each other; more are drawn in one walk along the row


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
def pick_edges(indptr: Any, vertices: Any, key: Any, starts: Any, picked: Any) -> None:
    """Places of the picked in-edges among all edges: of vertices[i], picked[starts[i]:starts[i + 1]], each as likely as any other."""
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


@kernel
def _below(state: Any, n: Any, most: Any) -> Any:
    """The n-th random number of a state, from 0 up to and not at `most`, which is below 2**32."""
    bits = mix(state + np.uint64(n) * GOLDEN) >> np.uint64(32)
    return np.int64((bits * np.uint64(most)) >> np.uint64(32))


@kernel
def _pick_few(state: Any, first: Any, degree: Any, picked: Any) -> None:
    """Floyd's way: of the first j + 1 edges draw one, and where it was drawn before take the j-th."""
    count = len(picked)
    for n in range(count):
        j = degree - count + n
        drawn = first + _below(state, n + 1, j + 1)
        for m in range(n):
            if picked[m] == drawn:
                drawn = first + j
                break
        picked[n] = drawn


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
def number_sources(indices: Any, picked: Any, numbers: Any, found: Any, known: int, sources: Any) -> int:
    """Number the sources of edges in the order in which they are found; how many vertices are known then.

    picked:  places of edges
    numbers: [V] of all vertices; -1: it is not known yet
    found:   the vertex of each number; the first `known` are there
    sources: set to the source's number, for each of `picked`
    """
    # Reads of memory in no order, without a branch between them: many are under way at a time.
    for e in range(len(picked)):
        sources[e] = indices[picked[e]]
    for e in range(len(picked)):
        v = sources[e]
        if numbers[v] < 0:
            numbers[v] = known
            found[known] = v
            known += 1
        sources[e] = numbers[v]
    return known


@kernel
def order_rows(starts: Any, sources: Any, picked: Any) -> None:
    """Have the sources of each row ascend, and their edges' places with them: Shell's sort, in place; most rows are short."""
    for i in range(len(starts) - 1):
        first, last = starts[i], starts[i + 1]
        gap = 1
        while gap < (last - first) // 9:
            gap = 3 * gap + 1
        while gap > 0:
            for n in range(first + gap, last):
                source, place, m = sources[n], picked[n], n
                while m >= first + gap and sources[m - gap] > source:
                    sources[m], picked[m] = sources[m - gap], picked[m - gap]
                    m -= gap
                sources[m], picked[m] = source, place
            gap //= 3


@kernel
def number_vertices(vertices: Any, numbers: Any) -> int:
    """Number vertices in their order; the place of the first that comes twice, or -1."""
    for i in range(len(vertices)):
        if numbers[vertices[i]] >= 0:
            return i
        numbers[vertices[i]] = i
    return -1


@kernel
def forget_numbers(vertices: Any, numbers: Any) -> None:
    """Have none of the vertices be known."""
    for i in range(len(vertices)):
        numbers[vertices[i]] = -1
