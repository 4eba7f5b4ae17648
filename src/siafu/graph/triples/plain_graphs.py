"""Plain graphs as triples: every edge is a fact, of one relation or of its type."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from siafu.base.dataset_names import refuse_unknown_name
from siafu.base.errors import BadInput
from siafu.graph.graph import Graph
from siafu.graph.links import draw_bits
from siafu.graph.stores.store import is_store
from siafu.graph.triples.triple_store import is_triple_store, read_triples
from siafu.graph.triples.triples import Triples

HOLDOUT = 0.05
"""Share of a plain graph's linked pairs that validates, and as much again that tests."""

_STREAM = 3  # of draws, beside those of `siafu.graph.links`


def triples_at(place: str | Path, *, verify: bool = True) -> Triples:
    """Triples of a store of triples; or of a plain graph, by its store's path or by its name."""
    path = Path(place)
    if is_triple_store(path):
        return read_triples(path, verify=verify)
    if path.exists() and not is_store(path):
        return read_triples(path, verify=verify)  # which says what is wrong with it
    from siafu.graph.datasets import load  # which knows generators and downloads

    refuse_unknown_name(str(place))
    return triples_of(load(str(place), verify=verify))


def triples_of(graph: Graph, *, holdout: float = HOLDOUT, seed: int = 0) -> Triples:
    """The edges of a graph as triples: source, relation, target. Without types of edges there is one relation.

    holdout: share of the pairs of linked vertices whose edges validate, and as much again that test. Edges of one pair stay
             together, in both directions: no held-out link is seen in training the other way round.
    """
    if not 0 <= holdout < 0.5:
        raise BadInput(f"holdout is {holdout}: give a share from 0 to below 0.5")
    rows = _rows_of(graph)
    part = _parts(rows, graph.num_vertices, holdout, seed)
    train, valid, test = (rows[part == each] for each in range(3))
    if len(train) == 0:
        raise BadInput(f"graph {graph.name!r} has no edges to learn from")
    relations = 1 if graph.edge_type is None else 1 + int(graph.edge_type.max(initial=0))
    return Triples(
        train,
        valid,
        test,
        graph.num_vertices,
        relations,
        ids=graph.ids,
        name=graph.name,
        source=graph.source if (holdout, seed) == (HOLDOUT, 0) else None,
    )


def _rows_of(graph: Graph) -> NDArray[np.signedinteger]:
    """[E, 3] source, relation and target of every edge; none twice."""
    dtype = np.int32 if graph.num_vertices < 2**31 else np.int64
    rows = np.zeros((graph.num_edges, 3), dtype)
    rows[:, 0] = graph.indices
    rows[:, 2] = np.repeat(np.arange(graph.num_vertices, dtype=dtype), np.diff(graph.indptr))
    if graph.edge_type is not None:
        rows[:, 1] = graph.edge_type
        return np.unique(rows, axis=0)
    again = (rows[1:] == rows[:-1]).all(axis=1)  # sources ascend within a row
    return np.delete(rows, 1 + np.flatnonzero(again), axis=0) if again.any() else rows


def _parts(rows: NDArray[np.signedinteger], vertices: int, holdout: float, seed: int) -> NDArray[np.int8]:
    """[E] 0 for edges to learn from, 1 for those that validate, 2 for those that test: a draw for each pair of vertices."""
    low = np.minimum(rows[:, 0], rows[:, 2]).astype(np.int64)
    drawn = draw_bits(seed, _STREAM, low * vertices + np.maximum(rows[:, 0], rows[:, 2]))
    share = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
    part = np.zeros(len(rows), np.int8)
    part[share < 2 * holdout] = 2
    part[share < holdout] = 1
    return part
