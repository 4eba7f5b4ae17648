"""Synthetic graphs: the shape that was asked for, the same bytes every time, and labels worth learning."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from siafu.base.errors import BadInput
from siafu.base.hardware.memory import own_bytes
from siafu.graph import Graph, read_store
from siafu.graph.bf16 import to_bf16
from siafu.graph.generate import SHAPES, Shape, generate, sampling, shape_named
from siafu.graph.generate.population import Population, make_population, stream

_SHAPE = Shape(
    "test",
    num_vertices=20_000,
    num_edges=600_000,
    num_features=48,
    num_classes=10,
    max_degree=1_500,
    exponent=2.3,
    inside=0.6,
    signal=2.0,
    label_noise=0.05,
    train=0.5,
    val=0.2,
)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = tmp_path_factory.mktemp("generated") / "store"
    generate(_SHAPE, path)
    return read_store(path)


def _adjacency(graph: Graph) -> sp.csr_matrix:
    size = graph.num_vertices
    return sp.csr_matrix((np.ones(graph.num_edges, np.float32), graph.indices, graph.indptr), (size, size))


def _contents(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in store.iterdir()}


def test_counts_are_those_of_the_shape(graph: Graph) -> None:
    assert graph.num_vertices == _SHAPE.num_vertices
    assert graph.num_edges == pytest.approx(_SHAPE.num_edges, rel=0.02)
    assert graph.x.shape == (20_000, 48)
    assert graph.num_classes == 10
    assert set(np.unique(graph.y)) == set(range(10))
    sizes = np.array([len(graph.train), len(graph.val), len(graph.test)])
    np.testing.assert_allclose(sizes / 20_000, [0.5, 0.2, 0.3], atol=0.02)


def test_every_edge_stands_both_ways_and_once_and_joins_two_vertices(graph: Graph) -> None:
    matrix = _adjacency(graph)
    assert (matrix != matrix.T).nnz == 0
    assert matrix.diagonal().sum() == 0
    matrix.sum_duplicates()
    assert matrix.nnz == graph.num_edges
    assert graph.is_symmetric


def test_degrees_follow_a_power_law_up_to_the_largest_hub(graph: Graph) -> None:
    degrees = np.diff(graph.indptr)
    bounds = np.geomspace(2 * np.median(degrees), _SHAPE.max_degree / 3, 12)
    above = [(degrees >= bound).mean() for bound in bounds]
    slope = np.polyfit(np.log(bounds), np.log(above), 1)[0]
    assert slope == pytest.approx(1 - _SHAPE.exponent, abs=0.3)
    assert 0.7 < degrees.max() / _SHAPE.max_degree < 1.3


def test_neighbours_share_a_class_as_often_as_the_shape_says(graph: Graph) -> None:
    ends = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    alike = (graph.y[ends] == graph.y[graph.indices]).mean()
    # Both ends kept their community's label, or one did not and the pair is alike by chance.
    expected = _SHAPE.inside * (1 - _SHAPE.label_noise) ** 2
    assert alike == pytest.approx(expected, abs=0.03)


def test_small_and_large_communities_keep_the_same_share_of_edges_inside(graph: Graph) -> None:
    ends = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    alike = graph.y[ends] == graph.y[graph.indices]
    shares = np.bincount(graph.y[ends], alike) / np.bincount(graph.y[ends])
    assert shares.max() - shares.min() < 0.1


def test_vertex_ids_say_nothing_of_degree_or_class(graph: Graph) -> None:
    ids = np.arange(graph.num_vertices)
    assert abs(np.corrcoef(ids, np.diff(graph.indptr))[0, 1]) < 0.03
    assert abs(np.corrcoef(ids[:-1], graph.y[1:] == graph.y[:-1])[0, 1]) < 0.03
    assert (graph.y[1:] == graph.y[:-1]).mean() < 0.2


def test_features_are_centroids_under_noise_of_deviation_one(graph: Graph) -> None:
    for c in range(_SHAPE.num_classes):
        rows = graph.x[graph.y == c]
        assert rows.std(axis=0).mean() == pytest.approx(1, abs=0.05)
        assert np.linalg.norm(rows.mean(axis=0)) == pytest.approx(_SHAPE.signal, rel=0.15)


def test_classes_are_uneven_but_none_is_rare(graph: Graph) -> None:
    shares = np.bincount(graph.y) / graph.num_vertices
    assert shares.max() / shares.min() > 2
    assert shares.min() > 0.3 / _SHAPE.num_classes


def _best_test_accuracy(graph: Graph, rows: np.ndarray) -> float:
    """Of logistic regression, at the epoch that is best on the validation vertices."""
    torch.manual_seed(0)
    x = torch.from_numpy(rows)
    y = torch.from_numpy(np.array(graph.y))
    model = torch.nn.Linear(x.shape[1], graph.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=1e-3)
    best = (0.0, 0.0)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[graph.train]), y[graph.train]).backward()
        optimizer.step()
        right = (model(x).argmax(dim=1) == y).numpy()
        best = max(best, (right[graph.val].mean(), right[graph.test].mean()))
    return best[1]


def test_neighbours_tell_far_more_of_a_class_than_features_alone(tmp_path: Path) -> None:
    generate(SHAPES["demo"], tmp_path / "demo")
    graph = read_store(tmp_path / "demo")
    loops = _adjacency(graph) + sp.eye(graph.num_vertices, dtype=np.float32)
    scale = sp.diags(np.asarray(loops.sum(axis=1)).ravel() ** -0.5)
    gathered = scale @ loops @ scale
    rows = np.array(graph.x)
    alone = _best_test_accuracy(graph, rows)
    smoothed = (gathered @ (gathered @ rows)).astype(np.float32)
    smoothed /= smoothed.std(axis=0)
    together = _best_test_accuracy(graph, smoothed)
    assert 0.5 < alone < 0.7
    assert 0.85 < together < 0.99


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.slow
def test_threads_and_memory_change_no_byte(tmp_path: Path, threads: str) -> None:
    generate(SHAPES["demo"].scaled(20), tmp_path / "here", seed=7)
    siafu = [sys.executable, "-c", "from siafu.cli import main; main()"]
    command = [*siafu, "generate", "demo", "--scale=20", "--seed=7", "--memory-limit=500MB"]
    environment = os.environ | {"SIAFU_THREADS": threads}
    subprocess.run([*command, "-o", tmp_path / "there"], check=True, env=environment, capture_output=True)
    assert _contents(tmp_path / "there") == _contents(tmp_path / "here")


def test_another_seed_is_another_graph(tmp_path: Path) -> None:
    for seed in (1, 2):
        generate(SHAPES["demo"], tmp_path / str(seed), seed=seed)
    first, second = _contents(tmp_path / "1"), _contents(tmp_path / "2")
    assert all(first[name] != second[name] for name in first)


def test_bf16_features_are_the_fp32_ones_rounded(tmp_path: Path, graph: Graph) -> None:
    generate(_SHAPE, tmp_path / "narrow", bf16=True)
    narrow = read_store(tmp_path / "narrow")
    np.testing.assert_array_equal(narrow.x, to_bf16(graph.x))
    np.testing.assert_array_equal(narrow.indices, graph.indices)


def _draw_all(
    people: Population, rates: np.ndarray, key: np.uint64, *, inside: bool, room: int
) -> np.ndarray:
    size = len(people.weight)
    src, dst = np.empty(room, np.int32), np.empty(room, np.int32)
    records = people.by_community() if inside else people.records
    community, ends = (None, people.ends) if inside else (people.community, None)
    found = sampling.draw_edges(key, 0, size, rates, records, community, ends, src, dst)
    if found > room:
        return _draw_all(people, rates, key, inside=inside, room=found)
    joined = np.zeros((size, size))
    np.add.at(joined, (dst[:found], src[:found]), 1)
    return joined


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.slow
def test_each_pair_is_joined_with_its_own_probability(inside: bool) -> None:
    shape = replace(_SHAPE, num_vertices=24, num_edges=120, num_classes=3, max_degree=20)
    people = make_population(shape, 0)
    people.vertex[:] = np.arange(24)
    alike = people.community[:, None] == people.community[None, :]
    top = 0.9 / float(people.weight[0] * people.weight[2])  # some pairs' probability stops at 1
    rates = top * np.array([1.0, 0.5, 2.0] if inside else [1.0])
    rate = rates[people.community][:, None] if inside else rates
    expected = np.minimum(1, rate * np.outer(people.weight, people.weight)) * (alike == inside)
    np.fill_diagonal(expected, 0)
    draws = 20_000
    seen = sum(_draw_all(people, rates, stream(k, "test"), inside=inside, room=8) for k in range(draws))
    deviation = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(seen / draws - expected) <= 5 * deviation + 1e-9).all()


def test_edges_that_do_not_fit_into_small_communities_go_outside(tmp_path: Path) -> None:
    shape = replace(_SHAPE, num_vertices=600, num_edges=60_000, num_classes=40, inside=0.9)
    edges = generate(shape, tmp_path / "store")
    assert edges == pytest.approx(60_000, rel=0.02)


_SMALL_PRODUCTS = SHAPES["products"].scaled(0.004)


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = tmp_path_factory.mktemp("products") / "store"
    generate(_SMALL_PRODUCTS, path)
    return read_store(path)


def test_products_has_the_counts_of_ogbn_products() -> None:
    assert SHAPES["products"].counts == (2_449_029, 123_718_152, 100, 47)


def test_communities_may_be_smaller_than_classes(products: Graph) -> None:
    assert products.num_edges == pytest.approx(_SMALL_PRODUCTS.num_edges, rel=0.02)
    assert set(np.unique(products.y)) == set(range(47))
    blocks = products.y[: products.num_vertices // 50 * 50].reshape(50, -1)
    assert np.mean([len(set(block.tolist())) for block in blocks]) < 47


def test_communities_lie_together_unless_ids_are_shuffled(tmp_path: Path, products: Graph) -> None:
    shape = _SMALL_PRODUCTS.shuffled()
    generate(shape, tmp_path / "shuffled")
    shuffled = read_store(tmp_path / "shuffled")
    assert shape.name == "products-x0.004-shuffled"
    assert shuffled.num_edges == products.num_edges
    assert _mean_span(products) < 0.5 * _mean_span(shuffled)


def _mean_span(graph: Graph) -> float:
    """Mean distance of the ids that an edge joins."""
    ends = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    return float(np.abs(ends - graph.indices).mean())


def test_shuffling_ids_in_no_order_changes_nothing() -> None:
    assert SHAPES["amazon"].shuffled() is SHAPES["amazon"]


def test_scaling_keeps_the_average_degree() -> None:
    shape = SHAPES["reddit-small"].scaled(0.1)
    full = SHAPES["reddit-small"]
    assert shape.num_vertices == round(full.num_vertices / 10)
    assert shape.num_edges / shape.num_vertices == pytest.approx(full.num_edges / full.num_vertices, rel=1e-3)


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf"), 1e-4, 1e6])
def test_a_scale_that_cannot_be_is_refused(factor: float) -> None:
    with pytest.raises(BadInput, match="--scale"):
        SHAPES["reddit-small"].scaled(factor)


def test_an_unknown_shape_suggests_near_names() -> None:
    with pytest.raises(BadInput, match="did you mean friendster"):
        shape_named("frendster")


def test_a_memory_limit_below_what_the_vertices_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"too small for 65,600,000 vertices: give \d+ MB more"):
        generate(SHAPES["friendster"], tmp_path / "store", memory_limit=own_bytes() + (1 << 30))
    assert list(tmp_path.iterdir()) == []
