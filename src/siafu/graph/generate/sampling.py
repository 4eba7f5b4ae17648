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
from siafu.graph.csr import IntArray

_ENVELOPE = 0.9  # how far a row's edge probability may fall before its logarithm is taken again
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
def draw_edges(
    key: Any,
    first: int,
    last: int,
    rates: NDArray[np.float64],
    weight: NDArray[np.float32],
    community: IntArray,
    members: Any,
    ends: Any,
    vertex: IntArray,
    src: IntArray,
    dst: IntArray,
) -> int:
    """Edges of the positions `first` to `last` with later ones: u and v are joined with the probability
    min(1, rate * weight[u] * weight[v]), each pair by itself. Both directions are written to `src` and `dst`.

    members is None: rows are positions, only pairs of different communities are joined, and there is one rate.
    members given:   rows are places in `members`, only pairs of one community are joined, and each has its rate.

    EdgeWeights fall along a row, so that the next neighbour can be found by one skip of geometric length under the
    last probability seen, then kept or dropped for the true one (Miller and Hagberg, WAW 2011): the work grows
    with the edges, not with the pairs.

    Returns how many entries there are. Those past the end of `src` are counted, not written: come again with
    more room.
    """
    found = 0
    room = len(src)
    for row in range(first, last):
        u = row if members is None else int(members[row])
        end = len(weight) if members is None else ends[community[u]]
        at = row + 1
        if at >= end:
            continue
        mine = community[u]
        pull = rates[0 if members is None else mine] * weight[u]
        to = vertex[u]
        p = min(1.0, pull * weight[at if members is None else members[at]])
        per_log = 1.0 / math.log1p(-p) if p < 1.0 else 0.0
        state = _at(key, row)
        while True:
            state += GOLDEN
            bits = mix(state)
            if p < 1.0:
                skip = math.log((np.float64(bits >> np.uint64(24)) + 0.5) * 2.0**-40) * per_log
                if skip >= end - at:
                    break
                at += int(skip)
            v = at if members is None else int(members[at])
            q = min(1.0, pull * weight[v])
            if np.float64(bits & np.uint64(0xFFFFFF)) * 2.0**-24 * p < q and (
                members is not None or community[v] != mine
            ):
                if found + 2 <= room:
                    src[found] = vertex[v]
                    dst[found] = to
                    src[found + 1] = to
                    dst[found + 1] = vertex[v]
                found += 2
            at += 1
            if at >= end:
                break
            if q < _ENVELOPE * p:
                p = q
                per_log = 1.0 / math.log1p(-p)
    return found


@kernel
def cut_rows(
    target: float,
    rates: NDArray[np.float64],
    weight: NDArray[np.float32],
    community: IntArray,
    members: Any,
    totals: NDArray[np.float64],
    cuts: IntArray,
    expected: NDArray[np.float64],
) -> int:
    """Cut `draw_edges`'s rows into runs of about `target` expected edges, whatever their degrees.

    totals: the sum of all weights, or of each community's where members is given
    Run k is cuts[k] up to cuts[k + 1] and expects at most expected[k] edges. Returns how many runs there are.
    """
    left = totals.copy()
    runs = 0
    edges = 0.0
    for row in range(len(weight)):
        u = row if members is None else int(members[row])
        group = 0 if members is None else int(community[u])
        left[group] -= weight[u]
        edges += rates[group] * weight[u] * max(left[group], 0.0)
        if edges >= target or row == len(weight) - 1:
            cuts[runs + 1] = row + 1
            expected[runs] = edges
            runs += 1
            edges = 0.0
    return runs
