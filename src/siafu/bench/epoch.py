"""One epoch of a two-layer model over the whole graph, against DGL and PyG: forward, loss, backward, Adam step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch.nn import functional as F

from siafu import nn
from siafu.bench.timing import Timing, measure, measure_peer
from siafu.errors import BadInput
from siafu.graph import Graph
from siafu.nn import Precision

Model = Literal["gcn", "gat"]


def bench_epoch(
    graph: Graph, store: Path, model: Model, hidden: int, repeats: int, peers: Path | None
) -> list[Timing]:
    """Times of every contender; PyG has no GAT here, since it makes a tensor for every edge."""
    timings = [
        measure(f"siafu {precision}", _step(graph, model, hidden, precision), repeats)
        for precision in ("fp32", "bf16")
    ]
    if peers is not None:
        for peer in ("dgl", "pyg") if model == "gcn" else ("dgl",):
            arguments = [peer, "epoch", str(store), str(hidden), model]
            timings.append(measure_peer(peers, {"dgl": "DGL", "pyg": "PyG"}[peer], arguments, repeats))
    return timings


def _step(graph: Graph, model: Model, hidden: int, precision: Precision) -> Callable[[], None]:
    if graph.y is None or graph.train is None or graph.multi_label:
        raise BadInput("bench epoch wants a graph with classes and a training split: try reddit-small")
    torch.manual_seed(0)
    options: dict[str, Any] = {"heads": 8, "out_heads": 1, "act": "elu"} if model == "gat" else {}
    network = nn.MODELS[model](
        graph.num_features, hidden, 2, graph.num_classes, precision=precision, **options
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    rows = torch.from_numpy(graph.train)
    labels = torch.from_numpy(graph.y)[rows]

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(graph)[rows], labels).backward()
        optimizer.step()

    return step
