"""Share: a server's rows of what is computed from the features alone, without the rest of the graph."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.base.jit import kernel
from siafu.graph import Graph
from siafu.program.constants import constant_rows, gathers_deep
from siafu.program.constants import recipes as constant_recipes
from siafu.program.program import Program
from siafu.server.assembly import ConstantRows
from siafu.server.rows.constant_type import constant_type

Ids = NDArray[np.int64]
ReadRows = Callable[[Ids], Tensor]
"""The features of some vertices, in the type to compute in."""


def constants_of_share(graph: Graph, own: Ids, rows: ReadRows, weights: Mapping[str, Tensor]) -> ConstantRows:
    """The constant rows of the vertices `own`. What is read of the graph are their in-edges and sources, and of these
    again as deep as gathers follow each other; for all usual models, that is the server's ghosts and no more."""
    known: dict[str, Tensor] = {}

    def of(program: Program) -> dict[str, Tensor]:
        recipes = constant_recipes(program.cut)
        if not all(recipe in known for recipe in recipes):
            made = _made(graph, own, rows, weights, program)
            known.update(zip(recipes, made, strict=True))
        return {name: known[recipe] for name, recipe in zip(program.constants, recipes, strict=True)}

    return of


def _made(
    graph: Graph, own: Ids, rows: ReadRows, weights: Mapping[str, Tensor], program: Program
) -> list[Tensor]:
    part, vertices = surroundings(graph, own, gathers_deep(program.cut))
    x = rows(vertices)
    for site in program.cut.recording.sites:
        site.gather.lend(graph, part, vertices, x.dtype)
    found = constant_rows(program.cut, part, x, dict(weights))
    inside = torch.from_numpy(np.searchsorted(vertices, own))
    return [each[inside].to(constant_type(program, x.dtype)) for each in found]


def surroundings(graph: Graph, own: Ids, depth: int) -> tuple[Graph, Ids]:
    """A graph of `own` and all from which a path of at most `depth` edges leads there, and their ids, ascending.

    Those at the end of the longest paths have no in-edges in it.
    """
    inside = np.zeros(graph.num_vertices, np.bool_)
    inside[own] = True
    complete = inside.copy()
    for _ in range(depth):
        complete = inside.copy()
        _add_sources(graph.indptr, graph.indices, np.flatnonzero(complete), inside)
    vertices = np.flatnonzero(inside)
    degrees = np.where(complete[vertices], np.diff(graph.indptr)[vertices], 0) if depth else 0 * vertices
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    indices = np.empty(indptr[-1], np.int32)
    edge_weight = None if graph.edge_weight is None else np.empty(indptr[-1], np.float32)
    place = np.empty(graph.num_vertices, np.int32)
    place[vertices] = np.arange(len(vertices), dtype=np.int32)
    _copy_edges(graph.indptr, graph.indices, graph.edge_weight, vertices, place, indptr, indices, edge_weight)
    return Graph(indptr, indices, edge_weight, name=graph.name), vertices


@kernel
def _add_sources(indptr: Any, indices: Any, vertices: Any, inside: Any) -> None:
    for vertex in vertices:
        for e in range(indptr[vertex], indptr[vertex + 1]):
            inside[indices[e]] = True


@kernel
def _copy_edges(
    indptr: Any, indices: Any, weights: Any, vertices: Any, place: Any, starts: Any, out: Any, weighed: Any
) -> None:
    for row, vertex in enumerate(vertices):
        begin = indptr[vertex]
        for k in range(starts[row + 1] - starts[row]):
            out[starts[row] + k] = place[indices[begin + k]]
            if weights is not None:
                weighed[starts[row] + k] = weights[begin + k]
