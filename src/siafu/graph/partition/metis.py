"""The METIS partition: the fewest cut edges of all methods, for graphs that fit into memory several times over.

G. Karypis, V. Kumar: A Fast and High Quality Multilevel Scheme for Partitioning Irregular Graphs, SIAM J. Sci. Comput.
20 (1998).
"""

from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.hardware.memory import machine_bytes, own_bytes, rounded_up
from siafu.base.jit import kernel
from siafu.graph import csr
from siafu.graph.csr import Csr, IntArray
from siafu.graph.graph import Graph
from siafu.graph.partition.intervals import vertex_costs
from siafu.graph.partition.partition import Owners, owner_dtype
from siafu.graph.progress import ProgressCallback, silent

Ids = NDArray[np.int64]

# Measured at 4 to 100 edges a vertex, rounded up: METIS keeps coarser and coarser copies, in 64-bit integers.
_BYTES_PER_ENTRY = 80
_BYTES_PER_VERTEX = 500
_SEEDS = (1 << 31) - 1  # METIS's own go from 1 to this: 0 and 1 are the same to it


def metis_installed() -> bool:
    return find_spec("pymetis") is not None


def metis_memory(graph: Graph) -> int:
    """Upper estimate of the bytes that METIS takes for `graph`, besides the graph."""
    entries = graph.num_edges if graph.is_symmetric else 2 * graph.num_edges
    return _BYTES_PER_ENTRY * entries + _BYTES_PER_VERTEX * graph.num_vertices


def memory_for_metis(memory: int | None = None) -> int:
    """Bytes that METIS may take: half of the machine's memory. It ends the process when it finds no more.

    memory: bytes that the process may take in all, in place of that half
    """
    return machine_bytes() // 2 if memory is None else max(0, memory - own_bytes())


def metis_refused(graph: Graph, memory: int) -> BadInput:
    """Why METIS cannot run in so much memory."""
    least = rounded_up(own_bytes() + metis_memory(graph))
    return BadInput(
        f"METIS would take about {metis_memory(graph) / 1e9:.1f} GB for {graph.num_edges:,} edges, and memory is "
        f"{memory / 1e9:.1f} GB: give at least {least}, or choose --method stream"
    )


def metis_owners(graph: Graph, parts: int, seed: int, progress: ProgressCallback = silent) -> Owners:
    """Servers alike in vertices and edges together, with few edges between them."""
    if not metis_installed():
        raise BadInput("METIS is not installed: pip install 'siafu[partition]', or choose --method stream")
    needed, allowed = metis_memory(graph), memory_for_metis()
    if needed > allowed:
        raise BadInput(
            f"METIS would take about {needed / 1e9:.1f} GB for {graph.num_edges:,} edges, and half of this machine's memory is {allowed / 1e9:.1f} GB: choose --method stream"
        )
    import pymetis

    progress("preparing edges for METIS", 0, 0)
    starts, others = undirected(graph)
    if len(others) == 0:  # nothing to cut, and METIS takes no graph without edges
        return (np.arange(graph.num_vertices) % parts).astype(owner_dtype(parts))
    progress("running METIS over edges", 0, 0)
    found = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(starts, others),
        vweights=vertex_costs(graph.indptr),
        options=pymetis.Options(seed=1 + seed % _SEEDS),
    )
    return np.asarray(found.vertex_part).astype(owner_dtype(parts))


def undirected(graph: Graph) -> tuple[Ids, Ids]:
    """The graph as METIS wants it: each link between two vertices once in the row of either, no self-loops.

    Parallel and opposite edges become one link: a ghost's row crosses the network once, however many edges read it.
    """
    there = Csr(graph.indptr, graph.indices, None)
    back = there if graph.is_symmetric else csr.transpose(there)
    starts = np.zeros(graph.num_vertices + 1, np.int64)
    others = np.empty(graph.num_edges if back is there else 2 * graph.num_edges, np.int64)
    count = _union(there.indptr, there.indices, back.indptr, back.indices, starts, others)
    return starts, others[:count]


@kernel
def _union(
    indptr: Ids, indices: IntArray, other_indptr: Ids, other_indices: IntArray, starts: Ids, merged: Ids
) -> int:
    """Row by row, the columns that either has, ascending, each once, without the row's own; how many in all."""
    at = 0
    for i in range(len(indptr) - 1):
        a, b = indptr[i], other_indptr[i]
        previous = -1
        while a < indptr[i + 1] or b < other_indptr[i + 1]:
            if b == other_indptr[i + 1] or (a < indptr[i + 1] and indices[a] <= other_indices[b]):
                j = indices[a]
                a += 1
            else:
                j = other_indices[b]
                b += 1
            if j != previous and j != i:
                merged[at] = j
                at += 1
            previous = j
        starts[i + 1] = at
    return at
