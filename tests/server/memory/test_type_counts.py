"""Pairs of a vertex and a type of its edges are counted as NumPy counts them."""

from dataclasses import replace

import numpy as np

from siafu.kernels import run_counts, type_runs, typed_edges
from siafu.server.memory.server_part import whole_part
from siafu.server.memory.type_counts import type_counts
from tests.server.phases import some_graph


def test_pairs_are_those_that_numpy_finds() -> None:
    plain = some_graph()
    types = np.random.default_rng(0).integers(0, 130, plain.num_edges, dtype=np.int32)
    graph = replace(plain, edge_type=types)
    targets = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    expected = tuple(len(np.unique([ends, types], axis=1).T) for ends in (targets, graph.indices))
    assert run_counts(graph.indptr, graph.indices, types) == expected
    assert type_counts(graph, whole_part(graph)) == expected
    runs = type_runs(typed_edges(graph.indptr, graph.indices, None, types, None))
    assert len(runs.types) == expected[0]
    assert runs.edges[-1] == graph.num_edges


def test_edges_without_types_have_none() -> None:
    graph = some_graph()
    assert type_counts(graph, whole_part(graph)) == (0, 0)
