"""GNNAdvisor's comparison (OSDI'21) on CPUs: training epochs of its two models on its three types of graphs, beside DGL.

    python bench/gnnadvisor.py --peer /path/to/python-with-dgl [GRAPH …] [--epochs 10] [--turns 2]

Its models: GCN of 2 layers, 16 wide, and GIN of 5 layers, 64 wide. Its types: I, small graphs with wide features; II, many small graphs beside each
other; III, large graphs with skewed degrees. GRAPH is a .npz of ../shared/data ($SIAFU_SHARED) by its name, or `small-graphs`: 1,100 of 39 vertices, as many vertices
and edges as PROTEINS_full. Features and labels are drawn, dense, the same for both. Each turn runs both, one after the other, in processes of their own; CPU
seconds for an epoch count, the least of the turns, without the first epochs, on one thread each: PyTorch's threads spin while they wait, which is charged to DGL
on a machine that has other work.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

GRAPHS = {
    "cora": ("I", 1433, 7),
    "pubmed": ("I", 500, 3),
    "dblp": ("I", 334, 4),
    "small-graphs": ("II", 29, 2),
    "amazon_cs": ("III", 96, 22),
    "flickr": ("III", 96, 22),
    "acl_papers": ("III", 96, 22),
    "cnr2000": ("III", 96, 22),
}
"""By name: type, features, classes."""
MODELS = {"gcn": (2, 16), "gin": (5, 64)}
_FIRST = 2  # epochs that are not counted


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="*", default=list(GRAPHS))
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--one", nargs=3, metavar=("WHO", "GRAPH", "MODEL"))
    asked = parser.parse_args()
    if asked.one:
        who, graph, model = asked.one
        print(json.dumps(_RUNS[who](*_drawn(graph), model, graph, asked.epochs)))
        return
    ratios: dict[str, list[float]] = {}
    print("| type | graph | vertices | edges | model | Siafu, ms | DGL, ms | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for name in asked.graphs:
        kind = GRAPHS[name][0]
        indptr, indices = _edges(name)
        for model in MODELS:
            turns = [[_run(who, name, model, asked) for who in ("siafu", "dgl")] for _ in range(asked.turns)]
            ours, theirs = (min(each) for each in zip(*turns, strict=True))
            ratios.setdefault(kind, []).append(theirs / ours)
            print(
                f"| {kind} | {name} | {len(indptr) - 1:,} | {len(indices):,} | {model} | {1e3 * ours:.1f} | {1e3 * theirs:.1f} | "
                f"{theirs / ours:.1f} |",
                flush=True,
            )
    for kind, found in ratios.items():
        print(f"type {kind}: {statistics.geometric_mean(found):.2f} × DGL")
    every = [each for found in ratios.values() for each in found]
    print(f"mean {statistics.mean(every):.2f}, geometric mean {statistics.geometric_mean(every):.2f} × DGL")


def _run(who: str, graph: str, model: str, asked: argparse.Namespace) -> float:
    python = sys.executable if who == "siafu" else str(asked.peer)
    command = [python, __file__, "--one", who, graph, model, "--epochs", str(asked.epochs)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "SIAFU_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=alone)
    return float(json.loads(done.stdout.splitlines()[-1]))


def _edges(name: str) -> tuple[np.ndarray, np.ndarray]:
    """In-edges, each undirected edge both ways, without parallel ones and self-loops."""
    if name == "small-graphs":
        rng, count, size = np.random.default_rng(1), 1_100, 39
        first = rng.integers(0, count, 81_000) * size
        src, dst = first + rng.integers(0, size, len(first)), first + rng.integers(0, size, len(first))
        vertices = count * size
    else:
        data = Path(os.environ.get("SIAFU_SHARED", "../shared")) / "data"
        arrays = np.load(next(data.glob(f"*/{name}.npz")))
        vertices = int(arrays["num_nodes"])
        if "indptr" in arrays.files:
            src, dst = arrays["indices"], np.repeat(np.arange(vertices), np.diff(arrays["indptr"]))
        else:
            src, dst = arrays["src"], arrays["dst"]
    src, dst = np.asarray(src, np.int64), np.asarray(dst, np.int64)
    joined = src != dst
    keys = np.unique(
        np.concatenate([dst[joined] * vertices + src[joined], src[joined] * vertices + dst[joined]])
    )
    counts = np.bincount(keys // vertices, minlength=vertices)
    return np.concatenate([[0], np.cumsum(counts)]), (keys % vertices).astype(np.int32)


def _drawn(name: str) -> tuple[np.ndarray, ...]:
    indptr, indices = _edges(name)
    _, features, classes = GRAPHS[name]
    rng, vertices = np.random.default_rng(0), len(indptr) - 1
    x = rng.standard_normal((vertices, features), dtype=np.float32)
    return indptr, indices, x, rng.integers(0, classes, vertices)


def _siafu(
    indptr: np.ndarray, indices: np.ndarray, x: np.ndarray, y: np.ndarray, model: str, name: str, epochs: int
) -> float:
    import siafu
    from siafu.report.progress import Progress

    class Clock(Progress):
        ends: ClassVar[list[float]] = []

        def epoch_ended(self, metrics: Any) -> None:
            self.ends.append(time.process_time())

    graph = siafu.Graph.from_csr(indptr, indices, x=x, y=y, train=np.ones(len(y), np.bool_))
    layers, hidden = MODELS[model]
    kind = {"gcn": siafu.nn.GCN, "gin": siafu.nn.GIN}[model]
    net = kind(x.shape[1], hidden, layers, GRAPHS[name][2], dropout=0.0)
    siafu.train(graph, net, epochs=epochs, weight_decay=0.0, evaluate_every=epochs + 1, progress=Clock())
    return _an_epoch(Clock.ends)


def _dgl(
    indptr: np.ndarray, indices: np.ndarray, x: np.ndarray, y: np.ndarray, model: str, name: str, epochs: int
) -> float:
    sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")  # not built for every PyTorch
    import dgl
    import torch
    from dgl import nn as dgl_nn

    pointers, ids = torch.from_numpy(indptr), torch.from_numpy(indices)
    edges = pointers.int(), ids, torch.arange(len(ids), dtype=torch.int32)
    graph = dgl.graph(("csc", edges), num_nodes=len(y), idtype=torch.int32)
    layers, hidden = MODELS[model]
    widths = [x.shape[1], *[hidden] * (layers - 1), GRAPHS[name][2]]

    def layer(a: int, b: int) -> Any:
        if model == "gcn":
            return dgl_nn.GraphConv(a, b, allow_zero_in_degree=True)
        inner = torch.nn.Sequential(torch.nn.Linear(a, b), torch.nn.ReLU(), torch.nn.Linear(b, b))
        return dgl_nn.GINConv(inner, "sum")

    net = torch.nn.ModuleList([layer(a, b) for a, b in itertools.pairwise(widths)])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    rows, target, ends = torch.from_numpy(x), torch.from_numpy(y), []
    for _ in range(epochs):
        optimizer.zero_grad()
        h = rows
        for place, each in enumerate(net):
            h = each(graph, h)
            h = h.relu() if place < layers - 1 else h
        torch.nn.functional.cross_entropy(h, target).backward()
        optimizer.step()
        ends.append(time.process_time())
    return _an_epoch(ends)


def _an_epoch(ends: list[float]) -> float:
    return (ends[-1] - ends[_FIRST - 1]) / (len(ends) - _FIRST)


_RUNS = {"siafu": _siafu, "dgl": _dgl}


if __name__ == "__main__":
    main()
