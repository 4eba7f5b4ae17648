"""The extent of a program on a graph that is there."""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.graph import Graph
from siafu.program.program import Program
from siafu.server.costs.extent import Extent


def extent_of(
    graph: Graph,
    weights: Mapping[str, Tensor],
    program: Program,
    needed: Iterable[Tensor],
    computed: NDArray[np.int64] | None = None,
    *,
    training: bool,
) -> Extent:
    """How much a program's stages go over.

    needed:   the vertices whose rows its last phase computes
    computed: those whose rows the other phases compute; None: all
    """
    mask = np.zeros(graph.num_vertices, np.bool_)
    for ids in needed:
        mask[ids.numpy()] = True
    kind = next((each.dtype for each in weights.values() if each.is_floating_point()), torch.float32)
    return Extent(
        program,
        {name: each.numel() for name, each in weights.items()},
        graph.num_vertices if computed is None else len(computed),
        graph.num_edges if computed is None else int(np.diff(graph.indptr)[computed].sum()),
        int(mask.sum()),
        int(np.diff(graph.indptr)[mask].sum()),
        training,
        kind.itemsize,
        graph.edge_weight is not None,
    )
