"""A model on samples against the same model on the whole graph, by autograd in fp64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.nn import SAGEConv
from torch_geometric.nn import models as pyg

from siafu import nn as sn
from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.partition import Partition
from siafu.nn.calling import call_model
from siafu.options import Options
from siafu.sampling.batch_graphs import BatchGraphs
from siafu.sampling.first_gather import FirstGather
from siafu.sampling.picks import ALL
from siafu.sampling.sampled_model import SampledBatch, SampledModel
from siafu.sampling.sampler import Sampler
from siafu.sampling.sparse_features import SparseFeatures, SparseTable
from siafu.server.plan import ServerPlan

V, F, C = 60, 6, 3


def make_graph(*, weighted=False):
    random = np.random.default_rng(1)
    src, dst = random.integers(0, V, 260), random.integers(0, V, 260)
    return Graph.from_edges(
        src,
        dst,
        num_vertices=V,
        edge_weight=random.random(260).astype(np.float32) if weighted else None,
        edge_type=np.random.default_rng(2).integers(0, 3, 260),
        x=random.standard_normal((V, F)).astype(np.float32),
        y=random.integers(0, C, V),
        train=np.flatnonzero(random.random(V) < 0.4)[1:],
        val=np.arange(1, 3),
    )


class TwoWays(torch.nn.Module):
    """A model of one's own, which no slicing knows: two gathers side by side, then one."""

    def __init__(self):
        super().__init__()
        self.one, self.two = sn.SAGEConv(F, 5, "max"), sn.GCNConv(F, 5)
        self.last = sn.GATConv(10, C)

    def forward(self, graph, x):
        return self.last(graph, torch.tanh(torch.cat([self.one(graph, x), self.two(graph, x)], 1)))


class Relations(torch.nn.Module):
    """Two layers of R-GCN, the second of sums."""

    def __init__(self, **options):
        super().__init__()
        self.one, self.two = sn.RGCNConv(F, 8, 3, **options), sn.RGCNConv(8, C, 3, aggr="sum")

    def forward(self, graph, x):
        return self.two(graph, torch.relu(self.one(graph, x)))


class Shared(torch.nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = SAGEConv(F, F), SAGEConv(F, F), torch.nn.Linear(F, C)
        self.second.lin_l.weight = self.first.lin_l.weight

    def forward(self, x, edge_index):
        return self.out(self.second(self.first(x, edge_index).relu(), edge_index))


MODELS = {
    "gcn": lambda: sn.GCN(F, 8, 2, C),
    "sage": lambda: sn.GraphSAGE(F, 8, 3, C, residual=True),
    "sage sum": lambda: sn.GraphSAGE(F, 8, 2, C, aggr="sum", jk="cat"),
    "gat": lambda: sn.GAT(F, 8, 2, C, heads=2, norm="layer_norm"),
    "gin": lambda: sn.GIN(F, 8, 2, C),
    "own": TwoWays,
    "gatv2": lambda: sn.GATv2(F, 8, 2, C, heads=2),
    "transformer": lambda: sn.Transformer(F, 8, 2, C, heads=2),
    "rgcn": Relations,
    "rgcn bases": lambda: Relations(num_bases=2),
    "pyg": lambda: pyg.GraphSAGE(F, 8, 2, C),
    "a weight in two places": Shared,
}


def sampled(graph, model, *, dtype=torch.float64, **options):
    torch.manual_seed(0)
    model = model.to(dtype)
    options = Options(mode="sampled", **options)
    plan = ServerPlan.of(graph, model, options, Partition("contiguous", 1, np.zeros(V, np.uint16)))
    learnt = frozenset(name for names in plan.groups.values() for name in names)
    return plan, SampledModel(model, plan.programs["train"], plan.objective, learnt)


def batch_of(plan, model, fanouts, vertices, *, sliced, early=False, number=0, seed=0):
    """early: the first layer's gather is run by whoever loads the batch."""
    graphs = BatchGraphs(
        plan.graph,
        [site.gather for site in model.sites],
        plan.dtype,
        sliced=sliced,
        edge_rows=model.reads_edges,
    )
    sample = Sampler(plan.graph, fanouts, seed, leaves=early).sample(vertices, 0, number)
    first = FirstGather(plan.graph, model.first_layer, plan.dtype).of(sample) if early else None
    x = plan.rows(sample.vertices)
    graph = graphs.of(sample, x, first)
    y = plan.objective.target(plan.graph)[vertices]
    return SampledBatch(0, number, sample.vertices, len(vertices), graph, x, y, sample.num_edges)


def whole(graph, model):
    """Loss and gradients by autograd over all edges of the graph."""
    out = call_model(model, graph, torch.from_numpy(graph.x).double())[graph.train]
    loss = torch.nn.functional.cross_entropy(out, torch.from_numpy(graph.y[graph.train]))
    named = {name: each for name, each in model.named_parameters() if each.requires_grad}
    return loss.item(), dict(zip(named, torch.autograd.grad(loss, named.values()), strict=True))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_with_all_edges_and_one_batch_loss_and_gradients_are_those_of_the_whole_graph(name):
    graph, model = make_graph(weighted=name == "gcn"), MODELS[name]()
    plan, sampled_model = sampled(graph, model)
    loss, gradients = whole(graph, model)
    vertices = np.random.default_rng(0).permutation(graph.train)
    ways = [
        (False, False),
        (sampled_model.sliced, False),
        (sampled_model.sliced, sampled_model.first_layer is not None),
    ]
    assert (name in {"gcn", "sage", "sage sum", "gin"}) == ways[-1][1]
    for sliced, early in dict.fromkeys(ways):
        batch = batch_of(
            plan, sampled_model, [ALL] * sampled_model.depth, vertices, sliced=sliced, early=early
        )
        found = sampled_model.run(batch, plan.weights, 0)
        assert found.loss_sum / found.loss_terms == pytest.approx(loss, abs=1e-9)
        assert found.gradients.keys() == gradients.keys()
        for each, gradient in gradients.items():
            torch.testing.assert_close(found.gradients[each], gradient, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_dropout_masks_are_those_of_the_whole_graph():
    from siafu.nn.dropout import counted_dropout

    graph = make_graph()
    model = sn.GCN(F, 8, 2, C, dropout=0.5, input_dropout=0.3)
    plan, sampled_model = sampled(graph, model)
    batch = batch_of(plan, sampled_model, [ALL, ALL], graph.train, sliced=True)
    found = sampled_model.run(batch, plan.weights, 7)
    model.train()
    with counted_dropout(7, 0):
        loss, gradients = whole(graph, model)
    assert found.loss_sum / found.loss_terms == pytest.approx(loss, abs=1e-9)
    for each, gradient in gradients.items():
        torch.testing.assert_close(found.gradients[each], gradient, rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [sn.GCN, sn.GraphSAGE, sn.GIN])
def test_a_first_gather_from_the_table_of_features_changes_nothing_of_a_sample(kind, weighted, layers):
    graph = make_graph(weighted=weighted)
    plan, sampled_model = sampled(graph, kind(F, 8, layers, C))
    assert graph.num_self_loops > 0
    fanouts = [2, 3, 2][:layers]
    one, other = (
        sampled_model.run(
            batch_of(plan, sampled_model, fanouts, graph.train[:5], sliced=True, early=each), plan.weights, 0
        )
        for each in (True, False)
    )
    assert one.loss_sum == pytest.approx(other.loss_sum, abs=1e-9)
    for each, gradient in one.gradients.items():
        torch.testing.assert_close(gradient, other.gradients[each], rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("stored", [np.float32, np.uint16])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("width", [6, 32, 135, 300])
def test_features_are_gathered_as_they_are_stored(stored, normalize, width):
    x = np.random.default_rng(3).standard_normal((V, width)).astype(np.float32)
    x = x if stored is np.float32 else torch.from_numpy(x).bfloat16().view(torch.uint16).numpy()
    graph = make_graph().replace(x=x)
    plan, sampled_model = sampled(
        graph, sn.GraphSAGE(width, 8, 1, C), dtype=torch.float32, normalize_features=normalize
    )
    sample = Sampler(graph, [ALL], leaves=True).sample(np.arange(V))
    found = FirstGather(graph, sampled_model.first_layer, plan.dtype, normalize=normalize).of(sample).rows
    rows = plan.rows(np.arange(V))
    for vertex in range(V):
        near = rows[graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]]]
        wanted = near.mean(0) if len(near) else torch.zeros(width)
        torch.testing.assert_close(found[vertex], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("width", [6, 40])
def test_gathers_of_single_precision_are_near_those_of_double(width):
    x = np.random.default_rng(3).standard_normal((V, width)).astype(np.float32)
    graph = make_graph(weighted=True).replace(x=x)
    sample = Sampler(graph, [3, 2], leaves=True).sample(graph.train)
    found = []
    for dtype in (torch.float32, torch.float64):
        layer = sampled(graph, sn.GCN(width, 8, 2, C), dtype=dtype)[1].first_layer
        found.append(FirstGather(graph, layer, dtype).of(sample).rows)
    torch.testing.assert_close(found[0].double(), found[1], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [sn.GCN, sn.GraphSAGE])
@pytest.mark.parametrize("width", [8, 150])
@pytest.mark.parametrize("layers", [1, 2])
def test_products_of_features_without_zeros_change_nothing_of_a_sample(kind, width, layers):
    graph = make_graph()
    graph = graph.replace(x=np.where(graph.x > 0.5, graph.x, 0))
    plan, sampled_model = sampled(graph, kind(F, width, layers, C))
    assert sampled_model.multiplies_features
    dense = batch_of(plan, sampled_model, [3, 2][:layers], graph.train[:6], sliced=True)
    x = SparseFeatures(SparseTable(plan.features, V), dense.vertices)
    one, other = (sampled_model.run(each, plan.weights, 0) for each in (replace(dense, x=x), dense))
    assert one.loss_sum == pytest.approx(other.loss_sum, abs=1e-9)
    for each, gradient in one.gradients.items():
        torch.testing.assert_close(gradient, other.gradients[each], rtol=0, atol=1e-9)


def test_features_without_zeros_are_multiplied_and_no_more():
    plan, _ = sampled(make_graph(), sn.GCN(F, 8, 2, C))
    x = SparseFeatures(SparseTable(plan.features, V), np.arange(4))
    with pytest.raises(BadInput, match="relu is another thing"):
        torch.relu(x)


def test_dropped_features_are_gathered_by_the_model():
    _, sampled_model = sampled(make_graph(), sn.GCN(F, 8, 2, C, input_dropout=0.3))
    assert sampled_model.first_layer is None


@pytest.mark.parametrize("name", ["gcn", "sage", "gat", "gatv2", "transformer"])
def test_slicing_changes_nothing_of_a_sample(name):
    graph, model = make_graph(), MODELS[name]()
    plan, sampled_model = sampled(graph, model)
    assert sampled_model.sliced
    fanouts = [2, 3, 2][: sampled_model.depth]
    one, other = (
        sampled_model.run(
            batch_of(plan, sampled_model, fanouts, graph.train[:5], sliced=each), plan.weights, 0
        )
        for each in (True, False)
    )
    assert one.loss_sum == pytest.approx(other.loss_sum, abs=1e-9)
    for each, gradient in one.gradients.items():
        torch.testing.assert_close(gradient, other.gradients[each], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "gather",
    [sn.GCNConv(F, F), sn.GINConv(torch.nn.Identity()), sn.SAGEConv(F, F)],
    ids=["gcn", "gin", "sage"],
)
@pytest.mark.slow
def test_a_sampled_sum_is_on_average_that_over_all_edges(gather):
    graph = make_graph(weighted=True)
    layer = gather.double()
    x = torch.from_numpy(graph.x).double()
    with torch.no_grad():
        wanted = layer.propagate(graph, x)
    target = np.array([int(np.argmax(np.diff(graph.indptr)))])
    graphs = BatchGraphs(graph, [layer.gather], torch.float64, sliced=True, edge_rows=False)
    sampler, times = Sampler(graph, [3], seed=2), 3000
    found = []
    for number in range(times):
        sample = sampler.sample(target, 0, number)
        part = graphs.of(sample, x[sample.vertices])
        found.append(layer.propagate(part, torch.from_numpy(part.x))[0])
    found = torch.stack(found)
    error = (found.mean(0) - wanted[target[0]]) / (found.std(0) / times**0.5)
    assert error.abs().max() < 4.5


def test_a_sampled_sum_over_relations_is_on_average_that_over_all_edges():
    graph = make_graph()
    torch.manual_seed(0)
    layer, x = sn.RGCNConv(F, 4, 3, aggr="sum").double(), torch.from_numpy(graph.x).double()
    target = np.array([int(np.argmax(np.diff(graph.indptr)))])
    graphs = BatchGraphs(graph, [layer.gather], torch.float64, sliced=False, edge_rows=True)
    sampler, times, found = Sampler(graph, [3], seed=2), 2000, []
    with torch.no_grad():
        wanted = layer.propagate(graph, x)[target[0]]
        for number in range(times):
            sample = sampler.sample(target, 0, number)
            found.append(layer.propagate(graphs.of(sample, x[sample.vertices]), x[sample.vertices])[0])
    found = torch.stack(found)
    error = (found.mean(0) - wanted) / (found.std(0) / times**0.5)
    assert error.abs().max() < 4.5


def test_batch_norms_are_over_the_rows_of_a_batch():
    graph = make_graph()
    plan, sampled_model = sampled(graph, sn.GCN(F, 8, 2, C, norm="batch_norm"))
    batch = batch_of(plan, sampled_model, [3, 2], graph.train[:6], sliced=True, early=True)
    before = {name: each.clone() for name, each in plan.weights.items()}
    found = sampled_model.run(batch, plan.weights, 0)
    assert all(torch.equal(each, plan.weights[name]) for name, each in before.items()), (
        "weights are a version"
    )
    weights = {name.removeprefix("norms.0.module."): each for name, each in before.items()}
    first = batch.graph.first.rows @ before["convs.0.lin.weight"].t() + before["convs.0.bias"]
    norm = torch.nn.BatchNorm1d(8).double()
    norm.load_state_dict({name: weights[name] for name in norm.state_dict()})
    norm(first)
    buffers = {name.removeprefix("norms.0.module."): each for name, each in found.buffers.items()}
    assert buffers.keys() == {"running_mean", "running_var", "num_batches_tracked"}
    for name, each in buffers.items():
        torch.testing.assert_close(each, getattr(norm, name), rtol=0, atol=1e-9)
    assert not buffers.keys() & {name.rpartition(".")[2] for name in found.gradients}


def test_a_batch_norm_of_one_row_is_refused():
    graph = make_graph()
    plan, sampled_model = sampled(graph, sn.GCN(F, 8, 1, C, norm="batch_norm", jk="cat"))
    batch = batch_of(plan, sampled_model, [2], graph.train[:1], sliced=True)
    with pytest.raises(BadInput, match="batch 1 of epoch 1 has one row"):
        sampled_model.run(batch, plan.weights, 0)


@pytest.mark.slow
def test_models_that_cannot_be_sampled_are_refused_by_name():
    graph = make_graph()

    class Centred(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = sn.GCNConv(F, C)
            self.norm = torch.nn.BatchNorm1d(C, track_running_stats=False)

        def forward(self, graph, x):
            return self.norm(self.layer(graph, x))

    with pytest.raises(BadInput, match="means over all vertices"):
        sampled(graph, Centred())

    class Messages(sn.Layer):
        def apply_edge(self, source, target):
            return source - target

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.lin = Messages(), torch.nn.Linear(F, C)

        def forward(self, graph, x):
            return self.layer(graph, self.lin(x))

    with pytest.raises(BadInput, match="sum of messages"):
        sampled(graph, Own())
