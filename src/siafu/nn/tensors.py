"""Between PyTorch's tensors and the kernels' tables, without a copy where none is needed."""

from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn.recording import recorder

Precision = Literal["fp32", "bf16", "mixed"]
"""How a model computes: in float32; with rows in bfloat16 while they are gathered; and with products of bfloat16 besides."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


def features(graph: Graph) -> torch.Tensor:
    """The graph's features as float32 [V, F]: the stored array itself, or bfloat16 widened."""
    who = recorder()
    if who is not None:
        return who.features()
    if graph.x is None:
        raise BadInput(f"graph {graph.name!r} has no features: give it x, or call model(graph, x)")
    if graph.x.dtype == np.uint16:
        return torch.from_numpy(graph.x).view(torch.bfloat16).float()
    return torch.from_numpy(graph.x)


def features_if_any(graph: Graph) -> torch.Tensor:
    """The graph's features; without any, rows of nothing."""
    if recorder() is None and graph.x is None:
        return torch.zeros(graph.num_vertices, 0)
    return features(graph)


def as_rows(tensor: torch.Tensor) -> NDArray[Any]:
    """A NumPy view of float32 or float64 rows whose columns are next to each other."""
    if tensor.dtype not in (torch.float32, torch.float64):
        raise BadInput(f"a gather wants float32 or float64 rows, not {tensor.dtype}: convert them first")
    detached = tensor.detach()
    return (detached if detached.stride(-1) == 1 else detached.contiguous()).numpy()


def as_tensor(table: NDArray[Any], columns: int) -> torch.Tensor:
    """The first columns of a table, sharing its memory; no view of another tensor, so it may be changed in place."""
    return torch.from_numpy(table[:, :columns])


def check_rows(name: str, tensor: torch.Tensor, graph: Graph) -> None:
    """Kernels check no bound: what they read must have a row for each vertex."""
    if tensor.ndim != 2 or len(tensor) != graph.num_vertices:
        raise BadInput(
            f"{name} has shape {list(tensor.shape)}: a gather wants one row for each of the {graph.num_vertices} vertices"
        )


def storage(kind: np.dtype[Any], precision: Precision) -> type[np.generic]:
    """What gathered rows are stored as: float64 stays exact, float32 may be halved."""
    if kind == np.float64:
        return np.float64
    return np.uint16 if is_halved(precision) else np.float32


def is_halved(precision: Precision) -> bool:
    """Whether float32 rows are stored in bfloat16 while they are gathered."""
    return precision != "fp32"
