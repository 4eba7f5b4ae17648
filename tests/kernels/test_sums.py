"""The sum gather against SciPy, and the law of its adjoint."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.graph.csr import Csr, from_coo, transpose
from siafu.kernels import (
    block_edges,
    block_size,
    blocking,
    equal_chunks,
    far_block_size,
    gather_sum,
    pack,
    sum_blocks_range,
    sum_far_blocks_range,
    sum_range,
    zero_table,
)
from siafu.kernels.rows import empty_table


@st.composite
def graphs(draw: st.DrawFn) -> Csr:
    """Directed multigraphs with empty rows, self-loops and now and then a hub."""
    vertices = draw(st.integers(1, 40))
    edges = draw(st.integers(0, 200))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    src, dst = rng.integers(0, vertices, edges), rng.integers(0, vertices, edges)
    if draw(st.booleans()):
        dst[: edges // 2] = 0
    weights = rng.random(edges).astype(np.float32) if draw(st.booleans()) else None
    return from_coo(src, dst, weights, vertices)


def scipy_matrix(csr: Csr) -> sp.csr_matrix:
    data = np.ones(len(csr.indices)) if csr.weights is None else csr.weights.astype(np.float64)
    vertices = len(csr.indptr) - 1
    return sp.csr_matrix((data, csr.indices, csr.indptr), shape=(vertices, vertices))


def gathered(csr: Csr, x: np.ndarray, **factors: np.ndarray | None) -> np.ndarray:
    weights = None if csr.weights is None else csr.weights.astype(x.dtype)
    return gather_sum(csr.indptr, csr.indices, weights, pack(x, None, x.dtype), **factors)[:, : x.shape[1]]


@pytest.mark.parametrize("width", range(1, 131))
def test_every_width_gives_scipys_product(width: int) -> None:
    rng = np.random.default_rng(width)
    csr = from_coo(rng.integers(0, 50, 300), rng.integers(0, 45, 300), None, 50)
    x = rng.standard_normal((50, width)).astype(np.float32)
    np.testing.assert_allclose(gathered(csr, x), scipy_matrix(csr) @ x, rtol=1e-5, atol=1e-5)


@settings(deadline=None, max_examples=150)
@given(csr=graphs(), width=st.integers(1, 130), seed=st.integers(0, 2**32))
def test_the_gather_over_the_transpose_is_the_adjoint(csr: Csr, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vertices = len(csr.indptr) - 1
    x, y = rng.standard_normal((2, vertices, width))
    forth = np.vdot(gathered(csr, x), y)
    back = np.vdot(x, gathered(transpose(csr), y))
    np.testing.assert_allclose(forth, back, rtol=1e-10, atol=1e-10)


@settings(deadline=None, max_examples=60)
@given(csr=graphs(), width=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_scalings_and_one_self_loop_a_vertex(csr: Csr, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vertices = len(csr.indptr) - 1
    x = rng.standard_normal((vertices, width))
    own, pre, post = rng.random((3, vertices))
    weights = None if csr.weights is None else csr.weights.astype(np.float64)
    out = gather_sum(csr.indptr, csr.indices, weights, pack(x, pre, np.float64), self_weight=own, scale=post)[
        :, :width
    ]
    matrix = scipy_matrix(csr).tolil()
    matrix.setdiag(own)
    expected = post[:, None] * (matrix.tocsr() @ (pre[:, None] * x))
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("width", [1, 16, 41, 128, 130])
def test_bf16_rows_are_summed_in_float32(width: int) -> None:
    rng = np.random.default_rng(0)
    csr = from_coo(rng.integers(0, 50, 3000), rng.integers(0, 50, 3000), None, 50)
    x = rng.standard_normal((50, width)).astype(np.float32)
    packed = pack(x, None, np.uint16)
    rounded = (packed[:, :width].astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(rounded, x, rtol=2**-8)
    out = gather_sum(csr.indptr, csr.indices, None, packed)[:, :width]
    np.testing.assert_allclose(out, scipy_matrix(csr) @ rounded.astype(np.float64), rtol=1e-4, atol=1e-4)


def test_bf16_rounds_as_torch_does() -> None:
    import torch

    values = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)
    values[0, :5] = [np.inf, -np.inf, 0.0, 1.00390625, 3.4e38]
    expected = torch.from_numpy(values).bfloat16().view(torch.uint16).numpy()
    packed = pack(values, None, np.uint16)[:, :16]
    np.testing.assert_array_equal(packed, expected)


def test_nan_stays_nan_in_bf16() -> None:
    nan = np.array([[0x7FFFFFFF, 0x7FC00000, 0xFFFFFFFF, 0x7F800001]], np.uint32).view(np.float32)
    bits = pack(nan, None, np.uint16)[:, :4]
    assert np.isnan((bits.astype(np.uint32) << 16).view(np.float32)).all()


def test_a_range_of_rows_touches_no_other_row() -> None:
    rng = np.random.default_rng(0)
    csr = from_coo(rng.integers(0, 50, 300), rng.integers(0, 50, 300), None, 50)
    rows = pack(rng.standard_normal((50, 20)).astype(np.float32), None, np.float32)
    whole = gather_sum(csr.indptr, csr.indices, None, rows)
    out = empty_table(50, 20, np.float32)
    out[:] = -7
    sum_range(csr.indptr, csr.indices, None, rows, None, None, out, None, 10, 30)
    np.testing.assert_array_equal(out[10:30], whole[10:30])
    assert (out[:10] == -7).all() and (out[30:] == -7).all()


def test_64_bit_ids_give_the_same_as_32_bit_ones() -> None:
    rng = np.random.default_rng(0)
    csr = from_coo(rng.integers(0, 50, 300), rng.integers(0, 50, 300), None, 50)
    rows = pack(rng.standard_normal((50, 20)).astype(np.float32), None, np.float32)
    narrow = gather_sum(csr.indptr, csr.indices, None, rows)
    wide = gather_sum(csr.indptr, csr.indices.astype(np.int64), None, rows)
    np.testing.assert_array_equal(narrow, wide)


@settings(deadline=None, max_examples=100)
@given(degrees=st.lists(st.integers(0, 30), min_size=1, max_size=60), count=st.integers(1, 20))
def test_chunks_cover_every_row_once_and_share_the_edges(degrees: list[int], count: int) -> None:
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    chunks = equal_chunks(indptr, count)
    covered = [row for first, last in chunks for row in range(first, last)]
    assert covered == list(range(len(degrees)))
    total = sum(degrees) + len(degrees)
    for first, last in chunks:
        cost = sum(degrees[first:last]) + last - first
        assert cost <= total / count + max(degrees) + 2


def test_rows_start_on_cache_lines() -> None:
    for dtype, width in [(np.float32, 41), (np.uint16, 41), (np.float64, 3), (np.uint16, 128)]:
        table = empty_table(9, width, dtype)
        assert table.shape[1] >= width
        assert table.ctypes.data % 64 == 0 and table.strides[0] % 64 == 0


@settings(deadline=None, max_examples=60)
@given(csr=graphs(), size=st.sampled_from([1, 4, 16, 64]), own=st.booleans(), bf16=st.booleans())
@pytest.mark.slow
def test_going_block_by_block_changes_no_bit(csr: Csr, size: int, own: bool, bf16: bool) -> None:
    rng = np.random.default_rng(size)
    vertices = len(csr.indptr) - 1
    x = rng.standard_normal((vertices, 21)).astype(np.float32)
    rows = pack(x, None, np.uint16 if bf16 else np.float32)
    factors = {name: rng.random(vertices, np.float32) if own else None for name in ("self_weight", "scale")}
    plain = gather_sum(csr.indptr, csr.indices, csr.weights, rows, **factors)
    blocks = block_edges(*csr, size, self_loops=not own)
    blocked = gather_sum(csr.indptr, csr.indices, csr.weights, rows, blocks=blocks, **factors)
    np.testing.assert_array_equal(blocked, plain)


@settings(deadline=None, max_examples=80)
@given(
    csr=graphs(),
    size=st.sampled_from([1, 4, 16, 64]),
    kind=st.sampled_from([np.float32, np.float64, np.uint16]),
    width=st.sampled_from([1, 21, 130]),
    own=st.booleans(),
    share=st.sampled_from([None, 0.3]),
    cut=st.floats(0, 1),
)
@pytest.mark.slow
def test_blocks_for_the_shared_cache_change_no_bit(
    csr: Csr, size: int, kind: type, width: int, own: bool, share: float | None, cut: float
) -> None:
    rng = np.random.default_rng(size)
    vertices, number = len(csr.indptr) - 1, np.float64 if kind is np.float64 else np.float32
    rows = pack(rng.standard_normal((vertices, width)).astype(number), None, kind)
    self_weight, scale = (rng.random(vertices).astype(number) if own else None for _ in range(2))
    picked = None if share is None else np.flatnonzero(rng.random(vertices) < share)
    weights = None if csr.weights is None else csr.weights.astype(number)
    blocks = block_edges(csr.indptr, csr.indices, weights, size, picked=picked, self_loops=not own)
    count = vertices if picked is None else len(picked)
    expected, found = (zero_table(vertices, width, number) for _ in range(2))
    for span in ((0, int(cut * count)), (int(cut * count), count)):
        sum_range(csr.indptr, csr.indices, weights, rows, self_weight, scale, expected, picked, *span)
        sum_far_blocks_range(*blocks, rows, self_weight, scale, found, picked, *span)
    np.testing.assert_array_equal(found, expected)


def test_blocks_for_the_shared_cache_are_for_sources_that_exceed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "cache_bytes", lambda level: {2: 1 << 20, 3: 32 << 20}[level])

    def size(vertices: int, edges: int, row_bytes: int) -> int | None:
        return far_block_size(vertices, edges, row_bytes, sources=vertices, pieces=8)

    assert size(2_449_029, 123_718_280, 512) == 1 << 16
    assert size(2_449_029, 123_718_280, 192) == 1 << 16
    assert size(489_806, 24_700_000, 512) == 1 << 14
    assert size(89_250, 899_756, 512) is None  # its rows fit
    assert size(2_449_029, 2_449_029, 512) is None  # none is read again


def test_blocks_are_for_dense_graphs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "near_cache_bytes", lambda: 2 << 20)
    reddit = block_size(232_965, 114_600_000, 512)
    assert reddit == 4096
    assert block_size(232_965, 114_600_000, 256) == 4096
    assert block_size(232_965, 114_600_000, 192) == 8192
    assert block_size(10_000, 1_000_000_000, 2) is None
    assert block_size(9_200_000, 313_900_000, 256) is None
    assert block_size(2_708, 10_556, 64) is None


@settings(deadline=None, max_examples=60)
@given(csr=graphs(), size=st.sampled_from([1, 4, 16]), seed=st.integers(0, 9))
@pytest.mark.slow
def test_blocks_of_some_rows_and_some_sources_are_those_of_the_smaller_matrix(
    csr: Csr, size: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    vertices = len(csr.indptr) - 1
    picked, kept = np.flatnonzero(rng.random(vertices) < 0.5), rng.random(vertices) < 0.5
    x = rng.standard_normal((vertices, 5))
    out = np.full((vertices, 16), -1.0)
    weights = None if csr.weights is None else csr.weights.astype(np.float64)
    blocks = block_edges(csr.indptr, csr.indices, weights, size, picked=picked, kept=kept)
    sum_blocks_range(*blocks, pack(x, None, np.float64), None, None, out, picked, 0, len(picked))
    matrix = scipy_matrix(csr).astype(np.float64) @ (x * kept[:, None])
    np.testing.assert_allclose(out[picked, :5], matrix[picked], atol=1e-12)
    others = np.setdiff1d(np.arange(vertices), picked)
    assert (out[others] == -1).all()


def test_a_row_may_have_more_edges_than_a_block_has_sources() -> None:
    csr = from_coo(np.zeros(70_000, np.int64), np.zeros(70_000, np.int64), None, 3)
    rows = pack(np.ones((3, 1), np.float32), None, np.float32)
    blocks = block_edges(*csr, 1)
    assert gather_sum(csr.indptr, csr.indices, None, rows, blocks=blocks)[0, 0] == 70_000


def test_edges_past_two_to_the_thirty_first_are_found(tmp_path: Path) -> None:
    """The file is as long as it would be, but holds nothing but its last edges."""
    past = 2**31
    indices = np.memmap(tmp_path / "indices", np.int32, "w+", shape=(past + 1000,)).view(np.ndarray)
    indptr = np.array([0, past, past + 400, past + 1000], np.int64)
    rng = np.random.default_rng(0)
    indices[past:] = rng.integers(0, 3, 1000)
    for lo, hi in ((past, past + 400), (past + 400, past + 1000)):
        indices[lo:hi].sort()
    rows = pack(rng.standard_normal((3, 20)), None, np.float64)
    out = empty_table(3, 20, np.float64)
    sum_range(indptr, indices, None, rows, None, None, out, None, 1, 3)
    expected = [rows[indices[lo:hi]].sum(0) for lo, hi in ((past, past + 400), (past + 400, past + 1000))]
    np.testing.assert_allclose(out[1:], expected, rtol=1e-12)
