"""How many pairs of a vertex and a type of its edges there are: gathers by type from disk have a sum for each."""

from weakref import WeakKeyDictionary

from siafu.graph import Graph
from siafu.kernels import run_counts
from siafu.server.memory.server_part import ServerPart

_counted: WeakKeyDictionary[Graph, tuple[int, int]] = WeakKeyDictionary()


def type_counts(graph: Graph, part: ServerPart) -> tuple[int, int]:
    """Of a server's vertices with the types of their in-edges, and of their out-edges.

    A part of a graph is taken to have a share of them that its edges have of all.
    """
    if graph.edge_type is None:
        return 0, 0
    if graph not in _counted:
        _counted[graph] = run_counts(graph.indptr, graph.indices, graph.edge_type)
    (of_in, of_out), edges = _counted[graph], max(1, graph.num_edges)
    return round(of_in * part.edges / edges), round(of_out * part.out_edges / edges)
