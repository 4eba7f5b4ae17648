"""Trainings that keep what a judge wants to see, and graphs and layers that are awkward to train on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import siafu
from siafu import Graph
from siafu.graph.partition import Partition
from siafu.options import Options
from siafu.runtime.lambdas import Lambdas
from siafu.training.placement import choose_partition
from siafu.training.records.checkpoint import Checkpoint
from siafu.training.trainer import Trainer

Programs = Any


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training did: the losses of its epochs, the weights after the last, what it counted."""

    losses: list[float]
    weights: dict[str, Tensor]
    counters: dict[str, Any]


def options(**changes: Any) -> Options:
    """Those of `siafu.train`, but for `changes`."""
    return Options(**changes)


def train_in_pipeline(
    graph: Graph,
    model: nn.Module,
    *,
    programs: Programs = None,
    partition: str | Partition = "hash",
    servers: int = 1,
    computed_by: Lambdas | None = None,
    after_epoch: Callable[[], None] = lambda: None,
    held: bool = False,
    **changes: Any,
) -> Trained:
    """Train as `siafu.train` does, but leave the model as it is and keep the weights of the last epoch.

    programs:    of `compiled`, to save the time
    computed_by: what computes tensor tasks
    after_epoch: called when one is over, while the next is already under way
    held:        the next waits for that
    """
    settings = options(servers=servers, **changes)
    placed = partition if isinstance(partition, Partition) else choose_partition(graph, servers, partition)
    callbacks = [lambda _: after_epoch()] if held else []
    trainer = Trainer(graph, model, settings, placed, programs, computed_by, callbacks=callbacks)
    trainer.prepare()
    for event in trainer.run():
        if isinstance(event, Checkpoint):
            last = event
        elif not held:
            after_epoch()
    weights = {
        name.removeprefix("model."): tensor
        for name, tensor in last.tensors.items()
        if name.startswith("model.")
    }
    return Trained([epoch.train_loss for epoch in trainer.history], weights, trainer.counters())


def compiled(graph: Graph, model: nn.Module) -> Programs:
    """What `model` is compiled to, which no layout changes."""
    return Trainer(graph, model, options(), choose_partition(graph, 1, "contiguous")).programs


def tangled_graph(
    num_vertices: int = 150, *, weighted: bool = False, undirected: bool = False, labels: int = 0
) -> Graph:
    """Mostly short edges, a hub, self-loops, parallel edges and vertices without any edge, in a few classes.

    labels: so many instead of classes, of which each vertex has any number
    """
    rng = np.random.default_rng(5)
    linked = num_vertices - 8
    src = rng.integers(0, linked, 4 * num_vertices)
    dst = (src + rng.integers(-9, 10, len(src))) % linked
    dst[:40] = 17
    src[40:60] = dst[40:60]
    src[60:90], dst[60:90] = src[90:120], dst[90:120]
    y = rng.integers(0, 3, num_vertices)
    if labels:
        y = (rng.random((num_vertices, labels)) < 0.4).astype(np.uint8)
    order = rng.permutation(num_vertices)
    train, val, test = np.split(order, [num_vertices // 2, num_vertices // 2 + num_vertices // 4])
    return Graph.from_edges(
        src,
        dst,
        num_vertices=num_vertices,
        undirected=undirected,
        edge_weight=rng.integers(1, 9, len(src)) / 4 if weighted else None,
        x=rng.normal(size=(num_vertices, 6)).astype(np.float32),
        y=y,
        train=np.sort(train),
        val=np.sort(val),
        test=np.sort(test),
        name="tangled",
    )


class GatedConv(siafu.nn.Layer):
    """A layer of a user's own making: an edge lets through as much as both its ends agree on."""

    gather = siafu.nn.Mean()

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.sent, self.own = nn.Linear(in_channels, out_channels), nn.Linear(in_channels, out_channels)
        self.gate = nn.Linear(2 * out_channels, out_channels)

    def transform(self, x: Tensor) -> Tensor:
        return self.sent(x)

    def apply_edge(self, source: Tensor, target: Tensor) -> Tensor:
        return torch.sigmoid(self.gate(torch.cat([source, target], dim=1))) * source

    def apply_vertex(self, gathered: Tensor, x: Tensor) -> Tensor:
        return gathered + self.own(x)


class Gated(siafu.nn.GNN):
    """A model of such layers."""

    def make_layer(
        self, in_channels: int, out_channels: int, is_last: bool, **options: Any
    ) -> siafu.nn.Layer:
        return GatedConv(in_channels, out_channels, **options)
