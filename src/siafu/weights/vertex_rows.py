"""Gradients of weights that have a row for each vertex, on their way: rows of some vertices, and beside them which.

A task gives the rows of its own vertices and nothing for others, so that no gradient is as large as the weight.
"""

from collections.abc import Collection, Mapping

from torch import Tensor

_WHOSE = "@vertices"  # after the name of a parameter, which no attribute of a module is called


def with_vertices(
    gradients: Mapping[str, Tensor], of_vertices: Collection[str], vertices: Tensor
) -> dict[str, Tensor]:
    """Gradients, and beside each that has rows of `vertices` whose they are."""
    whose = {f"{name}{_WHOSE}": vertices for name in gradients if name in of_vertices}
    return {**gradients, **whose}


def vertices_beside(gradients: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
    """Names of gradients, each with the vertices that its rows are of; None: it is whole."""
    return {name: gradients.get(f"{name}{_WHOSE}") for name in gradients if not name.endswith(_WHOSE)}
