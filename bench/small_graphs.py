"""Epochs on small graphs, where overhead counts: Siafu beside PyG on Cora and PubMed, in one run.

    python bench/small_graphs.py [REPEATS]

The same model, features, split, optimizer and dropout. An epoch is forward, loss, backward and the optimizer's step, without
evaluation; Siafu's with evaluation, a run of its own, stands beside it. Each line is the best epoch of all repeats, which take turns.
"""

import sys

import torch
from pyg_peer import pyg_epoch
from torch_geometric.nn import models

import siafu

CASES = (
    *(("cora", "GCN", 64), ("pubmed", "GCN", 64), ("pubmed", "GCN", 16)),
    *(("cora", "GAT", 64), ("pubmed", "GAT", 64), ("cora", "GraphSAGE", 64), ("pubmed", "GraphSAGE", 64)),
)
EPOCHS = 60


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(
        f"{'graph':8} {'model':12} {'PyG, ms':>8} {'Siafu, ms':>10} {'ratio':>6} {'with evaluation, ms':>20}"
    )
    for name, kind, width in CASES:
        graph = siafu.load(name)
        theirs, own, evaluated = [], [], []
        for _ in range(repeats):
            theirs.append(pyg_epoch(graph, model_of(models, graph, kind, width), EPOCHS))
            own.append(own_epoch(graph, model_of(siafu.nn, graph, kind, width), EPOCHS))
            evaluated.append(own_epoch(graph, model_of(siafu.nn, graph, kind, width), 1))
        ratio = min(theirs) / min(own)
        times = f"{min(theirs) * 1e3:8.2f} {min(own) * 1e3:10.2f} {ratio:6.1f} {min(evaluated) * 1e3:20.2f}"
        print(f"{name:8} {f'{kind}-{width}':12} {times}", flush=True)


def own_epoch(graph: siafu.Graph, model: torch.nn.Module, evaluate_every: int) -> float:
    """Seconds of the best epoch. The last is left out: it is always evaluated."""
    history = siafu.train(graph, model, epochs=EPOCHS, evaluate_every=evaluate_every).history[3:-1]
    return min(each.seconds + (each.evaluate_seconds or 0.0) for each in history)


def model_of(module: object, graph: siafu.Graph, kind: str, width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    heads = {"heads": 8} if kind == "GAT" else {}
    made: torch.nn.Module = getattr(module, kind)(
        graph.num_features, width, 2, graph.num_classes, dropout=0.5, **heads
    )
    return made


if __name__ == "__main__":
    main()
