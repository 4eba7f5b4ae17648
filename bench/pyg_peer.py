"""A training of PyG's, as its users write it: the peer of benchmarks that stand beside it."""

import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import siafu


def pyg_epoch(
    graph: siafu.Graph, model: nn.Module, epochs: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of PyG's best epoch, by a clock."""
    inputs, y = tensors(graph)
    train = torch.from_numpy(np.array(graph.train))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    model.train()
    best = float("inf")
    for _ in range(epochs):
        began = clock()
        optimizer.zero_grad()
        F.cross_entropy(model(*inputs)[train], y[train]).backward()
        optimizer.step()
        best = min(best, clock() - began)
    return best


def pyg_accuracy(graph: siafu.Graph, model: nn.Module, epochs: int, *, last: bool = False) -> float:
    """Share of the test rows that are right in the epoch that is best on the validation rows; last: in the last epoch."""
    inputs, y = tensors(graph)
    train, val, test = (torch.from_numpy(np.array(each)) for each in (graph.train, graph.val, graph.test))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    best, found = -1.0, 0.0
    for epoch in range(epochs):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(*inputs)[train], y[train]).backward()
        optimizer.step()
        if last and epoch < epochs - 1:
            continue
        model.eval()
        with torch.no_grad():
            right = (model(*inputs).argmax(1) == y).double()
        if right[val].mean() > best:
            best, found = float(right[val].mean()), float(right[test].mean())
    return found


def tensors(graph: siafu.Graph) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """The graph as PyG has it: (x, edge_index, edge_type if there are any), and y."""
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([graph.indices.astype(np.int64), rows]))
    inputs = torch.from_numpy(np.array(graph.x)), edges
    if graph.edge_type is not None:
        inputs = *inputs, torch.from_numpy(np.array(graph.edge_type, dtype=np.int64))
    return inputs, torch.from_numpy(np.array(graph.y))
