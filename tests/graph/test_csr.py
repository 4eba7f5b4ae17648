"""CSR arrays against SciPy."""

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.graph import csr
from siafu.graph.csr import Csr


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int]:
    vertices = draw(st.integers(1, 25))
    edges = draw(st.integers(0, 120))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    src, dst = rng.integers(0, vertices, (2, edges))
    weights = rng.random(edges).astype(np.float32) if draw(st.booleans()) else None
    return src, dst, weights, vertices


def dense(edges: Csr) -> np.ndarray:
    vertices = len(edges.indptr) - 1
    data = np.ones(len(edges.indices)) if edges.weights is None else edges.weights
    return sp.csr_matrix((data, edges.indices, edges.indptr), shape=(vertices, vertices)).toarray()


@settings(deadline=None)
@given(edge_lists())
def test_rows_are_destinations_and_ascend(
    case: tuple[np.ndarray, np.ndarray, np.ndarray | None, int],
) -> None:
    src, dst, weights, vertices = case
    edges = csr.from_coo(src, dst, weights, vertices)
    data = np.ones(len(src)) if weights is None else weights
    expected = sp.coo_matrix((data, (dst, src)), shape=(vertices, vertices)).toarray()
    np.testing.assert_allclose(dense(edges), expected, rtol=1e-5, atol=1e-6)
    for lo, hi in zip(edges.indptr[:-1], edges.indptr[1:], strict=True):
        assert (np.diff(edges.indices[lo:hi]) >= 0).all()


@settings(deadline=None)
@given(edge_lists())
def test_the_transpose_is_scipys_and_turning_twice_changes_nothing(
    case: tuple[np.ndarray, np.ndarray, np.ndarray | None, int],
) -> None:
    edges = csr.from_coo(*case)
    turned = csr.transpose(edges)
    np.testing.assert_allclose(dense(turned), dense(edges).T, rtol=1e-5, atol=1e-6)
    again = csr.transpose(turned)
    np.testing.assert_array_equal(again.indices, edges.indices)
    np.testing.assert_array_equal(again.indptr, edges.indptr)


@settings(deadline=None)
@given(edge_lists(), st.booleans())
def test_symmetry_is_found_exactly(
    case: tuple[np.ndarray, np.ndarray, np.ndarray | None, int], mirrored: bool
) -> None:
    src, dst, weights, vertices = case
    if mirrored:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
        weights = None if weights is None else np.concatenate([weights, weights])
    edges = csr.merge_parallel(csr.from_coo(src, dst, weights, vertices))
    matrix = dense(edges)
    # Weights of merged edges may differ in the last bit, as sums taken in another order.
    expected = (matrix == matrix.T).all()
    if csr.is_symmetric(edges):
        assert expected
    elif edges.weights is None:
        assert not expected


@settings(deadline=None)
@given(edge_lists())
def test_merging_keeps_one_edge_a_pair_and_the_sum_of_weights(
    case: tuple[np.ndarray, np.ndarray, np.ndarray | None, int],
) -> None:
    src, dst, weights, vertices = case
    merged = csr.merge_parallel(csr.from_coo(src, dst, weights, vertices))
    pairs = len(set(zip(src.tolist(), dst.tolist(), strict=True)))
    assert len(merged.indices) == pairs == merged.indptr[-1]
    if weights is not None:
        expected = sp.coo_matrix((weights, (dst, src)), shape=(vertices, vertices)).toarray()
        np.testing.assert_allclose(dense(merged), expected, rtol=1e-4)


def test_parallel_edges_keep_the_order_they_came_in() -> None:
    weights = np.array([3, 1, 2], np.float32)
    edges = csr.from_coo(np.array([1, 0, 1]), np.array([0, 0, 0]), weights, 2)
    np.testing.assert_array_equal(edges.weights, [1, 3, 2])


def test_self_loops_are_counted() -> None:
    edges = csr.from_coo(np.array([0, 1, 1, 2]), np.array([0, 1, 1, 0]), None, 3)
    assert csr.count_self_loops(edges.indptr, edges.indices) == 3


def test_ids_are_narrow_until_they_cannot_be() -> None:
    assert csr.id_dtype(2**31 - 1) is np.int32
    assert csr.id_dtype(2**31) is np.int64
