"""Vectors of entities as features of a graph's vertices."""

from typing import Any

import numpy as np

from siafu.base.errors import BadInput
from siafu.embedding.questions.answers import Answers
from siafu.graph import Graph
from siafu.graph.bf16 import widened

_BLOCK = 1 << 16


def with_vectors(graph: Graph, answers: Answers, *, alone: bool = False) -> tuple[Graph, int]:
    """The graph with each vertex's vector behind its features, and how many vertices have one; the others have zeros.

    Vertices are those entities that have their names. alone: the vectors take the place of the features
    """
    names = np.arange(graph.num_vertices) if graph.ids is None else graph.ids
    places = answers.entities.places(names)
    found = int((places >= 0).sum())
    if found == 0:
        raise BadInput(
            f"no vertex of {graph.name} is an entity of these embeddings: their names differ, such as "
            f"{_text(names[0])!r} and {answers.entities.name(0)!r}"
        )
    own = None if alone or graph.x is None else graph.x
    before = 0 if own is None else own.shape[1]
    x = np.zeros((graph.num_vertices, before + answers.embeddings.dim), np.float32)
    for first in range(0, graph.num_vertices, _BLOCK):
        part = slice(first, min(first + _BLOCK, graph.num_vertices))
        if own is not None:
            x[part, :before] = widened(own[part])
        known = first + np.flatnonzero(places[part] >= 0)
        x[known, before:] = answers.embeddings.rows(places[known])
    return graph.replace(x=x, source=None), found


def _text(name: Any) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
