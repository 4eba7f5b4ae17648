"""ogbn-arxiv's recipe beside PyG: GCN of 3 × 256 with batch norm, dropout 0.5, Adam with learning rate 0.01, no weight decay.

    python bench/arxiv.py acl_papers|arxiv [--epochs N] [--peer edges|matrix|both|none] [--seeds N]

acl_papers: of ../shared/data or $SIAFU_SHARED/data, its words mapped to 128 features, 60/20/20 per cent at random. arxiv: a generated graph of ogbn-arxiv's
shape: 169,343 vertices, 1.17 million edges made to go both ways, 128 features, 40 classes, as many vertices for training, validation and test. --peer: PyG's
model with `edge_index`, or with a sparse matrix that was normed before (`torch.sparse_csr`), as OGB's example has it; both: the latter, and three epochs of the former. Each line: CPU seconds and seconds
of the best epoch without evaluations, and test accuracy in the epoch of best validation accuracy, evaluated every fifth.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from pyg_models import read
from pyg_peer import tensors
from shapes import path_of
from torch import Tensor, nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import siafu
from siafu.graph.generate import Shape, generate

EVERY = 5
SHAPE = Shape("arxiv", 169_343, 2_332_486, 128, 40, 13_000, 2.3, 0.65, 1.6, 0.1, 0.537, 0.176, 400)


class Net(nn.Module):
    """The model of OGB's example."""

    def __init__(self, features: int, classes: int, *, normed: bool = False) -> None:
        super().__init__()
        widths = [features, 256, 256, classes]
        self.convs = nn.ModuleList(
            pyg.GCNConv(a, b, normalize=not normed) for a, b in itertools.pairwise(widths)
        )
        self.bns = nn.ModuleList(nn.BatchNorm1d(256) for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.bns, strict=False):
            x = F.dropout(norm(conv(x, edge_index)).relu(), 0.5, self.training)
        out: Tensor = self.convs[-1](x, edge_index)
        return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graph", choices=("acl_papers", "arxiv"))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--peer", choices=("edges", "matrix", "both", "none"), default="edges")
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.graph == "arxiv":
            generate(SHAPE, Path(folder) / "arxiv.store")
            graph = siafu.load(str(Path(folder) / "arxiv.store"))
        else:
            graph = read(path_of("acl_papers"), 128)
        print(graph, flush=True)
        told("Siafu", [ours(graph, seed, asked.epochs) for seed in range(asked.seeds)])
        if asked.peer in ("matrix", "both"):
            found = [theirs(graph, seed, asked.epochs, normed=True) for seed in range(asked.seeds)]
            told("PyG, matrix", found)
        if asked.peer in ("edges", "both"):
            few = 3 if asked.peer == "both" else asked.epochs
            found = [theirs(graph, seed, few, normed=False) for seed in range(asked.seeds)]
            told(f"PyG, edges{f', {few} epochs' if few < asked.epochs else ''}", found)


Result = tuple[float, float, float]
"""CPU seconds and seconds of the best epoch; test accuracy."""


def told(name: str, found: list[Result]) -> None:
    cpu, wall = (min(each[place] for each in found) for place in (0, 1))
    scores = [100 * each[2] for each in found]
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    print(
        f"{name:12} {cpu:7.3f} CPU s {wall:7.3f} s {statistics.mean(scores):6.2f} ± {spread:.2f} %",
        flush=True,
    )


def ours(graph: siafu.Graph, seed: int, epochs: int) -> Result:
    torch.manual_seed(seed)
    ended: list[tuple[float, float]] = []
    run = siafu.train(
        graph,
        Net(graph.num_features, graph.num_classes),
        epochs=epochs,
        weight_decay=0.0,
        seed=seed,
        mode="sync",
        evaluate_every=EVERY,
        callbacks=[lambda epoch: ended.append((time.process_time(), time.perf_counter()))],
    )
    plain = [n for n in range(2, epochs) if (n + 1) % EVERY and n % EVERY and n < epochs - 1]
    spent = np.diff(np.array(ended), axis=0)[[n - 1 for n in plain]].min(0)
    return float(spent[0]), float(spent[1]), run.summary()["test_accuracy"]


def theirs(graph: siafu.Graph, seed: int, epochs: int, *, normed: bool) -> Result:
    torch.manual_seed(seed)
    (x, edges), y = tensors(graph)
    if normed:
        edges, weights = gcn_norm(edges, None, graph.num_vertices)
        shape = (graph.num_vertices, graph.num_vertices)
        edges = torch.sparse_coo_tensor(edges.flip(0), weights, shape).coalesce().to_sparse_csr()
    model = Net(graph.num_features, graph.num_classes, normed=normed)
    train, val, test = (torch.from_numpy(np.array(each)) for each in (graph.train, graph.val, graph.test))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    cpu, wall, best, found = float("inf"), float("inf"), -1.0, 0.0
    for epoch in range(epochs):
        model.train()
        began = time.process_time(), time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edges)[train], y[train]).backward()
        optimizer.step()
        cpu, wall = min(cpu, time.process_time() - began[0]), min(wall, time.perf_counter() - began[1])
        if (epoch + 1) % EVERY and epoch < epochs - 1:
            continue
        model.eval()
        with torch.no_grad():
            right = (model(x, edges).argmax(1) == y).double()
        if right[val].mean() > best:
            best, found = float(right[val].mean()), float(right[test].mean())
    return cpu, wall, found


if __name__ == "__main__":
    main()
