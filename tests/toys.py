"""Small graphs whose labels can be learnt, and graphs as PyG writes them."""

from typing import Any

import numpy as np
import torch

from siafu import Graph


def toy_graph(num_vertices: int = 210, num_classes: int = 3, *, seed: int = 0, **changes: Any) -> Graph:
    """Communities whose vertices are mostly linked among themselves, with noisy features that hint at them.

    `num_vertices` is a multiple of `num_classes`.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(num_vertices) % num_classes
    src = rng.integers(0, num_vertices, 6 * num_vertices)
    inside = (src + num_classes * rng.integers(0, num_vertices // num_classes, len(src))) % num_vertices
    dst = np.where(rng.random(len(src)) < 0.7, inside, rng.integers(0, num_vertices, len(src)))
    x = (np.eye(8)[y] + rng.normal(0, 1.0, (num_vertices, 8))).astype(np.float32)
    order = rng.permutation(num_vertices)
    fifth = num_vertices // 5
    data: dict[str, Any] = {
        "x": x,
        "y": y,
        "train": np.sort(order[:fifth]),
        "val": np.sort(order[fifth : 2 * fifth]),
        "test": np.sort(order[2 * fifth :]),
        "name": "toy",
    }
    return Graph.from_edges(src, dst, num_vertices=num_vertices, undirected=True, **(data | changes))


def multi_label_graph(num_vertices: int = 120, num_labels: int = 4) -> Graph:
    """A toy graph where each vertex has any number of labels."""
    rng = np.random.default_rng(1)
    y = (rng.random((num_vertices, num_labels)) < 0.4).astype(np.uint8)
    x = (np.pad(y, ((0, 0), (0, 4))) + rng.normal(0, 0.3, (num_vertices, num_labels + 4))).astype(np.float32)
    return toy_graph(num_vertices, x=x, y=y)


def edge_index(graph: Graph) -> torch.Tensor:
    """The edges as PyG lists them: [2, E], sources above destinations."""
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    return torch.from_numpy(np.stack([graph.indices.astype(np.int64), dst]))
