"""Weights with a row for each vertex: learnt rows of graphs without features, and what else a model keeps of every vertex."""

from collections.abc import Iterator

from torch import Tensor, nn

from siafu.graph import Graph

_OTHERS = ("torch.", "torch_geometric.", "siafu.")
"""Where classes come from whose parameters are maps, however many rows these have."""


def embeddings_of_vertices(model: nn.Module, graph: Graph) -> frozenset[str]:
    """Names of the parameters that are an `nn.Embedding` of as many rows as there are vertices, or `LearntRows`."""
    from siafu.nn.layers.light_gcn import LearntRows

    return frozenset(
        name
        for name, tensor, owner in _named(model)
        if isinstance(owner, (nn.Embedding, LearntRows)) and _fits(tensor, graph)
    )


def rows_perhaps(model: nn.Module, graph: Graph) -> frozenset[str]:
    """Names of other parameters and buffers that have a row for each vertex: a map of as many rows looks the same."""
    return frozenset(
        name
        for name, tensor, owner in _named(model)
        if not type(owner).__module__.startswith(_OTHERS) and _fits(tensor, graph)
    )


def _fits(tensor: Tensor, graph: Graph) -> bool:
    return tensor.ndim == 2 and tensor.is_floating_point() and tensor.shape[0] == graph.num_vertices


def _named(model: nn.Module) -> Iterator[tuple[str, Tensor, nn.Module]]:
    """Parameters and buffers, each under its first name, with the module that has it."""
    seen: set[int] = set()
    for prefix, owner in model.named_modules():
        for name, tensor in (*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)):
            if id(tensor) not in seen and not isinstance(
                tensor, (nn.UninitializedParameter, nn.UninitializedBuffer)
            ):
                seen.add(id(tensor))
                yield f"{prefix}.{name}" if prefix else name, tensor, owner
