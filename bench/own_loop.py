"""An epoch of training, three ways, side by side: siafu.train, a compiled step in a loop of one's own, and autograd of model(graph).

    python bench/own_loop.py [DATASET] [--repeats N] [--epochs N]

Milliseconds of wall-clock and of CPU time an epoch, the best of N interleaved repeats, without evaluations. PyTorch's threads sleep while they wait
(OMP_WAIT_POLICY): those that autograd starts would else count as CPU time of the others.
"""

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read once, when PyTorch is loaded

import torch

import siafu

Times = tuple[float, float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", nargs="?", default="pubmed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    asked = parser.parse_args()
    graph = siafu.load(asked.dataset)
    models = {
        "gcn": lambda: siafu.nn.GCN(graph.num_features, 64, 2, graph.num_classes, dropout=0.5),
        "gat": lambda: siafu.nn.GAT(
            graph.num_features, 64, 2, graph.num_classes, dropout=0.5, heads=8, out_heads=1
        ),
    }
    for name, make in models.items():
        ways = {"siafu.train": _train, "siafu.compile": _step, "model(graph)": _autograd}
        run = {way: start(graph, make(), asked.epochs) for way, start in ways.items()}
        best = dict.fromkeys(ways, (float("inf"), float("inf")))
        for _ in range(asked.repeats):
            for way, measure in run.items():
                best[way] = tuple(map(min, best[way], measure()))  # type: ignore[assignment]
        wall, cpu = best["siafu.train"]
        for way, found in best.items():
            ratios = f"{found[0] / wall:.2f} × wall, {found[1] / cpu:.2f} × CPU"
            print(
                f"{name} on {graph.name}, {way}: {1e3 * found[0]:.1f} ms, {1e3 * found[1]:.1f} CPU ms ({ratios})",
                flush=True,
            )


def _train(graph: siafu.Graph, model: torch.nn.Module, epochs: int) -> Callable[[], Times]:
    siafu.train(graph, model, epochs=1)

    def measure() -> Times:
        """Two lengths: what a start takes is in both."""
        short, long = (
            _timed(lambda n=n: siafu.train(graph, model, epochs=n, evaluate_every=10**6))
            for n in (2, 2 + epochs)
        )  # type: ignore[misc]
        return (long[0] - short[0]) / epochs, (long[1] - short[1]) / epochs

    return measure


def _step(graph: siafu.Graph, model: torch.nn.Module, epochs: int) -> Callable[[], Times]:
    step, optimizer = siafu.compile(model, graph), torch.optim.Adam(model.parameters(), lr=0.01)

    def epoch() -> None:
        optimizer.zero_grad()
        step()
        optimizer.step()

    return _looped(epoch, epochs)


def _autograd(graph: siafu.Graph, model: torch.nn.Module, epochs: int) -> Callable[[], Times]:
    rows, y = torch.from_numpy(graph.train), torch.from_numpy(graph.y)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def epoch() -> None:
        model.train()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(graph)[rows], y[rows]).backward()
        optimizer.step()

    return _looped(epoch, epochs)


def _looped(epoch: Callable[[], None], epochs: int) -> Callable[[], Times]:
    epoch()

    def measure() -> Times:
        wall, cpu = _timed(lambda: [epoch() for _ in range(epochs)])
        return wall / epochs, cpu / epochs

    return measure


def _timed(work: Callable[[], object]) -> Times:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
