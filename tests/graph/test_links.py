"""Links are split so that nothing of a held-out pair is seen, and drawn by hashes."""

import numpy as np
import pytest
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit

from siafu import Graph
from siafu.base.errors import BadInput
from siafu.graph.links import pairs_of, split_links
from tests.toys import edge_index, toy_graph


def as_set(pairs: np.ndarray) -> set[tuple[int, int]]:
    return {(int(u), int(v)) for u, v in pairs.T}


def directed_graph() -> Graph:
    """Some links in one direction, some in both, parallel edges and self-loops."""
    rng = np.random.default_rng(1)
    ends = rng.integers(0, 60, (2, 400))
    ends[1, :10] = ends[0, :10]
    weight = rng.random(400).astype(np.float32)
    return Graph.from_edges(*ends, num_vertices=60, edge_weight=weight)


@pytest.mark.parametrize("graph", [toy_graph(), directed_graph()], ids=["undirected", "directed"])
def test_no_edge_of_a_held_out_pair_is_left_in_either_direction(graph: Graph) -> None:
    split = split_links(graph, val=0.1, test=0.2, seed=4)
    whole, parts = as_set(pairs_of(graph)), [as_set(each) for each in (split.train, split.val, split.test)]
    assert set.union(*parts) == whole
    assert sum(map(len, parts)) == len(whole)
    assert len(parts[1]) == int(0.1 * len(whole))
    assert as_set(pairs_of(split.graph)) == parts[0]
    before, after = (sorted(zip(*edge_index(each).tolist(), strict=True)) for each in (graph, split.graph))
    kept = [(u, v) for u, v in before if u == v or (min(u, v), max(u, v)) in parts[0]]
    assert after == kept
    negatives = [as_set(split.val_negatives), as_set(split.test_negatives)]
    assert not set.union(*negatives) & whole
    assert not negatives[0] & negatives[1]
    assert [len(each) for each in negatives] == [len(parts[1]), len(parts[2])]


def test_the_shares_are_pygs() -> None:
    given = pairs_of(toy_graph())  # each pair once: PyG would count parallel edges more than once
    graph = Graph.from_edges(*given, num_vertices=210, undirected=True)
    theirs = RandomLinkSplit(num_val=0.05, num_test=0.1, is_undirected=True, split_labels=True)
    data = theirs(Data(edge_index=edge_index(graph), num_nodes=graph.num_vertices))
    ours = split_links(graph)
    counts = [part.pos_edge_label_index.shape[1] for part in data]
    assert [each.shape[1] for each in (ours.train, ours.val, ours.test)] == counts


def test_draws_are_reproducible_and_differ_from_step_to_step() -> None:
    one, other = (split_links(toy_graph(), seed=3) for _ in range(2))
    assert np.array_equal(one.test, other.test)
    assert np.array_equal(one.training_negatives(50, 7), other.training_negatives(50, 7))
    assert not np.array_equal(one.training_negatives(50, 7), one.training_negatives(50, 8))
    assert not np.array_equal(one.test, split_links(toy_graph(), seed=4).test)
    # A draw of more pairs begins with the same ones: a pair depends on its number alone.
    assert np.array_equal(one.training_negatives(50, 7), one.training_negatives(80, 7)[:, :50])
    assert not as_set(one.training_negatives(500, 0)) & as_set(one.train)
    assert sorted(one.epoch_order(2).tolist()) == list(range(one.train.shape[1]))
    assert not np.array_equal(one.epoch_order(2), one.epoch_order(3))


def test_a_batch_can_be_left_out_of_the_graph() -> None:
    split = split_links(toy_graph())
    picked = np.array([0, 5, 9])
    left = as_set(pairs_of(split.graph_without(picked)))
    assert left == as_set(split.train) - as_set(split.train[:, picked])


def test_what_cannot_be_split_is_refused() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match=r"val is 0\.6, test 0\.5, .*: give shares above 0 that leave links"):
        split_links(graph, val=0.6, test=0.5)
    few = Graph.from_edges([0, 1], [1, 2], num_vertices=3)
    with pytest.raises(BadInput, match="has 2 links: too few to be split so"):
        split_links(few)
    full = Graph.from_edges(*np.nonzero(1 - np.eye(12)), num_vertices=12)
    with pytest.raises(BadInput, match="every two vertices have a link"):
        split_links(full)
