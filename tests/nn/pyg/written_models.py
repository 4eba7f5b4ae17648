"""Models as people write them for PyG: the usual ones of examples and papers, and odd ones; none knows of Siafu."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.utils import degree, scatter, softmax

D, A, R, C = 6, 4, 3, 3  # features, features of edges, types of edges, classes
USUAL: dict[str, Callable[[], nn.Module]] = {}
ODD: dict[str, Callable[[], nn.Module]] = {}


def usual(kind):
    USUAL[kind.__name__] = kind
    return kind


def odd(kind):
    ODD[kind.__name__] = kind
    return kind


@usual
class StackedGCN(nn.Module):
    """OGB's baseline: convolutions, batch norms, dropout."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([pyg.GCNConv(D, 8), pyg.GCNConv(8, 8), pyg.GCNConv(8, C)])
        self.bns = nn.ModuleList([nn.BatchNorm1d(8), nn.BatchNorm1d(8)])

    def forward(self, x, edge_index):
        for conv, norm in zip(self.convs[:-1], self.bns, strict=True):
            x = F.dropout(F.relu(norm(conv(x, edge_index))), p=0.0, training=self.training)
        return self.convs[-1](x, edge_index).log_softmax(dim=-1)


@usual
class SageLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(D, 8), pyg.SAGEConv(8, C, aggr="max")])

    def forward(self, x, edge_index):
        for place, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            if place < len(self.convs) - 1:
                x = F.normalize(x.relu_(), p=2.0, dim=-1)
        return x


@usual
class GatSkip(nn.Module):
    """The PPI example: attention with linear skips."""

    def __init__(self):
        super().__init__()
        self.conv1, self.lin1 = pyg.GATConv(D, 4, heads=2), nn.Linear(D, 8)
        self.conv2, self.lin2 = pyg.GATConv(8, C, heads=3, concat=False), nn.Linear(8, C)

    def forward(self, x, edge_index):
        x = F.elu(self.conv1(x, edge_index) + self.lin1(x))
        return self.conv2(x, edge_index) + self.lin2(x)


@usual
class GatV2(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = pyg.GATv2Conv(D, 4, heads=2, edge_dim=A)
        self.conv2 = pyg.GATv2Conv(8, C, edge_dim=A)

    def forward(self, x, edge_index, edge_attr):
        return self.conv2(F.elu(self.conv1(x, edge_index, edge_attr)), edge_index, edge_attr)


@usual
class TransformerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = pyg.TransformerConv(D, 4, heads=2, beta=True)
        self.norm, self.conv2 = nn.LayerNorm(8), pyg.TransformerConv(8, C, concat=False)

    def forward(self, x, edge_index):
        return self.conv2(F.relu(self.norm(self.conv1(x, edge_index))), edge_index)


@usual
class GCNII(nn.Module):
    """Sixteen layers with initial residuals."""

    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(D, 4), nn.Linear(4, C)])
        self.convs = nn.ModuleList(
            [pyg.GCN2Conv(4, 0.1, 0.5, k + 1, shared_weights=True, normalize=True) for k in range(16)]
        )

    def forward(self, x, edge_index):
        x = x_0 = self.lins[0](x).relu()
        for conv in self.convs:
            x = conv(F.dropout(x, 0.0, self.training), x_0, edge_index).relu()
        return self.lins[1](x).log_softmax(dim=-1)


@usual
class Appnp(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1, self.lin2, self.prop = nn.Linear(D, 8), nn.Linear(8, C), pyg.APPNP(K=4, alpha=0.1)

    def forward(self, x, edge_index):
        return self.prop(self.lin2(F.relu(self.lin1(x))), edge_index)


@usual
class RelationalGCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = pyg.RGCNConv(D, 8, R, num_bases=2)
        self.conv2 = pyg.RGCNConv(8, C, R)

    def forward(self, x, edge_index, edge_type):
        return self.conv2(F.relu(self.conv1(x, edge_index, edge_type)), edge_index, edge_type)


@usual
class Pna(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(D, 4)
        self.conv = pyg.PNAConv(
            4, 4, ["mean", "min", "max", "std"], ["identity", "amplification"], torch.tensor([2, 4, 6, 3])
        )
        self.norm, self.out = pyg.BatchNorm(4), nn.Linear(4, C)

    def forward(self, x, edge_index):
        return self.out(F.relu(self.norm(self.conv(self.lin(x), edge_index))))


@usual
class EdgeConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = pyg.EdgeConv(nn.Sequential(nn.Linear(2 * D, 8), nn.ReLU(), nn.Linear(8, 8)), aggr="max")
        self.conv2 = pyg.EdgeConv(nn.Linear(16, C), aggr="mean")

    def forward(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


@usual
class GinMlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = pyg.GINConv(
            nn.Sequential(nn.Linear(D, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8)), train_eps=True
        )
        self.conv2 = pyg.GINConv(nn.Linear(8, C))

    def forward(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


@usual
class Jumping(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([pyg.GCNConv(D, 8), pyg.GCNConv(8, 8), pyg.GCNConv(8, 8)])
        self.jump, self.lin = pyg.JumpingKnowledge("cat"), nn.Linear(24, C)

    def forward(self, x, edge_index):
        xs = []
        for conv in self.convs:
            x = F.relu(conv(x, edge_index))
            xs += [x]
        return self.lin(self.jump(xs))


@usual
class DeeperGCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.lin = nn.Linear(D, 4), nn.Linear(4, C)
        self.layers = nn.ModuleList(
            [
                pyg.DeepGCNLayer(
                    pyg.GENConv(4, 4, aggr="softmax", learn_t=True, num_layers=2, norm="layer"),
                    nn.LayerNorm(4),
                    nn.ReLU(inplace=True),
                    block="res+",
                    dropout=0.0,
                )
                for _ in range(2)
            ]
        )

    def forward(self, x, edge_index):
        x = self.layers[0].conv(self.encoder(x), edge_index)
        x = self.layers[1](x, edge_index)
        return self.lin(self.layers[0].act(self.layers[0].norm(x)))


@usual
class Simple(nn.Module):
    """SGC after a layer of its own: the last map stands alone after gathers."""

    def __init__(self):
        super().__init__()
        self.lin, self.conv = nn.Linear(D, 8), pyg.SGConv(8, C, K=2)

    def forward(self, x, edge_index):
        return self.conv(F.relu(self.lin(x)), edge_index)


@usual
class Cheb(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = pyg.ChebConv(D, 8, 3), pyg.TAGConv(8, C)

    def forward(self, x, edge_index):
        return self.conv2(torch.tanh(self.conv1(x, edge_index)), edge_index)


@usual
class Arma(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = pyg.ARMAConv(D, 8, num_stacks=2, num_layers=2, shared_weights=True)
        self.conv2 = pyg.ARMAConv(8, C)

    def forward(self, x, edge_index):
        return self.conv2(F.relu(self.conv1(x, edge_index)), edge_index)


@usual
class GineNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(A, D)
        self.conv1, self.conv2 = pyg.GINEConv(nn.Linear(D, 8)), pyg.GINEConv(nn.Linear(8, C), edge_dim=A)

    def forward(self, x, edge_index, edge_attr):
        x = self.conv1(x, edge_index, self.encode(edge_attr)).relu()
        return self.conv2(x, edge_index, edge_attr)


@usual
class GatedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = pyg.ResGatedGraphConv(D, 8), pyg.GatedGraphConv(8, 2)
        self.lin = nn.Linear(8, C)

    def forward(self, x, edge_index):
        return self.lin(self.conv2(self.conv1(x, edge_index).relu(), edge_index))


@usual
def sequential():
    return pyg.Sequential(
        "x, edge_index",
        [
            (pyg.GCNConv(D, 8), "x, edge_index -> x1"),
            nn.ReLU(inplace=True),
            (pyg.GCNConv(8, 8), "x1, edge_index -> x2"),
            nn.ReLU(inplace=True),
            (lambda x1, x2: [x1, x2], "x1, x2 -> xs"),
            (pyg.JumpingKnowledge("max"), "xs -> x"),
            nn.Linear(8, C),
        ],
    )


@usual
class VirtualVertex(nn.Module):
    """A vertex that all others talk to, as a mean over all rows."""

    def __init__(self):
        super().__init__()
        self.start, self.lin, self.out = nn.Embedding(1, 8), nn.Linear(D, 8), nn.Linear(8, C)
        self.convs = nn.ModuleList([pyg.GCNConv(8, 8) for _ in range(2)])
        self.mlp = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x, edge_index):
        x, middle = self.lin(x), self.start(torch.zeros(1, dtype=torch.long))
        for conv in self.convs:
            x = conv(x + middle, edge_index).relu()
            middle = middle + self.mlp(x.mean(dim=0, keepdim=True))
        return self.out(x)


@odd
class OtherNames(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.GCNConv(D, C)

    def forward(self, features, adj):
        return self.conv(features, adj)


@odd
class Batch(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.SAGEConv(D, C)

    def forward(self, batch):
        return self.conv(batch.x, batch.edge_index)[: batch.num_nodes]


@odd
class SharedWeights(nn.Module):
    """Two layers with one weight, and a layer that runs three times."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(D, 8, bias=False), nn.Linear(D, 8, bias=False)
        self.other.weight = self.one.weight
        self.conv, self.out = pyg.GCNConv(8, 8), nn.Linear(8, C)
        self.convs = nn.ModuleList([self.conv] * 2)

    def forward(self, x, edge_index):
        hidden = self.conv(self.one(x), edge_index) + self.other(x)
        for conv in self.convs:
            hidden = hidden + conv(hidden, edge_index).relu()
        return self.out(hidden)


@odd
class WithoutGradients(nn.Module):
    def __init__(self):
        super().__init__()
        self.fixed, self.gate, self.conv = pyg.GCNConv(D, D), nn.Linear(D, D), pyg.GCNConv(D, C)

    def forward(self, x, edge_index):
        with torch.no_grad():
            hidden = self.fixed(x, edge_index)
        return self.conv(hidden + torch.sigmoid(self.gate(x)) * hidden.detach(), edge_index)


@odd
class Masks(nn.Module):
    """Truths about features, and truths about hidden rows that a later layer reads."""

    def __init__(self):
        super().__init__()
        self.conv, self.lin, self.last = pyg.GCNConv(D, 8), nn.Linear(D, 8), pyg.GCNConv(8, C)

    def forward(self, x, edge_index):
        hidden = torch.where((x[:, 0] > 0).unsqueeze(1), self.conv(x, edge_index), self.lin(x))
        positive = hidden > 0
        return torch.where(positive[:, :C], self.last(hidden, edge_index), hidden[:, :C])


@odd
class Stacked(nn.Module):
    """Jumping knowledge by hand: maxima, means and attention over layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = pyg.GCNConv(D, 8), pyg.GCNConv(8, 8)
        self.look, self.out = nn.Linear(8, 1), nn.Linear(8, C)

    def forward(self, x, edge_index):
        one = self.first(x, edge_index).relu()
        two = self.second(one, edge_index).relu()
        rows = torch.stack([one, two], dim=1)
        looked = (rows * torch.softmax(self.look(rows), dim=1)).sum(1)
        every = torch.stack([one, two, looked])
        return self.out(every.max(dim=0).values + every.max(0)[0] + every.mean(0))


@odd
class Readouts(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = pyg.GCNConv(D, 8), nn.Linear(24, C)

    def forward(self, x, edge_index, batch):
        hidden = self.conv(x, edge_index).relu()
        whole = pyg.global_mean_pool(hidden, batch).repeat(hidden.size(0), 1)
        zeros = torch.zeros(hidden.size(0), 8, device=edge_index.device)
        return self.out(torch.cat([hidden, whole, zeros + hidden.sum(0) / hidden.size(0)], dim=-1))


@odd
class NormedWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.GCNConv(D, 8)
        self.out = nn.utils.parametrizations.weight_norm(nn.Linear(8, C))

    def forward(self, x, edge_index):
        return self.out(self.conv(x.to(edge_index.device), edge_index.to(x.device)))


@odd
class NormedEdges(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm1d(A), pyg.GINEConv(nn.Linear(D, C), edge_dim=A)

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, self.norm(edge_attr))


@odd
class ByHand(nn.Module):
    """No MessagePassing: rows are picked by `edge_index`, and scattered."""

    def __init__(self):
        super().__init__()
        self.lin, self.look, self.out = nn.Linear(D, 8), nn.Linear(16, 1), nn.Linear(9, C)

    def forward(self, x, edge_index):
        row, col = edge_index
        hidden = self.lin(x)
        logits = F.leaky_relu(self.look(torch.cat([hidden[row], hidden[col]], dim=-1))).squeeze(-1)
        share = softmax(logits, col, num_nodes=x.size(0))
        found = scatter(hidden[row] * share.unsqueeze(-1), col, dim=0, dim_size=x.size(0), reduce="sum")
        degrees = degree(col, x.size(0), dtype=x.dtype).log1p().unsqueeze(1)
        return self.out(torch.cat([found, degrees], dim=1))


@odd
class WeightsOfFeatures(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(A, 4), nn.ReLU(), nn.Linear(4, 1))
        self.first, self.last = pyg.GraphConv(D, 8), pyg.GraphConv(8, C, aggr="mean")

    def forward(self, x, edge_index, edge_attr):
        weight = torch.sigmoid(self.score(edge_attr)).view(-1)
        return self.last(self.first(x, edge_index, weight).relu(), edge_index, weight)


@odd
class Conditions(nn.Module):
    def __init__(self, residual=True):
        super().__init__()
        self.residual, self.conv, self.lin = residual, pyg.GCNConv((D), 8, cached=True), nn.Linear(8, C)

    def forward(self, x, edge_index, edge_weight=None, return_hidden=False):
        hidden = self.conv(x, edge_index, edge_weight)
        if self.training and edge_index.size(1) > 10:
            hidden = hidden * 2
        if return_hidden:
            return hidden
        first, second = hidden.chunk(2, dim=-1)
        return self.lin(torch.cat([first * torch.sigmoid(second), x[:, [0, 2, 4, 5]]], dim=1))


@odd
class Alike(nn.Module):
    """Sources and targets with the same rows, as bipartite layers take them."""

    def __init__(self):
        super().__init__()
        self.first, self.last = pyg.SAGEConv((D, D), 8), pyg.GATConv((8, 8), C, add_self_loops=False)

    def forward(self, x, edge_index):
        hidden = self.first((x, x), edge_index).relu()
        return self.last((hidden, hidden[: hidden.size(0)]), edge_index)


@odd
class EncodedEdges(nn.Module):
    """Features of edges are mapped before layers see them, as molecules' examples do: `edge_dim` is the width after the map."""

    def __init__(self):
        super().__init__()
        self.node, self.edge = nn.Linear(D, 8), nn.Linear(A, 5)
        self.first = pyg.PNAConv(
            8, 8, ["mean", "max", "std"], ["identity", "attenuation"], torch.tensor([1, 3, 8]), edge_dim=5
        )
        self.last = pyg.GATv2Conv(8, C, edge_dim=5, add_self_loops=False)

    def forward(self, x, edge_index, edge_attr):
        edges = self.edge(edge_attr)
        return self.last(self.first(self.node(x), edge_index, edges).relu(), edge_index, edges)


@odd
class Channels(nn.Module):
    """Low and high frequencies with weights of each vertex, whose columns are picked by lists."""

    def __init__(self):
        super().__init__()
        self.low, self.high, self.mean = nn.Linear(D, 8), nn.Linear(D, 8), pyg.SimpleConv(aggr="mean")
        self.look, self.out = nn.Linear(16, 3), nn.Linear(8, C)

    def forward(self, x, edge_index):
        low = self.mean(self.low(x), edge_index).relu()
        high = (self.high(x) - self.mean(self.high(x), edge_index)).relu()
        share = torch.softmax(self.look(torch.cat([low, high], dim=1)), dim=1)
        return self.out(share[:, [0]] * low + share[..., [-1]] * high)[:, [2, 0, 1]]


@odd
class Laplacians(nn.Module):
    """Other Laplacians than the symmetric one, whose self-loops are put behind the edges."""

    def __init__(self):
        super().__init__()
        self.first = pyg.ChebConv(D, 8, 3, normalization="rw")
        self.last = pyg.ChebConv(8, C, 2, normalization=None)

    def forward(self, x, edge_index):
        x = self.first(x, edge_index, lambda_max=torch.tensor(2.5)).relu()
        return self.last(x, edge_index, lambda_max=torch.tensor(30.0))


@odd
class Reversible(nn.Module):
    """A reversible block on rows that weights have not touched yet: a constant that is read twice at each step."""

    def __init__(self):
        super().__init__()
        self.lin, self.out = nn.Linear(D, 8), nn.Linear(8 + D, C)
        self.block, self.mean = pyg.GroupAddRev(pyg.SAGEConv(4, 4), num_groups=2), pyg.SimpleConv(aggr="mean")

    def forward(self, x, edge_index):
        smooth = x
        for _ in range(24):
            smooth = (smooth + self.mean(smooth, edge_index)) / 2
        return self.out(torch.cat([self.block(self.lin(x), edge_index), smooth], dim=1))


@odd
class Alikeness(nn.Module):
    """Edges weighted by how alike their ends are."""

    def __init__(self):
        super().__init__()
        self.first, self.last = pyg.GraphConv(D, 8), pyg.GCNConv(8, C, normalize=False)

    def forward(self, x, edge_index):
        row, col = edge_index
        weight = F.cosine_similarity(x[row], x[col], dim=-1).clamp(min=0)
        hidden = self.first(x, edge_index, weight).relu()
        return self.last(hidden * F.cosine_similarity(hidden, hidden + 1)[:, None], edge_index, weight)
