"""Zeros of features decide whether the first gather is folded: products skip zeros, and gathered rows have fewer of them."""

from pathlib import Path

import numpy as np
import pytest
import torch

import siafu
from siafu.graph import Graph
from siafu.program import density
from siafu.program.cache import program_cache
from siafu.program.compile import compile_model
from siafu.program.density import sampled_density, saved_by_sparse_products
from tests.oracle import train_plainly
from tests.toys import toy_graph


def words(share: float = 0.05, *, vertices: int = 300) -> Graph:
    """A toy graph whose features are bags of words."""
    rng = np.random.default_rng(0)
    x = (rng.random((vertices, 400)) < share) * rng.random((vertices, 400))
    return toy_graph(vertices, x=x.astype(np.float32))


def gcn(graph: Graph, **changes: object) -> torch.nn.Module:
    torch.manual_seed(0)
    given = {"hidden_channels": 16, "num_layers": 2, "dropout": 0.5} | changes
    return siafu.nn.GCN(graph.num_features, out_channels=graph.num_classes, **given)  # type: ignore[arg-type]


@pytest.fixture
def worth_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Graphs as small as those of tests count; what they are compiled to is kept for nobody else."""
    monkeypatch.setattr(density, "_LEAST", 1.0)
    monkeypatch.setattr(program_cache, "cache_directory", lambda: tmp_path)


def folded(graph: Graph, model: torch.nn.Module, **options: bool) -> bool:
    return bool(compile_model(model, graph, training=True, **options).cut.folded)  # type: ignore[arg-type]


def test_a_sample_tells_the_share_of_nonzeros() -> None:
    graph = words()
    edges = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr)), graph.indices
    near = np.eye(graph.num_vertices, dtype=bool)
    near[edges] = True
    filled = graph.x != 0
    assert sampled_density(graph, gathered=False) == pytest.approx(filled.mean())
    assert sampled_density(graph, gathered=True) == pytest.approx((near.astype(int) @ filled > 0).mean())


def test_products_that_are_saved_are_the_zeros_that_gathering_fills_less_the_gather() -> None:
    graph = words()
    before, after = (sampled_density(graph, gathered=each) for each in (False, True))
    filled = (min(after, density.MOST_DENSITY) - before) * graph.num_vertices * graph.num_features
    assert saved_by_sparse_products(graph) == pytest.approx(
        filled - density._GATHERED * (graph.num_edges + graph.num_vertices)
    )


def test_features_without_zeros_save_none() -> None:
    assert saved_by_sparse_products(toy_graph()) == 0


@pytest.mark.usefixtures("worth_it")
@pytest.mark.slow
def test_a_gather_that_would_fill_zeros_runs_in_every_epoch_and_says_why() -> None:
    graph = words()
    program = compile_model(gcn(graph), graph, training=True)
    assert len(program.gathers) == 2
    assert not program.cut.folded
    assert "95 % of the features are zeros, which products skip" in program.choices[0]


@pytest.mark.usefixtures("worth_it")
@pytest.mark.parametrize(
    ("graph", "changes"),
    [(toy_graph(), {}), (words(), {"num_layers": 1}), (words(), {"residual": True, "hidden_channels": 400})],
    ids=["dense features", "one layer", "features that are added too"],
)
@pytest.mark.slow
def test_it_is_folded_where_products_do_not_skip_zeros(graph: Graph, changes: dict[str, object]) -> None:
    assert folded(graph, gcn(graph, **changes))


@pytest.mark.usefixtures("worth_it")
@pytest.mark.slow
def test_it_is_folded_for_lambdas_which_multiply_dense_rows() -> None:
    graph = words()
    assert not folded(graph, gcn(graph))
    assert folded(graph, gcn(graph), sparse=False)


@pytest.mark.slow
def test_it_is_folded_where_little_is_saved() -> None:
    graph = words()
    assert saved_by_sparse_products(graph) > 0
    assert folded(graph, gcn(graph))


@pytest.mark.usefixtures("worth_it")
@pytest.mark.parametrize("name", ["GCN", "GraphSAGE"])
@pytest.mark.slow
def test_losses_are_the_oracles_either_way(name: str) -> None:
    graph = words()
    torch.manual_seed(0)
    model = getattr(siafu.nn, name)(graph.num_features, 16, 2, graph.num_classes).double()
    assert not folded(graph, model)
    expected = train_plainly(graph, model, epochs=4, dtype=torch.float64)
    run = siafu.train(graph, model, epochs=4, servers=2, intervals=2, weight_decay=0.0)
    assert [each.train_loss for each in run.history] == pytest.approx(expected.losses, rel=1e-9)
