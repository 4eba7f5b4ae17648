"""Sources of groups of rows, counted by walking the edges either way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.server.gathers.on_disk import source_counts
from siafu.server.gathers.on_disk.source_counts import SourceCounts, count_sources, count_targets
from siafu.server.memory.disk_share import equal_ranges
from siafu.server.memory.group_counts import group_counts
from siafu.server.memory.server_part import whole_part
from tests.server.phases import some_graph


@given(groups=st.integers(1, 7), seed=st.integers(0, 100), some=st.booleans(), at_once=st.integers(1, 60))
def test_the_most_that_a_group_has(groups: int, seed: int, some: bool, at_once: int) -> None:
    graph = some_graph(seed=seed, edges=90)
    picked = np.flatnonzero(np.random.default_rng(seed).random(graph.num_vertices) < 0.5) if some else None
    ranges = equal_ranges(graph.num_vertices, groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_counts, "_EDGES_AT_ONCE", at_once)
        found = count_sources(graph.indptr, graph.indices, picked, ranges, graph.num_vertices)
        back = count_targets(graph.indptr, graph.indices, ranges)
    sources = []
    for first, last in ranges:
        rows = range(first, last) if picked is None else picked[(picked >= first) & (picked < last)]
        read = [graph.indices[graph.indptr[row] : graph.indptr[row + 1]] for row in rows]
        sources.append(len({*range(first, last), *np.concatenate([[], *read]).tolist()}))
    edges = max(int(graph.indptr[last] - graph.indptr[first]) for first, last in ranges)
    assert found == SourceCounts(max(sources), edges)
    turned = graph.out_edges
    assert back == count_sources(turned.indptr, turned.indices, None, ranges, graph.num_vertices)


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_list_counts_both_ways(symmetric: bool) -> None:
    graph = some_graph(symmetric=symmetric)
    part, ranges = whole_part(graph), equal_ranges(graph.num_vertices, 3)
    for back, edges in ((False, graph.in_edges), (True, graph.out_edges)):
        counted = count_sources(*edges[:2], None, ranges, graph.num_vertices)
        assert group_counts(graph, part, 3, back=back) == counted
