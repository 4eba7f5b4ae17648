"""Epochs on small graphs, where overhead counts: Siafu beside PyG on Cora and PubMed, in one run.

    python bench/small_graphs.py [REPEATS] [--cpu]

The same model, features, split, optimizer and dropout. An epoch is forward, loss, backward and the optimizer's step, without
evaluation: PyG's best, and the best of a Siafu run without evaluations. Beside it stands the mean of a Siafu run that evaluates every
epoch; one alone says nothing, since an evaluation runs beside the next epoch. Repeats take turns.

--cpu: CPU time instead, for a machine that others use: PyG's best epoch on one thread, and the median of Siafu's epochs.
"""

import itertools
import statistics
import sys
import time

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
    numbers = [each for each in sys.argv[1:] if each != "--cpu"]
    measure = cpu_times if "--cpu" in sys.argv else wall_times
    print(
        f"{'graph':8} {'model':12} {'PyG, ms':>8} {'Siafu, ms':>10} {'ratio':>6} {'with evaluation, ms':>20}"
    )
    for name, kind, width in CASES:
        graph = siafu.load(name)
        found = [measure(graph, kind, width) for _ in range(int(numbers[0]) if numbers else 3)]
        theirs, own, evaluated = (1e3 * min(each) for each in zip(*found, strict=True))
        times = f"{theirs:8.2f} {own:10.2f} {theirs / own:6.1f} {evaluated:20.2f}"
        print(f"{name:8} {f'{kind}-{width}':12} {times}", flush=True)


def wall_times(graph: siafu.Graph, kind: str, width: int) -> tuple[float, float, float]:
    """Seconds of an epoch: PyG's, Siafu's, and Siafu's with its evaluation."""
    theirs = pyg_epoch(graph, model_of(models, graph, kind, width), EPOCHS)
    alone, evaluated = (
        siafu.train(
            graph, model_of(siafu.nn, graph, kind, width), epochs=EPOCHS, evaluate_every=every
        ).history[3:-1]  # the last is always evaluated
        for every in (EPOCHS, 1)
    )
    whole = statistics.fmean(each.seconds + (each.evaluate_seconds or 0.0) for each in evaluated)
    return theirs, min(each.seconds for each in alone), whole


def cpu_times(graph: siafu.Graph, kind: str, width: int) -> tuple[float, float, float]:
    """The same in CPU seconds."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    theirs = pyg_epoch(graph, model_of(models, graph, kind, width), EPOCHS, time.process_time)
    torch.set_num_threads(threads)
    model = (model_of(siafu.nn, graph, kind, width) for _ in range(2))
    return theirs, cpu_of_epoch(graph, next(model), EPOCHS), cpu_of_epoch(graph, next(model), 1)


def cpu_of_epoch(graph: siafu.Graph, model: torch.nn.Module, evaluate_every: int) -> float:
    """Median over the epochs. A callback waits for each: the next begins after it."""
    ended: list[float] = []
    siafu.train(
        graph,
        model,
        epochs=EPOCHS,
        evaluate_every=evaluate_every,
        callbacks=[lambda _: ended.append(time.process_time())],
    )
    return statistics.median(later - sooner for sooner, later in itertools.pairwise(ended[3:-1]))


def model_of(module: object, graph: siafu.Graph, kind: str, width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    heads = {"heads": 8} if kind == "GAT" else {}
    made: torch.nn.Module = getattr(module, kind)(
        graph.num_features, width, 2, graph.num_classes, dropout=0.5, **heads
    )
    return made


if __name__ == "__main__":
    main()
