"""The edges of a generated graph, drawn in parallel; the result does not depend on the threads."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from siafu.base.threads import run_all, thread_count
from siafu.graph.csr import IntArray
from siafu.graph.generate import sampling
from siafu.graph.generate.population import Population, stream
from siafu.graph.generate.rates import find_rates
from siafu.graph.generate.shapes import Shape

_ENTRY_BYTES = 8  # two int32


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows `first` to `last` of one kind of pairs, expected to have at most `edges` edges."""

    inside: bool
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
    rates = {True: within, False: across}
    keys = {True: stream(seed, "edges within"), False: stream(seed, "edges across")}
    one_at_a_time = Lock()

    def draw(run: _Run) -> None:
        src, dst = _draw_run(run, people, keys[run.inside], rates[run.inside])
        with one_at_a_time:
            take(src, dst)

    edges_a_run = max(1, memory // (2 * _ENTRY_BYTES * thread_count()))
    run_all(
        draw, [run for inside in rates for run in _runs(people, rates[inside], edges_a_run, inside=inside)]
    )


def _draw_run(
    run: _Run, people: Population, key: np.uint64, rates: NDArray[np.float64]
) -> tuple[IntArray, IntArray]:
    room = 2 * int(run.edges + 6 * math.sqrt(run.edges) + 16)
    while True:
        src, dst = np.empty(room, np.int32), np.empty(room, np.int32)
        found = sampling.draw_edges(
            key,
            run.first,
            run.last,
            rates,
            people.weight,
            people.community,
            people.members if run.inside else None,
            people.ends if run.inside else None,
            people.vertex,
            src,
            dst,
        )
        if found <= room:
            return src[:found], dst[:found]
        room = found


def _runs(people: Population, rates: NDArray[np.float64], edges_a_run: int, *, inside: bool) -> list[_Run]:
    weights = people.weight
    if inside:
        totals = np.bincount(people.community, weights, people.num_communities).astype(np.float64)
    else:
        totals = np.array([weights.sum(dtype=np.float64)])
    most = int(float(rates @ np.square(totals)) / 2 / edges_a_run) + 2
    cuts, expected = np.zeros(most + 1, np.int64), np.zeros(most)
    count = sampling.cut_rows(
        edges_a_run,
        rates,
        weights,
        people.community,
        people.members if inside else None,
        totals,
        cuts,
        expected,
    )
    return [_Run(inside, int(cuts[k]), int(cuts[k + 1]), float(expected[k])) for k in range(count)]
