"""R-GCN over many typed edges: peak memory of a training, and seconds of its epochs.

    python bench/relations.py [--vertices N] [--edges N] [--relations N] [--hidden N] [--bases N] [--epochs N]

The graph is drawn at random: sources by a power law, targets and types uniform; 16 features a vertex.
"""

import argparse
import resource

import numpy as np
import torch
from torch import Tensor, nn

import siafu


class Net(nn.Module):
    """Two layers, as R-GCN's examples have them."""

    def __init__(self, features: int, hidden: int, classes: int, relations: int, bases: int | None) -> None:
        super().__init__()
        self.first = siafu.nn.RGCNConv(features, hidden, relations, num_bases=bases)
        self.last = siafu.nn.RGCNConv(hidden, classes, relations, num_bases=bases)

    def forward(self, graph: siafu.Graph, x: Tensor) -> Tensor:
        return self.last(graph, torch.relu(self.first(graph, x)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vertices", type=int, default=500_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--relations", type=int, default=200)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--bases", type=int)
    parser.add_argument("--epochs", type=int, default=3)
    asked = parser.parse_args()
    graph = drawn(asked.vertices, asked.edges, asked.relations, asked.hidden)
    print(graph)
    print(f"the graph was made with a peak of {peak():.2f} GB")
    model = Net(graph.num_features, asked.hidden, graph.num_classes, asked.relations, asked.bases)
    run = siafu.train(graph, model, epochs=asked.epochs, evaluate_every=asked.epochs)
    seconds = ", ".join(f"{epoch.seconds:.2f}" for epoch in run.history)
    print(f"epochs of {seconds} s; peak memory {peak():.2f} GB")


def drawn(vertices: int, edges: int, relations: int, width: int) -> siafu.Graph:
    rng = np.random.default_rng(0)
    source = (vertices * rng.random(edges, np.float32) ** 2).astype(np.int32)
    target = rng.integers(0, vertices, edges, np.int32)
    rows = np.arange(vertices)
    return siafu.Graph.from_edges(
        np.minimum(source, vertices - 1),
        target,
        num_vertices=vertices,
        edge_type=rng.integers(0, relations, edges, np.int32),
        x=rng.standard_normal((vertices, width), np.float32),
        y=rng.integers(0, 8, vertices),
        train=rows[: vertices // 10],
        val=rows[vertices // 10 : vertices // 8],
    )


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    main()
