"""Rows with very many edges, summed in groups: SciPy's product, the same bits however they are walked, and better sums."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.base import threads
from siafu.graph.csr import Csr, from_coo
from siafu.kernels import (
    HubSum,
    block_edges,
    cut_hubs,
    empty_table,
    gather_sum,
    hub_rows,
    hubs,
    pack,
    start_sums,
    sum_range,
)

VERTICES = 60


@pytest.fixture(autouse=True, scope="module")
def _small_hubs() -> Iterator[None]:
    """Rows with a few edges are hubs, in groups of fewer, and threads share them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hubs, "HUB_EDGES", 12)
        patch.setattr(hubs, "GROUP_EDGES", 5)
        patch.setattr(hubs, "SHARED_EDGES", 40)
        patch.setattr(hubs, "thread_count", lambda: 3)
        patch.setattr(threads, "thread_count", lambda: 3)
        yield


def some_edges(seed: int, *, weighted: bool) -> Csr:
    """A multigraph in which about a third of the rows are hubs, some with many parallel edges and self-loops."""
    rng = np.random.default_rng(seed)
    src = (rng.random(900) ** 2 * VERTICES).astype(np.int64)
    dst = (rng.random(900) ** 3 * VERTICES).astype(np.int64)
    src[:40], dst[:40] = 9, 2  # more parallel edges than a group has
    src[40:60], dst[40:60] = 2, 2
    return from_coo(src, dst, rng.random(900) if weighted else None, VERTICES)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), weighted=st.booleans(), own=st.booleans(), width=st.integers(1, 40))
@pytest.mark.slow
def test_sums_of_hubs_are_scipys(seed: int, weighted: bool, own: bool, width: int) -> None:
    csr = some_edges(seed, weighted=weighted)
    rng = np.random.default_rng(seed)
    x, self_weight, scale = rng.standard_normal((VERTICES, width)), *rng.random((2, VERTICES))
    assert len(hub_rows(csr.indptr)) > 5
    weights = None if csr.weights is None else csr.weights.astype(np.float64)
    found = gather_sum(
        csr.indptr,
        csr.indices,
        weights,
        pack(x, None, np.float64),
        self_weight=self_weight if own else None,
        scale=scale,
    )
    data = np.ones(len(csr.indices)) if weights is None else weights
    matrix = sp.csr_matrix((data, csr.indices, csr.indptr), shape=(VERTICES, VERTICES)).tolil()
    if own:
        matrix.setdiag(self_weight)
    np.testing.assert_allclose(
        found[:, :width], scale[:, None] * (matrix.tocsr() @ x), rtol=1e-12, atol=1e-12
    )


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    weighted=st.booleans(),
    own=st.booleans(),
    bounds=st.sets(st.integers(1, VERTICES - 1), max_size=4),
)
@pytest.mark.slow
def test_bits_are_those_of_blocks_of_buckets_and_of_fewer_edges(
    seed: int, weighted: bool, own: bool, bounds: set[int]
) -> None:
    csr = some_edges(seed, weighted=weighted)
    rng = np.random.default_rng(seed)
    x, self_weight = rng.standard_normal((VERTICES, 24)).astype(np.float32), rng.random(VERTICES)
    factor = self_weight.astype(np.float32) if own else None
    counts = rng.random(VERTICES) < 0.6
    x[~counts] = 0
    rows = pack(x, None, np.float32)
    weights = None if csr.weights is None else csr.weights.astype(np.float32)
    expected = gather_sum(csr.indptr, csr.indices, weights, rows, self_weight=factor)
    blocks = block_edges(csr.indptr, csr.indices, weights, 16, self_loops=not own)
    blocked = gather_sum(csr.indptr, csr.indices, weights, rows, self_weight=factor, blocks=blocks)
    np.testing.assert_array_equal(blocked, expected)

    keep = counts[csr.indices]
    left_indptr = np.concatenate([[0], np.cumsum(keep)])[csr.indptr]
    left = left_indptr, csr.indices[keep]
    found = empty_table(VERTICES, 24, np.float32)
    start_sums(rows, factor, found, 0, VERTICES)
    long_rows = hub_rows(csr.indptr)
    for hub in cut_hubs(long_rows, (csr.indptr, csr.indices), left, self_loops=not own):
        begun = HubSum(hub, left[1], None if weights is None else weights[keep], found, hub.row)
        ends = [0, *sorted(bounds), VERTICES]
        for low, high in itertools.pairwise(ends):
            begun.add(rows[low:high], low, high)
        begun.end()
    np.testing.assert_array_equal(found[long_rows], expected[long_rows])


def test_a_long_sum_is_closer_to_the_true_one_than_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "HUB_EDGES", 1 << 16)
    monkeypatch.setattr(hubs, "GROUP_EDGES", 1 << 11)
    sources, edges = 5000, 3_000_000
    rng = np.random.default_rng(1)
    x = rng.random((sources, 8), np.float32)
    indices = np.sort(rng.integers(0, sources, edges, dtype=np.int32))
    indptr = np.concatenate([[0, edges], np.full(sources - 1, edges)])
    true = np.bincount(indices, minlength=sources) @ x.astype(np.float64)
    rows, walked = pack(x, None, np.float32), empty_table(sources, 8, np.float32)
    sum_range(indptr, indices, None, rows, None, None, walked, None, 0, 1)
    summed = gather_sum(indptr, indices, None, rows)
    assert np.abs(walked[0, :8] / true - 1).max() > 1e-5
    assert np.abs(summed[0, :8] / true - 1).max() < 1e-6
