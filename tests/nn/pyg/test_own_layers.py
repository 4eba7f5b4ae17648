"""Layers as people write them: gates, weights in functions, types, norms of messages, sums of PyTorch's own; PyG's values."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric import utils
from torch_geometric.nn import aggr

import siafu
from siafu.nn.calling import call_model
from tests.nn.pyg.test_mapped import close, gradients
from tests.nn.test_against_pyg import wild_graph
from tests.training_runs import train_in_pipeline


class Own(pyg.MessagePassing):
    """A linear map, and messages that are to be overridden."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lin = nn.Linear(8, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=self.lin(x))
        return out


class Gated(Own):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(10, 5)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return torch.sigmoid(self.gate(torch.cat([x_i, x_j], -1))) * x_j


class MeanAndMax(Own):
    def __init__(self) -> None:
        super().__init__(aggr=None)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=self.lin(x), edge_weight=edge_weight)
        return out

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        return edge_weight.view(-1, 1) * x_j

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: Any = None) -> Tensor:
        both = [utils.scatter(inputs, index, 0, dim_size, reduce=how) for how in ("mean", "max")]
        return torch.cat(both, -1)


class WeightInFunctions(Own):
    """Weights of edges that are not factors: in a perceptron, in a power, in a softmax."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.net, self.decay = nn.Sequential(nn.Linear(1, 5), nn.Tanh()), nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=self.lin(x), w=edge_weight)
        return out

    def message(self, x_j: Tensor, w: Tensor, index: Tensor) -> Tensor:
        share = utils.softmax(w, index)
        return (x_j * self.net(w.view(-1, 1)) + torch.exp(-self.decay * w).view(-1, 1)) * share.view(-1, 1)


class Typed(Own):
    """A vector, a matrix and a mask for each type of edges."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.kinds, self.maps = nn.Embedding(4, 5), nn.Parameter(torch.randn(4, 5, 5))

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=self.lin(x), kind=edge_type, w=self.maps[edge_type])
        return out

    def message(self, x_i: Tensor, x_j: Tensor, kind: Tensor, w: Tensor) -> Tensor:
        one = F.one_hot(kind, 4).to(x_j.dtype)[:, :1]
        mapped = torch.bmm((x_j + self.kinds(kind)).unsqueeze(1), w).squeeze(1)
        return torch.where((kind == 2).view(-1, 1), mapped * one + x_i, mapped)


class NormedMessages(Own):
    """A perceptron with a batch norm over all edges, those that are added counted."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.net = nn.Sequential(nn.Linear(10, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 5))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = utils.remove_self_loops(edge_index)
        edge_index, _ = utils.add_self_loops(edge_index, num_nodes=x.size(0))
        return super().forward(x, edge_index)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        out: Tensor = self.net(torch.cat([x_i, x_j - x_i], -1))
        return out


class Updated(Own):
    """`edge_updater`, `update` with several inputs, and what `message` may ask for."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.lin(x)
        share = self.edge_updater(edge_index, x=h)
        out: Tensor = self.propagate(edge_index, x=h, share=share, first=h, alpha=0.3)
        return out

    def edge_update(self, x_i: Tensor, x_j: Tensor, index: Tensor, ptr: Any, size_i: Any) -> Tensor:
        return utils.softmax(F.cosine_similarity(x_i, x_j, dim=-1), index, ptr, size_i)

    def message(self, x_j: Tensor, share: Tensor, index: Tensor, size_i: Any) -> Tensor:
        degrees = utils.degree(index, size_i, dtype=x_j.dtype).clamp(min=1).pow(-0.5)
        return share.unsqueeze(-1) * x_j * degrees[index].view(-1, 1)

    def update(self, inputs: Tensor, first: Tensor, alpha: float) -> Tensor:
        return alpha * inputs + (1 - alpha) * F.relu(first)


class Recurrent(Own):
    """A cell that takes what is gathered, as in gated graph networks."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.cell = nn.GRUCell(5, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        rows = self.lin(x)
        for _ in range(2):
            rows = self.cell(self.propagate(edge_index, x=rows), rows)
        return rows


class Scattered(nn.Module):
    """PyTorch's own sums, without MessagePassing."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        h = self.lin(x)
        where, none = target.unsqueeze(-1).expand(-1, h.size(1)), torch.zeros_like(h)
        found = [none.scatter_add(0, where, h[source]), h.index_add(0, target, h[source])]
        found += [h.scatter_reduce(0, where, h[source], how) for how in ("mean", "amax", "sum")]
        found += [none.scatter_reduce(0, where, h[source], "amin", include_self=False)]
        return torch.cat(found, 1)


class BothWays(nn.Module):
    """Edges turned round, in all ways that there are, and attention along them."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.turned = pyg.SAGEConv(8, 5, flow="target_to_source"), pyg.GCNConv(8, 5)
        self.directed, self.gate = pyg.DirGNNConv(pyg.GATConv(8, 5, add_self_loops=False)), nn.Linear(16, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        row, col = edge_index
        gates = torch.sigmoid(self.gate(torch.cat([x[row], x[col]], -1)))
        there = utils.scatter(gates * x[col][:, :5], row, dim=0, dim_size=x.size(0), reduce="mean")
        found: Tensor = self.out(x, edge_index) + self.turned(x, edge_index.flip(0)) + there
        return found + self.directed(x, edge_index)


class MadeOfParameters(Own):
    """Messages that are multiplied with what is made of parameters: turned round, composed of bases; and in place."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.att, self.line = nn.Parameter(torch.randn(2, 10)), nn.Parameter(torch.randn(2))
        self.wide = nn.Linear(2, 5)
        self.bases, self.shares = nn.Parameter(torch.randn(2, 5, 5)), nn.Parameter(torch.randn(4, 2))

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=self.lin(x), kind=edge_type)
        return out

    def message(self, x_i: Tensor, x_j: Tensor, kind: Tensor) -> Tensor:
        both = F.leaky_relu_(torch.cat([x_i, x_j], -1), 0.1)
        looked = F.elu_(both @ self.att.t())
        maps = (self.shares @ self.bases.view(2, -1)).view(4, 5, 5)
        mapped = torch.bmm(x_j.tanh().unsqueeze(1), maps[kind]).squeeze(1)
        out: Tensor = self.wide(looked) * (looked @ self.line.exp()).unsqueeze(-1) + mapped
        return out


class Assorted(nn.Module):
    """A GRU of one step, an embedding of degrees, checkpoints, and edges of which none is dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gru = pyg.SAGEConv(8, 8), nn.GRU(8, 8, num_layers=2)
        self.degrees, self.last = nn.Embedding(6, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = utils.dropout_edge(edge_index, p=0.0, training=self.training)
        degrees = utils.degree(edge_index[1], x.size(0), dtype=torch.long).clamp(max=5)
        rows, state = x + self.degrees(degrees), torch.stack([x, x.tanh()])
        for _ in range(2):
            new = checkpoint(self.conv, rows, edge_index, use_reentrant=False).relu()
            found, state = self.gru(new.unsqueeze(0), state)
            rows = found.squeeze(0)
        out: Tensor = self.last(rows)
        return out


OWN: dict[str, Any] = {
    "gated": Gated,
    "mean and max of weighted": MeanAndMax,
    "weight in functions": WeightInFunctions,
    "typed": Typed,
    "normed messages": NormedMessages,
    "updated": Updated,
    "recurrent": Recurrent,
    "made of parameters, typed": MadeOfParameters,
    "assorted": Assorted,
    "scattered": Scattered,
    "both ways": BothWays,
    "several": lambda: Own(aggr=["mean", "max", "std"]),
    "projected": lambda: Own(
        aggr=aggr.MultiAggregation(
            ["mean", "min"], mode="proj", mode_kwargs={"in_channels": 5, "out_channels": 5}
        )
    ),
    "added up": lambda: Own(aggr=aggr.MultiAggregation(["mean", "max", "min"], mode="sum")),
    "learnt softmax": lambda: Own(aggr=aggr.SoftmaxAggregation(learn=True, channels=5)),
    "scaled by degrees": lambda: Own(
        aggr=aggr.DegreeScalerAggregation(
            ["mean", "max", "std"], ["identity", "amplification", "linear"], torch.tensor([1, 4, 6])
        )
    ),
    "attentional": lambda: Own(aggr=aggr.AttentionalAggregation(nn.Linear(5, 1))),
}


def case(name: str) -> tuple[nn.Module, siafu.Graph, Tensor, dict[str, Tensor]]:
    """A layer, and a graph with what the layer takes of edges."""
    torch.manual_seed(0)
    model = OWN[name]()
    graph, edge_index, weights = wild_graph(3, weighted="weight" in name)
    if weights is not None:
        return model, graph, edge_index, {"edge_weight": weights.double()}
    if "typed" in name:
        types = torch.from_numpy(np.random.default_rng(5).integers(0, 4, edge_index.shape[1]))
        graph = siafu.Graph.from_edges(*edge_index, num_vertices=graph.num_vertices, edge_type=types)
        return model, graph, edge_index, {"edge_type": types}
    if name == "both ways":
        edge_index = utils.to_undirected(edge_index)
        graph = siafu.Graph.from_edges(*edge_index, num_vertices=graph.num_vertices)
    return model, graph, edge_index, {}


@pytest.fixture
def in_float64() -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("name", OWN)
def test_an_own_layer_gives_pygs_outputs_and_gradients(name: str) -> None:
    theirs, graph, edge_index, extra = case(name)
    ours = copy.deepcopy(theirs)
    rows = torch.randn(graph.num_vertices, 8, generator=torch.Generator().manual_seed(0))
    x, same_x = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    expected, out = theirs(x, edge_index, **extra), call_model(ours, graph, same_x)
    close(out, expected, "output")
    wanted, found = gradients(theirs, expected, x), gradients(ours, out, same_x)
    for each, gradient in wanted.items():
        close(found.get(each, torch.zeros_like(gradient)), gradient, each)
    for each, buffer in theirs.named_buffers():
        close(dict(ours.named_buffers())[each], buffer, each)


@pytest.mark.slow
@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(
    "name",
    [
        "weight in functions",
        "typed",
        "normed messages",
        "added up",
        "recurrent",
        "both ways",
        "made of parameters, typed",
        "assorted",
    ],
)
def test_an_own_layer_is_trained_in_parts_as_pyg_trains_it(name: str) -> None:
    theirs, graph, edge_index, extra = case(name)
    ours = copy.deepcopy(theirs)
    x = np.random.default_rng(0).normal(size=(graph.num_vertices, 8)).astype(np.float32)
    y, train = np.arange(graph.num_vertices) % 5, np.arange(0, graph.num_vertices, 2)
    graph = graph.replace(x=x, y=y, train=train, num_classes=5)
    optimizer, losses = torch.optim.SGD(theirs.parameters(), lr=0.1), []
    for _ in range(3):
        optimizer.zero_grad()
        out = theirs(torch.from_numpy(x).double(), edge_index, **extra)
        loss = F.cross_entropy(out[train], torch.from_numpy(y)[train])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    options: dict[str, Any] = {"mode": "pipe", "servers": 2, "intervals": 2, "weight_decay": 0.0}
    found = train_in_pipeline(graph, ours, epochs=3, optimizer="sgd", lr=0.1, **options)
    np.testing.assert_allclose(found.losses, losses, rtol=1e-9)
    for each, weight in theirs.state_dict().items():
        torch.testing.assert_close(found.weights[each], weight, rtol=1e-9, atol=1e-9, msg=each)
