"""A model on samples against the same model on the whole graph, by autograd in fp64."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import models as pyg

from siafu import nn as sn
from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.partition import Partition
from siafu.nn.calling import call_model
from siafu.options import Options
from siafu.sampling.batch_graphs import BatchGraphs
from siafu.sampling.picks import ALL
from siafu.sampling.sampled_model import SampledBatch, SampledModel
from siafu.sampling.sampler import Sampler
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


MODELS = {
    "gcn": lambda: sn.GCN(F, 8, 2, C),
    "sage": lambda: sn.GraphSAGE(F, 8, 3, C, residual=True),
    "sage sum": lambda: sn.GraphSAGE(F, 8, 2, C, aggr="sum", jk="cat"),
    "gat": lambda: sn.GAT(F, 8, 2, C, heads=2, norm="layer_norm"),
    "gin": lambda: sn.GIN(F, 8, 2, C),
    "own": TwoWays,
    "pyg": lambda: pyg.GraphSAGE(F, 8, 2, C),
}


def sampled(graph, model, *, dtype=torch.float64):
    torch.manual_seed(0)
    model = model.to(dtype)
    options = Options(mode="sampled")
    plan = ServerPlan.of(graph, model, options, Partition("contiguous", 1, np.zeros(V, np.uint16)))
    learnt = frozenset(name for names in plan.groups.values() for name in names)
    return plan, SampledModel(model, plan.programs["train"], plan.objective, learnt)


def batch_of(plan, model, fanouts, vertices, *, sliced, number=0, seed=0):
    graphs = BatchGraphs(
        plan.graph, [site.gather for site in model.sites], plan.dtype, sliced=sliced, edge_rows=False
    )
    sample = Sampler(plan.graph, fanouts, seed).sample(vertices, 0, number)
    graph = graphs.of(sample, plan.rows(sample.vertices))
    y = plan.objective.target(plan.graph)[vertices]
    return SampledBatch(0, number, sample.vertices, len(vertices), graph, y, sample.num_edges)


def whole(graph, model):
    """Loss and gradients by autograd over all edges of the graph."""
    out = call_model(model, graph, torch.from_numpy(graph.x).double())[graph.train]
    loss = torch.nn.functional.cross_entropy(out, torch.from_numpy(graph.y[graph.train]))
    named = {name: each for name, each in model.named_parameters() if each.requires_grad}
    return loss.item(), dict(zip(named, torch.autograd.grad(loss, named.values()), strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_with_all_edges_and_one_batch_loss_and_gradients_are_those_of_the_whole_graph(name):
    graph, model = make_graph(weighted=name == "gcn"), MODELS[name]()
    plan, sampled_model = sampled(graph, model)
    loss, gradients = whole(graph, model)
    vertices = np.random.default_rng(0).permutation(graph.train)
    for sliced in {False, sampled_model.sliced}:
        batch = batch_of(plan, sampled_model, [ALL] * sampled_model.depth, vertices, sliced=sliced)
        found = sampled_model.run(batch, plan.weights, 0)
        assert found.loss_sum / found.loss_terms == pytest.approx(loss, abs=1e-9)
        assert found.gradients.keys() == gradients.keys()
        for each, gradient in gradients.items():
            torch.testing.assert_close(found.gradients[each], gradient, rtol=0, atol=1e-9)


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


@pytest.mark.parametrize("name", ["gcn", "sage", "gat"])
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


def test_models_that_cannot_be_sampled_are_refused_by_name():
    graph = make_graph()
    with pytest.raises(BadInput, match="means over all vertices"):
        sampled(graph, sn.GCN(F, 8, 2, C, norm="batch_norm"))

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
