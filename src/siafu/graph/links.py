"""Links: pairs of vertices with an edge between them, split so that no held-out pair is seen in training, and pairs without one.

A pair is unordered: an edge, the edge back and their copies are one pair, and go to one part of the split together. Draws are hashes
of (seed, stream, number), so that they are the same on any machine.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph.graph import Graph

Pairs = NDArray[np.int64]
"""[2, n]: the smaller vertex of each pair, then the larger."""

_ORDER, _HELD_OUT, _TRAINING, _EPOCHS = 1, 2, 1 << 20, 1 << 40  # streams of draws; the last two have many
_MOST_ROUNDS = 64


@dataclass(frozen=True, slots=True, eq=False)
class LinkSplit:
    """The links of a graph, in three parts, and pairs without a link to tell them from.

    graph:          the graph with the edges of the training pairs alone, in the directions that they had
    train, val, test: pairs with a link
    val_negatives, test_negatives: pairs without one in any part
    """

    graph: Graph
    train: Pairs
    val: Pairs
    test: Pairs
    val_negatives: Pairs
    test_negatives: Pairs
    seed: int

    def training_negatives(self, count: int, draw: int) -> Pairs:
        """Pairs that are no training pair, as many as asked for; draw: another number, other pairs.

        Held-out links may be among them, as in real life: who trains cannot know them.
        """
        known = _keys(self.train, self.graph.num_vertices)
        return _pairs_without_link(known, self.graph.num_vertices, count, self.seed, _TRAINING + draw)

    def epoch_order(self, epoch: int) -> NDArray[np.int64]:
        """The training pairs' numbers, in another order every epoch."""
        return np.argsort(
            draw_bits(self.seed, _EPOCHS + epoch, np.arange(self.train.shape[1])), kind="stable"
        )

    def graph_without(self, picked: NDArray[np.int64]) -> Graph:
        """The training graph without the edges of some training pairs."""
        return _edges_of(self.graph, np.delete(self.train, picked, axis=1))


def split_links(
    graph: Graph, *, val: float = 0.05, test: float = 0.1, negatives: float = 1.0, seed: int = 0
) -> LinkSplit:
    """Split a graph's links at random, as PyG's `RandomLinkSplit` does for an undirected graph.

    val, test: shares of the pairs
    negatives: pairs without a link for each held-out link
    """
    if not (0 < val < 1 and 0 < test < 1 and val + test < 1 and negatives > 0):
        raise BadInput(
            f"val is {val}, test {test}, negatives {negatives}: give shares above 0 that leave links to train on"
        )
    pairs = pairs_of(graph)
    order = np.argsort(draw_bits(seed, _ORDER, np.arange(pairs.shape[1])), kind="stable")
    num_val, num_test = int(val * len(order)), int(test * len(order))
    if min(num_val, num_test, len(order) - num_val - num_test) < 1:
        raise BadInput(f"graph {graph.name!r} has {len(order)} links: too few to be split so")
    ends = {
        "val": order[:num_val],
        "test": order[num_val : num_val + num_test],
        "train": order[num_val + num_test :],
    }
    parts = {name: pairs[:, np.sort(each)] for name, each in ends.items()}
    wanted = round(negatives * num_val), round(negatives * num_test)
    found = _pairs_without_link(
        _keys(pairs, graph.num_vertices), graph.num_vertices, sum(wanted), seed, _HELD_OUT
    )
    if len(np.unique(_keys(found, graph.num_vertices))) != sum(wanted):
        found = _distinct(found, graph, pairs, sum(wanted), seed)
    return LinkSplit(
        _edges_of(graph, parts["train"]),
        parts["train"],
        parts["val"],
        parts["test"],
        found[:, : wanted[0]],
        found[:, wanted[0] :],
        seed,
    )


def pairs_of(graph: Graph) -> Pairs:
    """Every pair of two vertices with an edge between them, once, ascending."""
    target = np.repeat(np.arange(graph.num_vertices, dtype=np.int64), np.diff(graph.indptr))
    source = graph.indices.astype(np.int64)
    ends = np.sort(np.stack([source, target])[:, source != target], axis=0)
    keys = np.unique(_keys(ends, graph.num_vertices))
    return np.stack([keys // graph.num_vertices, keys % graph.num_vertices])


def _edges_of(graph: Graph, pairs: Pairs) -> Graph:
    """The graph with those edges alone whose ends are one of `pairs`, and its self-loops."""
    target = np.repeat(np.arange(graph.num_vertices, dtype=np.int64), np.diff(graph.indptr))
    ends = np.sort(np.stack([graph.indices.astype(np.int64), target]), axis=0)
    known = _keys(pairs, graph.num_vertices)
    kept = _is_in(_keys(ends, graph.num_vertices), known) | (ends[0] == ends[1])
    counts = np.zeros(graph.num_vertices + 1, np.int64)
    np.add.at(counts, target[kept] + 1, 1)
    on_edges = {name: getattr(graph, name) for name in ("edge_weight", "edge_attr", "edge_type")}
    return graph.replace(
        indptr=np.cumsum(counts),
        indices=graph.indices[kept],
        source=None,
        **{name: None if values is None else values[kept] for name, values in on_edges.items()},
    )


def _pairs_without_link(known: Pairs, vertices: int, count: int, seed: int, stream: int) -> Pairs:
    """Pairs of different vertices whose keys are not in `known`; each is drawn again until it is none."""
    if vertices * (vertices - 1) // 2 <= len(known):
        raise BadInput("every two vertices have a link: there are no pairs without one to learn from")
    drawn = np.zeros((2, count), np.int64)
    left = np.arange(count)
    for draw in range(_MOST_ROUNDS):
        bits = draw_bits(seed, stream, left * _MOST_ROUNDS + draw)
        ends = np.sort(
            np.stack([bits >> np.uint64(32), bits & np.uint64(0xFFFFFFFF)]).astype(np.int64) % vertices, 0
        )
        fine = (ends[0] != ends[1]) & ~_is_in(_keys(ends, vertices), known)
        drawn[:, left[fine]] = ends[:, fine]
        left = left[~fine]
        if len(left) == 0:
            return drawn
    raise BadInput("nearly every two vertices have a link: too few pairs without one to learn from")


def _distinct(found: Pairs, graph: Graph, pairs: Pairs, count: int, seed: int) -> Pairs:
    """Held-out negatives without a pair that is there twice: first and second part must not share any."""
    vertices, kept = graph.num_vertices, found
    for more in range(1, _MOST_ROUNDS):
        _, first = np.unique(_keys(kept, vertices), return_index=True)
        kept = kept[:, np.sort(first)]
        if kept.shape[1] >= count:
            return kept[:, :count]
        known = np.sort(np.concatenate([_keys(pairs, vertices), _keys(kept, vertices)]))
        extra = _pairs_without_link(known, vertices, count - kept.shape[1], seed, _HELD_OUT + 1000 * more)
        kept = np.concatenate([kept, extra], 1)
    raise BadInput("nearly every two vertices have a link: too few pairs without one to learn from")


def _keys(pairs: Pairs, vertices: int) -> NDArray[np.int64]:
    found: NDArray[np.int64] = pairs[0] * vertices + pairs[1]
    return found


def _is_in(keys: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """known: ascending"""
    if len(known) == 0:
        return np.zeros(len(keys), np.bool_)
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    found: NDArray[np.bool_] = known[place] == keys
    return found


def draw_bits(seed: int, stream: int, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """64 random bits for each number: SplitMix64's finaliser, twice."""
    with np.errstate(over="ignore"):
        start = _mixed(np.uint64(seed % 2**63) * _STEP + np.uint64(stream))
        return _mixed(start + (numbers.astype(np.uint64) + np.uint64(1)) * _STEP)


_STEP = np.uint64(0x9E3779B97F4A7C15)


def _mixed(given: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    z = np.asarray(given, np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)), np.uint64)
