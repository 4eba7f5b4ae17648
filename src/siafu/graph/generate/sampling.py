"""Random draws as pure functions of (seed, stream, index), so that no thread or block size can change them.

Every kernel of the generator stands in this one file: the cache of compiled kernels looks at the file a function
is in (and at `siafu.base.hashing`), so that a kernel which calls a changed one elsewhere would go unnoticed.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.hashing import GOLDEN, mix, uniform
from siafu.base.jit import kernel
from siafu.base.prefetch import prefetch
from siafu.graph.csr import IntArray

_ENVELOPE = 0.9  # how far a row's edge probability may fall before its logarithm is taken again
_SIDE_BY_SIDE = 16  # rows of `draw_edges`
_NOISE_SCALE = math.sqrt(3.0) / 2**16  # a sum of four 16-bit integers has deviation 2**16 / sqrt(3)


@kernel
def _at(key: Any, index: int) -> Any:
    return mix(key + GOLDEN * np.uint64(index + 1))


@kernel
def shuffled(key: Any, ids: IntArray) -> None:
    """Fisher and Yates: `ids` in an order in which every permutation is equally likely."""
    for i in range(len(ids) - 1, 0, -1):
        j = int(uniform(_at(key, i)) * (i + 1))
        ids[i], ids[j] = ids[j], ids[i]


@kernel
def choose(key: Any, first: int, until: IntArray, out: IntArray) -> None:
    """out[i] = k where draw `first + i` falls between until[k - 1] and until[k]; `until` ends at 1."""
    for i in range(len(out)):
        draw = uniform(_at(key, first + i))
        k, last = 0, len(until) - 1
        while k < last:
            middle = (k + last) // 2
            if draw >= until[middle]:
                k = middle + 1
            else:
                last = middle
        out[i] = k


@kernel
def relabel(key: Any, first: int, share: float, num_classes: int, labels: IntArray) -> None:
    """Give a `share` of the labels another class, each of the others alike."""
    for i in range(len(labels)):
        draw = uniform(_at(key, first + i))
        if draw < share:
            step = 1 + int(draw / share * (num_classes - 1))
            labels[i] = (labels[i] + step) % num_classes


@kernel
def fill_noise(key: Any, first: int, centre: NDArray[np.float32], which: IntArray, rows: Any) -> None:
    """rows[i] = centre[which[i]] + noise of mean 0 and deviation 1, near enough to normal.

    The noise is a sum of four uniform 16-bit numbers out of one draw: no logarithm, no cosine, and the same
    bits on every machine.
    """
    width = rows.shape[1]
    low = np.uint64(0x0000FFFF0000FFFF)
    for i in range(len(rows)):
        base = key + GOLDEN * np.uint64((first + i) * width + 1)
        about = centre[which[i]]
        for j in range(width):
            bits = mix(base + GOLDEN * np.uint64(j))
            pairs = (bits & low) + ((bits >> np.uint64(16)) & low)
            total = np.int32(pairs >> np.uint64(32)) + np.int32(pairs & np.uint64(0xFFFFFFFF))
            rows[i, j] = about[j] + np.float32((total - 131070) * _NOISE_SCALE)


@kernel
def count(community: IntArray, members: NDArray[np.int64]) -> None:
    """Add each community's number of members to `members`."""
    for position in range(len(community)):
        members[community[position]] += 1


@kernel
def by_community(community: IntArray, ends: NDArray[np.int64], members: IntArray) -> None:
    """members: positions by community, ascending within each, where ends[c] is the end of community c."""
    at = np.zeros(len(ends), np.int64)
    at[1:] = ends[:-1]
    for position in range(len(community)):
        c = community[position]
        members[at[c]] = position
        at[c] += 1


@kernel
def add_weights(records: Any, community: IntArray, totals: NDArray[np.float64]) -> None:
    """Add every weight to its community's total, in the order of the positions."""
    for position in range(len(records)):
        totals[community[position]] += records[position].weight


@kernel
def draw_edges(
    key: Any,
    first: int,
    last: int,
    rates: NDArray[np.float64],
    records: Any,
    community: Any,
    ends: Any,
    src: IntArray,
    dst: IntArray,
) -> int:
    """Edges of the rows `first` to `last` with later ones: u and v are joined with the probability
    min(1, rate * weight[u] * weight[v]), each pair by itself. Both directions are written to `src` and `dst`.

    records: [V] weight and vertex of each row, the weights falling
    community given: only rows of different communities are joined, and there is one rate
    ends given:      rows lie by community, weights fall within each; only rows of one are joined, and each has its rate

    Weights fall along a row, so that the next neighbour can be found by one skip of geometric length under the
    last probability seen, then kept or dropped for the true one (Miller and Hagberg, WAW 2011): the work grows
    with the edges, not with the pairs.

    Returns how many entries there are. Those past the end of `src` are counted, not written: come again with
    more room.
    """
    found = 0
    room = len(src) - 1
    # Of a large graph no cache holds the records. Rows are therefore drawn side by side: while the next neighbour of
    # one is fetched from memory, the others go on.
    place = np.full(_SIDE_BY_SIDE, np.iinfo(np.int64).max)
    end = np.zeros(_SIDE_BY_SIDE, np.int64)
    mine = np.zeros(_SIDE_BY_SIDE, np.int64)
    to = np.zeros(_SIDE_BY_SIDE, np.int32)
    pull = np.zeros(_SIDE_BY_SIDE)
    bound = np.zeros(_SIDE_BY_SIDE)
    per_log = np.zeros(_SIDE_BY_SIDE)
    state = np.zeros(_SIDE_BY_SIDE, np.uint64)
    row: Any = np.int64(first)
    group = 0 if ends is None else np.searchsorted(ends, first, side="right")
    going, k = _SIDE_BY_SIDE, 0
    while going > 0:
        if k >= going:
            k = 0
        at, p = place[k], bound[k]
        goes_on = at < end[k]
        if goes_on:
            other = records[at].vertex
            q = min(1.0, pull[k] * records[at].weight)
            chance = np.float64(mix(state[k]) & np.uint64(0xFFFFFF)) * 2.0**-24
            if chance * p < q and (community is None or community[at] != mine[k]):
                if found < room:
                    src[found] = other
                    dst[found] = to[k]
                    src[found + 1] = to[k]
                    dst[found + 1] = other
                found += 2
            at += 1
            goes_on = at < end[k]
            if goes_on and q < _ENVELOPE * p:
                p = q
                bound[k] = p
                per_log[k] = 1.0 / math.log1p(-p)
        while True:
            if goes_on:
                state[k] += GOLDEN
                if p < 1.0:
                    draw = (np.float64(mix(state[k]) >> np.uint64(24)) + 0.5) * 2.0**-40
                    skip = math.log(draw) * per_log[k]
                    goes_on = skip < end[k] - at
                    if goes_on:
                        at += int(skip)
            if goes_on or row == last:
                break
            if ends is not None:
                while row >= ends[group]:
                    group += 1
            end[k] = len(records) if ends is None else ends[group]
            mine[k] = 0 if community is None else community[row]
            pull[k] = rates[group] * records[row].weight
            to[k] = records[row].vertex
            state[k] = _at(key, row)
            row += 1
            at = row
            goes_on = at < end[k]
            if goes_on:
                p = min(1.0, pull[k] * records[at].weight)
                bound[k] = p
                per_log[k] = 1.0 / math.log1p(-p) if p < 1.0 else 0.0
        if goes_on:
            place[k] = at
            prefetch(records, at)
            if community is not None:
                prefetch(community, at)
            k += 1
        else:
            going -= 1
            place[k], end[k], mine[k], to[k] = place[going], end[going], mine[going], to[going]
            pull[k], bound[k], per_log[k], state[k] = pull[going], bound[going], per_log[going], state[going]
    return found


@kernel
def cut_rows(
    target: float,
    rates: NDArray[np.float64],
    records: Any,
    ends: Any,
    totals: NDArray[np.float64],
    cuts: IntArray,
    expected: NDArray[np.float64],
) -> int:
    """Cut `draw_edges`'s rows into runs of about `target` expected edges, whatever their degrees.

    totals: the sum of all weights, or of each community's where `ends` is given
    Run k is cuts[k] up to cuts[k + 1] and expects at most expected[k] edges. Returns how many runs there are.
    """
    group = 0
    left = totals[0]
    runs = 0
    edges = 0.0
    for row in range(len(records)):
        if ends is not None and row >= ends[group]:
            while row >= ends[group]:
                group += 1
            left = totals[group]
        left -= records[row].weight
        edges += rates[group] * records[row].weight * max(left, 0.0)
        if edges >= target or row == len(records) - 1:
            cuts[runs + 1] = row + 1
            expected[runs] = edges
            runs += 1
            edges = 0.0
    return runs
