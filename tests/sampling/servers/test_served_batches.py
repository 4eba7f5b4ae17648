"""Mini-batches on several servers: the results of one server, and bytes as they are counted by hand."""

import numpy as np
import pytest
import torch

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.partition import Partition
from siafu.sampling.batches import epoch_batches
from siafu.sampling.sampler import Sampler
from siafu.sampling.servers.shares import share_of
from tests.sampling.test_sampled_model import batch_of, sampled
from tests.toys import toy_graph

SAMPLED = {"mode": "sampled", "fanout": "3,2", "batch": 16}
MODELS = {
    "sage": lambda wide, out: siafu.nn.GraphSAGE(wide, 8, 2, out, dropout=0.5),
    "sage residual": lambda wide, out: siafu.nn.GraphSAGE(wide, 12, 2, out, residual=True, jk="cat"),
    "gcn": lambda wide, out: siafu.nn.GCN(wide, 8, 2, out),
    "gat": lambda wide, out: siafu.nn.GAT(wide, 8, 2, out, heads=2, norm="layer_norm"),
    "gin": lambda wide, out: siafu.nn.GIN(wide, 8, 2, out),
}


def wide_graph(features: int = 96, vertices: int = 80) -> Graph:
    random = np.random.default_rng(3)
    src, dst = random.integers(0, vertices, (2, 500))
    return Graph.from_edges(
        src,
        dst,
        num_vertices=vertices,
        x=random.standard_normal((vertices, features)).astype(np.float32),
        y=random.integers(0, 3, vertices),
        train=np.arange(0, 60),
        val=np.arange(60, 80),
    )


def trained(graph, kind, **options):
    torch.manual_seed(0)
    model = MODELS[kind](graph.num_features, graph.num_classes).double()
    given = {**SAMPLED, "normalize_features": kind == "gcn", **options}
    return siafu.train(graph, model, epochs=2, clip=0.5, **given), model


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_any_number_of_servers_learns_what_one_does(kind: str) -> None:
    graph = toy_graph()
    _, one = trained(graph, kind)
    layouts = ("vertices",) if kind == "gin" else ("vertices", "columns")
    for servers, layout in ((n, each) for n in (2, 5) for each in layouts):
        run, model = trained(graph, kind, servers=servers, layout=layout, partition="hash")
        for mine, theirs in zip(model.parameters(), one.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)
        kept = run.counters["bytes_of_products" if layout == "vertices" else "bytes_of_features"]
        assert run.counters["bytes_scattered"] > 0 and kept == 0


def test_a_share_has_what_its_vertices_reach_and_all_the_edges_that_were_drawn_for_them() -> None:
    graph = toy_graph()
    for leaves in (False, True):
        sample = Sampler(graph, [3, 2, 2], 0, leaves=leaves).sample(np.arange(7, 31))
        found = share_of(sample, slice(5, 9))
        reached, edges = set(range(5, 9)), sample.edges
        for hop in range(len(sample.sizes)):
            assert {*found.rows[: found.sample.sizes[hop]]} == reached
            reached |= {
                int(source)
                for row in reached
                for source in edges.indices[edges.indptr[row] : edges.indptr[row + 1]]
            }
        inner = found.sample.edges
        for row in range(found.sample.sizes[-2]):
            own = slice(*inner.indptr[row : row + 2])
            whole = slice(*edges.indptr[found.rows[row] : found.rows[row] + 2])
            assert sorted(found.rows[inner.indices[own]]) == sorted(edges.indices[whole])
            assert sorted(inner.weights[own]) == sorted(edges.weights[whole])
            assert list(inner.indices[own]) == sorted(inner.indices[own])
        assert (found.sample.drawn is not None) == leaves


def test_bytes_are_those_counted_by_hand() -> None:
    graph, servers, hidden = wide_graph(), 3, 8
    owner = np.random.default_rng(5).integers(0, servers, graph.num_vertices).astype(np.uint16)
    given = {"servers": servers, "partition": Partition("hash", servers, owner)}
    runs = {each: trained(graph, "gcn", layout=each, **given)[0] for each in ("vertices", "columns")}
    features, products, structure = 0, 0, {"vertices": 0, "columns": 0}
    sampler = Sampler(graph, [3, 2], 0, leaves=True)
    for epoch in range(2):
        for number, batch in enumerate(epoch_batches(np.arange(60), 16, 0, epoch)):
            sample = sampler.sample(batch, epoch, number)
            drawn = sample.drawn
            structure["columns"] += 2 * (len(sample.vertices) * 12 + len(drawn.indices) * 4)
            for server, part in enumerate(np.array_split(np.arange(len(batch)), servers)):
                near = {*map(int, part)}
                for row in part:
                    near |= {*map(int, sample.edges.indices[slice(*sample.edges.indptr[row : row + 2])])}
                lists = [drawn.indices[slice(*drawn.indptr[row : row + 2])] for row in near]
                read = {*map(int, sample.vertices[list(near)]), *map(int, np.concatenate(lists))}
                features += sum(owner[vertex] != server for vertex in read) * (96 * 4 + 8)
                products += 2 * (servers - 1) * len(near) * hidden * 8
                if server != number % servers:
                    structure["vertices"] += len(near) * 12 + sum(map(len, lists)) * 4
    weights = 8 * 2 * servers * 8  # of a number: eight batches, from the driver and back, in float64
    sizes = {"vertices": 96 * 8 + 8 + 8 * 3 + 3, "columns": 8 + 8 * 3 + 3}
    for layout, run in runs.items():
        assert run.counters["bytes_of_structure"] == structure[layout]
        assert run.counters["bytes_of_weights"] == weights * sizes[layout]
    assert runs["vertices"].counters["bytes_of_features"] == features
    assert runs["columns"].counters["bytes_of_products"] == products


def test_auto_takes_the_layout_that_moves_fewer_bytes_and_goes_on_with_it(tmp_path) -> None:
    chosen = {}
    for features in (8, 400):
        graph = wide_graph(features)
        runs = {
            each: trained(graph, "sage", layout=each, servers=4, partition="hash")[0]
            for each in ("vertices", "columns", "auto")
        }
        moved = {each: run.counters["bytes_scattered"] for each, run in runs.items()}
        assert moved["auto"] == min(moved.values()) < max(moved.values())
        chosen[features] = runs["auto"].config["training"]["layout"]
    assert chosen == {8: "vertices", 400: "columns"}


def test_batches_are_behind_by_as_many_updates_as_asked_for() -> None:
    graph = toy_graph()
    plan, model = sampled(graph, siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes), batch=16)
    batches = epoch_batches(plan.splits["train"].numpy(), 16, 0, 0)
    assert len(batches) >= 3
    weights = [dict(plan.weights)]
    for number, batch in enumerate(batches):
        stale = weights[max(0, number - 2)]
        found = model.run(
            batch_of(plan, model, [-1, -1], batch, sliced=True, number=number), stale, 0
        ).gradients
        weights.append({name: each - 0.1 * found[name] for name, each in weights[-1].items()})
    torch.manual_seed(0)
    own = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes).double()
    own.load_state_dict(plan.weights)
    run = siafu.train(
        graph, own, epochs=1, optimizer="sgd", lr=0.1, weight_decay=0.0, staleness=2,
        **{**SAMPLED, "fanout": ["all", "all"]},
    )  # fmt: skip
    for name, each in own.state_dict().items():
        torch.testing.assert_close(each, weights[-1][name], rtol=0, atol=1e-9)
    expected = {"0": 1, "1": 1, "2": len(batches) - 2}
    assert run.counters["staleness_histogram"] == expected and run.counters["max_staleness_seen"] == 2


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("gin", {"layout": "columns"}, "the model does something else with features than to multiply them"),
        ("normed", {}, "a batch norm follows whole batches"),
    ],
)
def test_what_servers_cannot_share_is_refused(kind: str, options: dict, words: str) -> None:
    graph = toy_graph()
    model = siafu.nn.GIN(
        graph.num_features, 8, 2, graph.num_classes, norm="batch_norm" if kind == "normed" else None
    )
    with pytest.raises(BadInput, match=words):
        siafu.train(graph, model, epochs=1, servers=2, **{**SAMPLED, **options})
