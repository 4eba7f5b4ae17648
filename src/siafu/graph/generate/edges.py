"""The edges of a generated graph, drawn in parallel; the result does not depend on the threads."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.threads import run_all, thread_count
from siafu.graph.csr import IntArray
from siafu.graph.generate import sampling
from siafu.graph.generate.population import Population, VertexRecords, stream
from siafu.graph.generate.rates import find_rates
from siafu.graph.generate.shapes import Shape

_ENTRY_BYTES = 8  # two int32


@dataclass(frozen=True)
class _Pairs:
    """Pairs of one kind, across communities or within them, as `sampling.draw_edges` takes them.

    key:       of the stream that they are drawn from
    community: [V] of each row, where pairs of different ones are joined; else None
    ends:      [C] where each community's rows end, where pairs of one are joined; else None
    """

    key: np.uint64
    rates: NDArray[np.float64]
    records: VertexRecords
    community: IntArray | None
    ends: NDArray[np.int64] | None


class _Run(NamedTuple):
    """Rows `first` to `last`, expected to have at most `edges` edges."""

    first: int
    last: int
    edges: float


def draw_edges(
    shape: Shape, people: Population, seed: int, take: Callable[[IntArray, IntArray], None], *, memory: int
) -> None:
    """Give all edges to `take(sources, destinations)`: each both ways, no pair twice, no vertex with itself.

    `take` is called from several threads, by one at a time, in no fixed order; while one waits there, others draw.
    """
    within, across = find_rates(shape, people)
    edges_a_run = max(1, memory // (2 * _ENTRY_BYTES * thread_count()))
    one_at_a_time = Lock()

    def draw(pairs: _Pairs, totals: NDArray[np.float64]) -> None:
        def work(run: _Run) -> None:
            src, dst = _draw_run(run, pairs)
            with one_at_a_time:
                take(src, dst)

        run_all(work, _runs(pairs, totals, edges_a_run))

    total = people.weight.sum(dtype=np.float64)
    draw(
        _Pairs(stream(seed, "edges across"), across, people.records, people.community, None),
        np.array([total]),
    )
    totals = np.zeros(people.num_communities)
    sampling.add_weights(people.records, people.community, totals)
    draw(_Pairs(stream(seed, "edges within"), within, people.by_community(), None, people.ends), totals)


def _draw_run(run: _Run, pairs: _Pairs) -> tuple[IntArray, IntArray]:
    room = 2 * int(run.edges + 6 * math.sqrt(run.edges) + 16)
    while True:
        src, dst = np.empty(room, np.int32), np.empty(room, np.int32)
        found = sampling.draw_edges(
            pairs.key,
            run.first,
            run.last,
            pairs.rates,
            pairs.records,
            pairs.community,
            pairs.ends,
            src,
            dst,
        )
        if found <= room:
            return src[:found], dst[:found]
        room = found


def _runs(pairs: _Pairs, totals: NDArray[np.float64], edges_a_run: int) -> list[_Run]:
    most = int(float(pairs.rates @ np.square(totals)) / 2 / edges_a_run) + 2
    cuts, expected = np.zeros(most + 1, np.int64), np.zeros(most)
    count = sampling.cut_rows(edges_a_run, pairs.rates, pairs.records, pairs.ends, totals, cuts, expected)
    return [_Run(int(cuts[k]), int(cuts[k + 1]), float(expected[k])) for k in range(count)]
