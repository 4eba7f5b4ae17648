"""Focus: the vertices that a training's loss depends on, where they are far fewer than all."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from siafu.base.jit import kernel
from siafu.graph import Graph
from siafu.graph.csr import Csr
from siafu.graph.partition import Partition
from siafu.program.program import Program
from siafu.program.tensor_program import TensorProgram

Ids = NDArray[np.int64]

_MOST = 0.7  # of the vertices: with more of them, the copies that a focus needs are not worth their memory
_NOT_EVERYWHERE = frozenset({"div", "log", "log1p", "pow", "reciprocal", "rsqrt", "sqrt"})
"""Operations that are infinite, or have an infinite slope, at some finite number."""


@dataclass(frozen=True, slots=True, eq=False)
class Focus:
    """Vertices from which a path of at most as many edges as there are gathers leads to a training vertex.

    The training holds and computes their rows alone; no other row has a part in the loss or in a gradient. Rows beyond them are ghosts
    that never come, and are zero: only vertices at the ends of the longest paths read them, and what these gather is used nowhere.

    vertices: [n] ascending
    edges:    in-edges of these vertices; out_edges: edges that start there
    forward_ghosts, backward_ghosts: vertices beyond, at the other ends of these edges
    """

    vertices: Ids
    edges: int
    out_edges: int
    forward_ghosts: int
    backward_ghosts: int

    def partition(self, num_vertices: int) -> Partition:
        """These vertices as the first of two parts."""
        owner = np.ones(num_vertices, np.uint16)
        owner[self.vertices] = 0
        return Partition("focus", 2, owner)


def focus_of(graph: Graph, program: Program, learnt: Tensor, parts: int) -> Focus | None:
    """The focus of a training on the vertices `learnt`, on so many servers; None: all vertices are computed.

    Statistics are over all vertices, learnt rows have one for every vertex, and several servers have ghosts that do come.
    Vertices at the ends of paths gather too little: an operation that may be infinite there would turn the zero of their
    gradients into no number.
    """
    if parts > 1 or any(program.reduces) or program.of_vertices or not _is_finite_everywhere(program):
        return None
    most = round(_MOST * graph.num_vertices)
    inside = np.zeros(graph.num_vertices, np.bool_)
    inside[learnt.numpy()] = True
    count = int(np.count_nonzero(inside))
    for _ in program.gathers:
        if count > most:
            return None
        count += _add_ends(graph.indptr, graph.indices, np.flatnonzero(inside), inside, most - count)
    if count > most:
        return None
    vertices = np.flatnonzero(inside)
    edges, ghosts = _beyond(graph.in_edges, vertices, inside)
    out_edges, back_ghosts = (
        (edges, ghosts) if graph.is_symmetric else _beyond(graph.out_edges, vertices, inside)
    )
    return Focus(vertices, edges, out_edges, ghosts, back_ghosts)


def _is_finite_everywhere(program: Program) -> bool:
    if any(step.edge is not None or step.learnt for group in program.gathers for step in group):
        return False
    every = [
        each
        for phase in program.phases[1:-1]
        for each in (phase.programs.forward, phase.programs.forward_keeping, phase.programs.backward)
    ]
    return not any(_operations(each) & _NOT_EVERYWHERE for each in every if each is not None)


def _operations(program: TensorProgram) -> set[str]:
    return {op.name for op in program.ops}


def _beyond(edges: Csr, vertices: Ids, inside: NDArray[np.bool_]) -> tuple[int, int]:
    """Number of edges of some vertices, and of the vertices at their other ends that are not among them."""
    reached = inside.copy()
    ghosts = _add_ends(edges.indptr, edges.indices, vertices, reached, len(inside))
    return int((edges.indptr[vertices + 1] - edges.indptr[vertices]).sum()), ghosts


@kernel
def _add_ends(indptr: Any, indices: Any, vertices: Any, inside: Any, most: int) -> int:
    """Mark the other ends of the edges of some vertices; the number of new ones. It ends where they are more than `most`."""
    found = 0
    for vertex in vertices:
        for e in range(indptr[vertex], indptr[vertex + 1]):
            if not inside[indices[e]]:
                inside[indices[e]] = True
                found += 1
        if found > most:
            break
    return found
