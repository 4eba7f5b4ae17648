"""PyG's models, unchanged, under PyG and under Siafu: epochs side by side, in one run.

    python bench/pyg_models.py [GRAPH.npz] [REPEATS] [MODEL …] [--cpu] [--epochs N] [--features N] [--accuracy EPOCHS [--plain]]

GRAPH.npz: `num_nodes, src, dst`, features as `x` or CSR (`x_indptr, x_indices[, x_data], x_dim`), `y`; by default flickr of
../shared/data or $SIAFU_SHARED/data. Each undirected edge stands once in it. More than 500 features (--features) are mapped to 500 by a seeded
random matrix: PyG's GraphSAGE copies them for every edge, which for flickr's 12,047 would take 23 GB. An epoch is forward, loss, backward and the
optimizer's step, without evaluation; each line is the best epoch of all repeats, which take turns. --epochs: how many each side trains a repeat,
8 unless said; of ours the first two and the last are not counted. --cpu: CPU seconds of all threads instead of the clock's, for a machine that has other work. --accuracy: instead of one epoch's time, test accuracy at the best validation after so many epochs of
both, with other draws of dropout; with REPEATS seeds: mean, sample standard deviation, and the standard error of the difference. Edges have a type
where the model takes one: whether the source's number is below the target's. --plain: without dropout, and test accuracy after the last epoch: both
compute the same then, but for rounding, and few epochs tell.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from pyg_peer import pyg_accuracy, pyg_epoch
from torch import Tensor, nn

import siafu
from siafu.nn.calling import forward_parameters

MOST_FEATURES = 500
WIDTH = 64
DROPOUT = 0.5  # --plain: 0


class Stack(nn.Module):
    """Layers with ReLU and dropout between them, as examples have them."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x, edge_index) if isinstance(layer, pyg.MessagePassing) else layer(x)
            if number < len(self.layers) - 1:
                x = F.dropout(x.relu(), DROPOUT, training=self.training)
        return x


class Deep(nn.Module):
    """GCNII with 16 layers, as its example has it."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(features, WIDTH), nn.Linear(WIDTH, classes)
        self.convs = nn.ModuleList(pyg.GCN2Conv(WIDTH, 0.1, 0.5, layer + 1) for layer in range(16))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x_0 = F.dropout(x, DROPOUT, self.training).matmul(self.first.weight.t()).relu()
        for conv in self.convs:
            x = conv(F.dropout(x, DROPOUT, self.training), x_0, edge_index).relu()
        return self.last(x)


class Residual(nn.Module):
    """Convolutions with batch norm, dropout and a way around each."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(features, WIDTH), nn.Linear(WIDTH, classes)
        self.convs = nn.ModuleList(pyg.GCNConv(WIDTH, WIDTH) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in range(3))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(x).relu()
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.dropout(norm(conv(x, edge_index)).relu(), DROPOUT, self.training)
        return self.last(x)


class Relational(nn.Module):
    """R-GCN of two layers, as its example has it."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.last = pyg.RGCNConv(features, WIDTH, 2), pyg.RGCNConv(WIDTH, classes, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        x = F.dropout(self.first(x, edge_index, edge_type).relu(), DROPOUT, self.training)
        return self.last(x, edge_index, edge_type)


DEGREES = torch.tensor([0, 10, 20, 30, 20, 10, 5, 3, 1, 1])
"""How many vertices have each number of in-edges, for PNA's scalers: any will do, being a constant of both."""

MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "gcn": lambda f, c: pyg.GCN(f, WIDTH, 2, c, dropout=DROPOUT),
    "sage": lambda f, c: pyg.GraphSAGE(f, WIDTH, 2, c, dropout=DROPOUT),
    "sage max": lambda f, c: Stack(pyg.SAGEConv(f, WIDTH, aggr="max"), pyg.SAGEConv(WIDTH, c, aggr="max")),
    "gat": lambda f, c: pyg.GAT(f, WIDTH, 2, c, heads=8, dropout=DROPOUT),
    "gin": lambda f, c: pyg.GIN(f, WIDTH, 2, c, norm=None),
    "cheb": lambda f, c: Stack(pyg.ChebConv(f, WIDTH, 2), pyg.ChebConv(WIDTH, c, 2)),
    "tag": lambda f, c: Stack(pyg.TAGConv(f, WIDTH), pyg.TAGConv(WIDTH, c)),
    "appnp": lambda f, c: Stack(nn.Linear(f, WIDTH), nn.Linear(WIDTH, c), pyg.APPNP(10, 0.1)),
    "arma": lambda f, c: Stack(pyg.ARMAConv(f, WIDTH), pyg.ARMAConv(WIDTH, c)),
    "gat v2": lambda f, c: Stack(pyg.GATv2Conv(f, 8, heads=8), pyg.GATv2Conv(WIDTH, c)),
    "transformer": lambda f, c: Stack(pyg.TransformerConv(f, 8, heads=8), pyg.TransformerConv(WIDTH, c)),
    "gat v2 128": lambda f, c: Stack(pyg.GATv2Conv(f, 16, heads=8), pyg.GATv2Conv(128, c)),
    "transformer 128": lambda f, c: Stack(pyg.TransformerConv(f, 16, heads=8), pyg.TransformerConv(128, c)),
    "edge conv 128": lambda f, c: Stack(
        nn.Linear(f, 128), pyg.EdgeConv(nn.Sequential(nn.Linear(256, 128), nn.ReLU())), nn.Linear(128, c)
    ),
    "gcn bn 3x256": lambda f, c: pyg.GCN(f, 256, 3, c, dropout=DROPOUT, norm="BatchNorm"),
    "sage jk": lambda f, c: pyg.GraphSAGE(f, WIDTH, 3, c, dropout=DROPOUT, norm="LayerNorm", jk="cat"),
    "gcn residual": Residual,
    "gcnii 16": Deep,
    "gin bn": lambda f, c: pyg.GIN(f, WIDTH, 2, c, norm="BatchNorm"),
    "pna": lambda f, c: pyg.PNA(
        f, 16, 2, c, aggregators=["mean", "max", "std"], scalers=["identity", "amplification"], deg=DEGREES
    ),
    "edge cnn": lambda f, c: Stack(nn.Linear(f, 32), pyg.EdgeConv(pyg.MLP([64, 32, c]))),
    "sgc": lambda f, c: Stack(pyg.SGConv(f, c, K=2)),
    "rgcn": Relational,
    "res gated": lambda f, c: Stack(pyg.ResGatedGraphConv(f, WIDTH), pyg.ResGatedGraphConv(WIDTH, c)),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graph", nargs="?", type=Path, default=default_graph())
    parser.add_argument("repeats", nargs="?", type=int)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--features", type=int, default=MOST_FEATURES)
    parser.add_argument("--accuracy", type=int, metavar="EPOCHS")
    parser.add_argument("--plain", action="store_true")
    asked = parser.parse_intermixed_args()
    names = asked.models or list(MODELS)
    graph = read(asked.graph, asked.features)
    print(graph)
    if asked.accuracy:
        if asked.plain:
            global DROPOUT
            DROPOUT = 0.0
        accuracies(graph, names, asked.repeats or 1, asked.accuracy, last=asked.plain)
    else:
        speeds(graph, names, asked.repeats or 2, asked.epochs, asked.cpu)


def speeds(graph: siafu.Graph, names: list[str], repeats: int, epochs: int, cpu: bool) -> None:
    """Seconds of each model's best epoch under both, and their ratio."""
    print(f"{'model':15} {'PyG, s':>8} {'Siafu, s':>9} {'ratio':>6}{' in CPU seconds' if cpu else ''}")
    clock = time.process_time if cpu else time.perf_counter
    for name in names:
        theirs, ours = [], []
        for _ in range(repeats):
            given = graph_for(model_of(graph, name), graph)
            theirs.append(pyg_epoch(given, model_of(graph, name), epochs, clock))
            ours.append((cpu_epoch if cpu else siafu_epoch)(given, model_of(graph, name), epochs))
        print(f"{name:15} {min(theirs):8.3f} {min(ours):9.3f} {min(theirs) / min(ours):6.1f}", flush=True)


def accuracies(graph: siafu.Graph, names: list[str], seeds: int, epochs: int, *, last: bool) -> None:
    """Test accuracy of each model under both, and their difference; last: after the last epoch, not after the best."""
    print(f"{'model':15} {'PyG, %':>14} {'Siafu, %':>14} {'differ':>14}")
    for name in names:
        theirs, ours = [], []
        for seed in range(seeds):
            model = model_of(graph, name, seed)
            theirs.append(100 * pyg_accuracy(graph_for(model, graph), model, epochs, last=last))
            model = model_of(graph, name, seed)
            run = siafu.train(
                graph_for(model, graph), model, epochs=epochs, seed=seed, evaluate_every=epochs if last else 1
            )
            ours.append(100 * (run.history[-1].test_accuracy if last else run.summary()["test_accuracy"]))
        one, other = statistics.mean(theirs), statistics.mean(ours)
        spreads = [statistics.stdev(each) if seeds > 1 else 0.0 for each in (theirs, ours)]
        error = (sum(each**2 for each in spreads) / seeds) ** 0.5
        print(
            f"{name:15} {one:6.2f} ± {spreads[0]:5.2f} {other:6.2f} ± {spreads[1]:5.2f} {other - one:+6.2f} ± {error:5.2f}",
            flush=True,
        )


def siafu_epoch(graph: siafu.Graph, model: nn.Module, epochs: int) -> float:
    """Seconds of Siafu's best epoch."""
    history = siafu.train(graph, model, epochs=epochs).history[2:]
    return min(each.seconds for each in history)


def cpu_epoch(graph: siafu.Graph, model: nn.Module, epochs: int) -> float:
    """CPU seconds of the best epoch, without evaluations, in mode sync, where no epoch begins before the last has ended."""
    ended = []
    siafu.train(
        graph,
        model,
        epochs=epochs,
        mode="sync",
        evaluate_every=epochs,
        callbacks=[lambda epoch: ended.append(time.process_time())],
    )
    return float(np.diff(ended[1:-1]).min())


def model_of(graph: siafu.Graph, name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return MODELS[name](graph.num_features, graph.num_classes)


def graph_for(model: nn.Module, graph: siafu.Graph) -> siafu.Graph:
    """The graph, with types of edges if the model takes them."""
    if "edge_type" not in forward_parameters(model):
        return graph
    target = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    return graph.replace(edge_type=(graph.indices < target).astype(np.int32), source=None)


def default_graph() -> Path:
    shared = os.environ.get("SIAFU_SHARED")
    beside = Path(__file__).resolve().parents[2] / "shared"
    return (Path(shared) if shared else beside) / "data" / "graphs" / "flickr.npz"


def read(path: Path, most_features: int | None = MOST_FEATURES) -> siafu.Graph:
    """The graph with a seeded split of 60, 20 and 20 per cent."""
    file = np.load(path, allow_pickle=False)
    count = int(file["num_nodes"])
    if "x" in file:
        x = file["x"].astype(np.float32)
    else:
        x = np.zeros((count, int(file["x_dim"])), np.float32)
        rows = np.repeat(np.arange(count), np.diff(file["x_indptr"]))
        x[rows, file["x_indices"]] = file.get("x_data", 1)
    rng = np.random.default_rng(0)
    if most_features is not None and x.shape[1] > most_features:
        x = x @ rng.normal(0, x.shape[1] ** -0.5, (x.shape[1], most_features)).astype(np.float32)
    order = rng.permutation(np.flatnonzero(file["y"] >= 0))
    ends = [0, int(0.6 * len(order)), int(0.8 * len(order)), len(order)]
    splits = {
        name: np.sort(order[a:b])
        for name, a, b in zip(("train", "val", "test"), ends, ends[1:], strict=False)
    }
    return siafu.Graph.from_edges(
        file["src"],
        file["dst"],
        num_vertices=count,
        undirected=True,
        x=x,
        y=file["y"].astype(np.int64),
        name=path.stem,
        **splits,
    )


if __name__ == "__main__":
    main()
