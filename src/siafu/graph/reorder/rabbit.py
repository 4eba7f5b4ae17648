"""Rabbit order: vertices of a community side by side, and communities within communities likewise.

J. Arai, H. Shiokawa, T. Yamamuro, M. Onizuka, S. Iwamura: Rabbit Order: Just-in-Time Parallel Reordering for Fast Graph
Analysis, IPDPS 2016. Vertices are taken by rising degree; each joins the neighbouring community whose gain in modularity
is largest, and brings along its edges, added up by community. The order is a walk through the tree of who joined whom.

Theirs merges under locks, so that the tree depends on who came first. Ours takes vertices in batches: a batch looks for
its communities on all threads, with the communities as they were before the batch, and then joins them in order. The same
graph has the same order on any number of threads.
"""

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.base.threads import run_all, thread_count
from siafu.graph.csr import Csr, IntArray
from siafu.graph.progress import ProgressCallback, silent
from siafu.graph.reorder.community_links import CommunityLinks, LinkTable

BYTES_A_VERTEX = 80  # that ordering takes, at most
BYTES_AN_EDGE = 12  # of communities' edges to each other

_BATCHES = 256  # a batch has one in so many of the edges
_LEAST_BATCH = 1 << 14  # edges
_CHUNKS = 8  # of a batch at most, each in one thread
_LEAST_CHUNK = 1 << 13  # edges: fewer are done before a thread wakes


class OrderGivenUp(Exception):
    """An order took longer than it may."""


class _Forest(NamedTuple):
    """The tree of vertices that joined others.

    parent:   [V] the vertex that a vertex joined, or any on the way from there to the root; itself: a root, which stands
              for its community
    child:    [V] who joined a vertex last; -1: nobody did
    sibling:  [V] who joined the same vertex before; -1: nobody did
    strength: [V] of a root, the edge ends in its community
    begin, end: [V] where a vertex's edges to communities stand among all that were added up

    What is read together stands side by side: it comes from memory together.
    """

    parent: IntArray
    child: IntArray
    sibling: IntArray
    strength: NDArray[np.float32]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]

    @classmethod
    def of_roots(cls, degrees: NDArray[np.int64]) -> "_Forest":
        """Everyone alone."""
        pairs = np.empty((len(degrees), 2), np.int32)
        pairs[:, 0] = np.arange(len(degrees))
        strength = pairs.view(np.float32)[:, 1]
        strength[:] = degrees
        rest = np.zeros((len(degrees), 4), np.int64)
        kin = rest.view(np.int32)
        kin[:, :2] = -1
        return cls(pairs[:, 0], kin[:, 0], kin[:, 1], strength, rest[:, 1], rest[:, 2])


def rabbit_order(
    edges: Csr,
    back: Csr | None = None,
    progress: ProgressCallback = silent,
    seconds: float | None = None,
) -> IntArray:
    """[V] the vertex that comes first, second, and so on.

    back:    the same edges by their other end; None: they are symmetric
    seconds: of CPU time of this process, after which `OrderGivenUp` is raised; None: never
    """
    if seconds is not None:
        _compile(edges, back)
    end = np.inf if seconds is None else time.process_time() + seconds
    count = len(edges.indptr) - 1
    degrees = np.diff(edges.indptr) if back is None else np.diff(edges.indptr) + np.diff(back.indptr)
    total = int(degrees.sum())
    forest = _Forest.of_roots(degrees)
    links = CommunityLinks(total)
    tables = [LinkTable() for _ in range(thread_count())]
    best, in_batch = np.empty(count, np.int32), np.zeros(count, np.uint8)
    again = np.empty(0, np.int32)
    done = 0
    progress("ordering edges", 0, total)
    for batch in _batches(degrees):
        if time.process_time() > end:
            raise OrderGivenUp
        looking, ends = np.concatenate([again, batch]), int(degrees[batch].sum())
        chunks = max(1, min(_CHUNKS, ends // _LEAST_CHUNK))
        _look(edges, back, forest, links, tables, looking, chunks, best, total)
        again = _join(*forest, looking, best, in_batch)
        done += ends
        progress("ordering edges", done, total)
    while len(again):
        _look(edges, back, forest, links, tables, again, 1, best, total)
        again = _join(*forest, again, best, in_batch)
    return _walk(*forest[:3])


def _compile(edges: Csr, back: Csr | None) -> None:
    """Order two vertices of the same types: compiling is not a part of what an order costs."""
    rabbit_order(_pair(edges), None if back is None else _pair(back))


def _pair(like: Csr) -> Csr:
    return Csr(np.array([0, 1, 2], like.indptr.dtype), np.array([1, 0], like.indices.dtype), None)


def _batches(degrees: NDArray[np.int64]) -> list[IntArray]:
    """Vertices by rising degree, in batches of about as many edges; those without edges are in none."""
    order = np.argsort(degrees, kind="stable").astype(np.int32)
    order = order[np.searchsorted(degrees[order], 1) :]
    before = np.cumsum(degrees[order])
    if not len(order):
        return []
    size = max(_LEAST_BATCH, int(before[-1]) // _BATCHES)
    return np.split(order, np.unique(np.searchsorted(before, np.arange(size, before[-1], size))))


def _look(
    edges: Csr,
    back: Csr | None,
    forest: _Forest,
    links: CommunityLinks,
    tables: list[LinkTable],
    looking: IntArray,
    chunks: int,
    best: IntArray,
    total: int,
) -> None:
    """Find the best community of each vertex that is looking for one, and add up its edges to communities.

    chunks: that the vertices are shared out in
    """
    other: tuple[Any, Any] = (None, None) if back is None else (back.indptr, back.indices)
    ends: tuple[Any, Any, Any, Any] = (edges.indptr, edges.indices, *other)
    parts = np.array_split(looking, min(len(looking), chunks))
    rooms = run_all(lambda some: _count_links(*ends, *forest, some), parts)
    links.make_room(sum(count for count, _ in rooms), forest.begin, forest.end)

    def work(k: int) -> None:
        table, some = tables.pop(), parts[k]
        scratch = table.arrays(*rooms[k])
        used = _find_best(*ends, *forest, links.ends, links.weights, some, float(total), *scratch, best)
        _shift(some, forest.begin, forest.end, links.append(table.ends[:used], table.summed[:used]))
        tables.append(table)

    run_all(work, range(len(parts)))


@kernel
def _root(parent: IntArray, vertex: int) -> int:
    """Halves the way on which it goes. Threads may do so at once: whatever they write lies on the way."""
    while parent[vertex] != vertex:
        above = parent[vertex]
        parent[vertex] = parent[above]
        vertex = above
    return vertex


@kernel
def _shift(vertices: Any, begin: Any, end: Any, by: int) -> None:
    for v in vertices:
        begin[v] += by
        end[v] += by


@kernel
def _count_links(
    indptr: Any,
    indices: Any,
    back_indptr: Any,
    back_indices: Any,
    parent: Any,
    child: Any,
    sibling: Any,
    strength: Any,
    begin: Any,
    end: Any,
    vertices: Any,
) -> tuple[int, int]:
    """Links that some vertices have to add up: of all together, and of the one that has most."""
    total, most = 0, 0
    for v in vertices:
        count = end[v] - begin[v]
        if count == 0:
            count = indptr[v + 1] - indptr[v]
            if back_indptr is not None:
                count += back_indptr[v + 1] - back_indptr[v]
        c = child[v]
        while c >= 0:
            count += end[c] - begin[c]
            c = sibling[c]
        total += count
        most = max(most, count)
    return total, most


@kernel
def _find_best(
    indptr: Any,
    indices: Any,
    back_indptr: Any,
    back_indices: Any,
    parent: Any,
    child: Any,
    sibling: Any,
    strength: Any,
    begin: Any,
    end: Any,
    link_ends: Any,
    link_weights: Any,
    vertices: Any,
    total: float,
    keys: Any,
    sums: Any,
    slots: Any,
    roots: Any,
    weights: Any,
    ends: Any,
    summed: Any,
    best: Any,
) -> int:
    """best[v] = the community that v gains most by joining, or -1. Its links go to `ends` and `summed`, from begin[v] up
    to end[v]; those of the vertices that joined it are in them, and dropped. How many there are of all vertices.
    """
    at = 0
    for v in vertices:
        # All that is read at random is read in loops without a branch: many reads are under way at once.
        count = 0
        for e in range(begin[v], end[v]):  # it looks again
            roots[count] = parent[link_ends[e]]
            weights[count] = link_weights[e]
            count += 1
        if count == 0:
            for e in range(indptr[v], indptr[v + 1]):
                roots[count] = parent[indices[e]]
                weights[count] = 1
                count += 1
            if back_indptr is not None:
                for e in range(back_indptr[v], back_indptr[v + 1]):
                    roots[count] = parent[back_indices[e]]
                    weights[count] = 1
                    count += 1
        c = child[v]
        while c >= 0:
            for e in range(begin[c], end[c]):
                roots[count] = parent[link_ends[e]]
                weights[count] = link_weights[e]
                count += 1
            end[c] = begin[c]
            c = sibling[c]
        taken = _add_up(parent, v, roots, weights, count, keys, sums, slots)
        most, chosen = np.float32(0), -1
        pull = np.float32(strength[v] / total)
        begin[v] = at
        for t in range(taken):
            u = keys[slots[t]]
            gain = sums[slots[t]] - pull * strength[u]
            if gain > most:
                most, chosen = gain, u
            ends[at] = u
            summed[at] = sums[slots[t]]
            at += 1
            keys[slots[t]] = -1
        best[v] = chosen
        end[v] = at
    return at


@kernel
def _add_up(
    parent: Any, v: int, roots: Any, weights: Any, count: int, keys: Any, sums: Any, slots: Any
) -> int:
    """Sum weights by root, all but v's own, in a table of at least twice as many slots; how many it takes."""
    bits = 6
    while (1 << bits) < 2 * count:
        bits += 1
    mask, shift = (1 << bits) - 1, np.uint64(32 - bits)
    taken = 0
    for k in range(count):
        u = roots[k]
        if parent[u] != u:
            u = _root(parent, u)
        if u == v:
            continue
        slot = np.int64(((np.uint64(u) * np.uint64(2654435769)) & np.uint64(0xFFFFFFFF)) >> shift) & mask
        while keys[slot] != u and keys[slot] >= 0:
            slot = (slot + 1) & mask
        if keys[slot] < 0:
            keys[slot] = u
            sums[slot] = weights[k]
            slots[taken] = slot
            taken += 1
        else:
            sums[slot] += weights[k]
    return taken


@kernel
def _join(
    parent: Any,
    child: Any,
    sibling: Any,
    strength: Any,
    begin: Any,
    end: Any,
    looking: Any,
    best: Any,
    in_batch: Any,
) -> IntArray:
    """Let each vertex join its community, in order; those that must look again.

    A vertex that another of its batch has joined lacks that one's links, and looks again.

    in_batch: [V] zeros, before and after; 1: its links are added up, and it has not joined; 2: somebody joined it since
    """
    again = np.empty(len(looking), np.int32)
    count = 0
    for v in looking:
        in_batch[v] = 1
    for v in looking:
        if in_batch[v] == 2:
            again[count] = v
            count += 1
            continue
        in_batch[v] = 0
        if best[v] < 0:
            end[v] = begin[v]  # it stays a root, whose links nobody takes over
            continue
        root = _root(parent, best[v])
        parent[v] = root
        sibling[v] = child[root]
        child[root] = v
        strength[root] += strength[v]
        if in_batch[root] != 0:
            in_batch[root] = 2
    for v in looking:
        in_batch[v] = 0
    return again[:count]


@kernel
def _walk(parent: Any, child: Any, sibling: Any) -> IntArray:
    """All vertices, each followed by those that joined it, and each of these by its own."""
    order = np.empty(len(parent), np.int32)
    stack = np.empty(len(parent), np.int32)
    at = 0
    for root in range(len(parent)):
        if parent[root] != root:
            continue
        stack[0], depth = root, 1
        while depth > 0:
            depth -= 1
            v = stack[depth]
            order[at] = v
            at += 1
            c = child[v]
            while c >= 0:
                stack[depth] = c
                depth += 1
                c = sibling[c]
    return order
