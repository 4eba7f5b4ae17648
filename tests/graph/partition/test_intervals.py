"""Intervals cover every vertex once and share the work evenly."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.graph.partition import auto_interval_count, intervals
from siafu.graph.partition.intervals import default_vertex_cost, vertex_costs

degrees = st.lists(st.integers(0, 50), min_size=0, max_size=60)


def pointers(counts: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.array(counts, np.int64))])


@settings(deadline=None)
@given(degrees, st.integers(1, 80))
def test_intervals_follow_each_other_over_all_vertices(counts: list[int], count: int) -> None:
    ranges = intervals(pointers(counts), count)
    assert len(ranges) == count
    assert ranges[0][0] == 0
    assert ranges[-1][1] == len(counts)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))


@settings(deadline=None)
@given(degrees, st.integers(1, 80), st.integers(0, 20))
def test_no_interval_is_empty_while_there_are_vertices_enough(
    counts: list[int], count: int, vertex_cost: int
) -> None:
    sizes = [last - first for first, last in intervals(pointers(counts), count, vertex_cost=vertex_cost)]
    assert sum(size > 0 for size in sizes) == min(count, len(counts))


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 60), st.integers(1, 20))
def test_no_interval_costs_more_than_the_mean_and_the_heaviest_vertex(
    counts: list[int], count: int, vertex_cost: int
) -> None:
    indptr = pointers(counts)
    costs = vertex_costs(indptr, vertex_cost)
    for first, last in intervals(indptr, count, vertex_cost=vertex_cost):
        assert costs[first:last].sum() <= costs.sum() / count + costs.max() + 1e-6


def test_a_hub_gets_an_interval_with_fewer_vertices() -> None:
    indptr = pointers([90] + [10] * 9)
    assert intervals(indptr, 2, vertex_cost=0) == [(0, 1), (1, 10)]
    assert intervals(indptr, 2, vertex_cost=1000) == [(0, 5), (5, 10)]


def test_a_slice_of_a_greater_csr_is_divided_alike() -> None:
    indptr = pointers([3, 1, 4, 1, 5, 9, 2, 6])
    assert intervals(indptr + 1000, 3) == intervals(indptr, 3)


def test_vertices_weigh_as_much_as_edges_unless_told_otherwise() -> None:
    assert default_vertex_cost(100, 1000) == 10
    assert default_vertex_cost(100, 0) == 1
    assert default_vertex_cost(0, 0) == 1


@pytest.mark.parametrize(
    ("vertices", "edges", "threads", "expected"),
    [
        (0, 0, 2, 1),
        (2_708, 10_556, 2, 1),
        (110_486, 2_336_112, 64, 37),
        (232_965, 114_600_000, 2, 8),
        (3, 10_000_000, 8, 3),
    ],
)
def test_intervals_are_as_many_as_are_worth_having(
    vertices: int, edges: int, threads: int, expected: int
) -> None:
    assert auto_interval_count(vertices, edges, threads) == expected


def test_wide_features_make_more_intervals_worth_having() -> None:
    assert auto_interval_count(19_717, 88_648, 2) == 1
    assert auto_interval_count(19_717, 88_648, 2, numbers=135.0) == 4
    assert auto_interval_count(2_708, 10_556, 2, numbers=67.0) == 1
