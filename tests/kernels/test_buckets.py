"""Gathers as the ordered sum of their buckets: equal to one walk, bit for bit, however rows and sources are cut."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.graph.csr import Csr, from_coo, transpose
from siafu.kernels import (
    LANES,
    AdjointState,
    Attention,
    AttentionState,
    add_bucket,
    attend_adjoint_bucket,
    attend_bucket,
    empty_table,
    finish_attention,
    finish_sums,
    first_edges,
    gather_attention,
    gather_attention_adjoint,
    gather_max,
    gather_max_adjoint,
    gather_sum,
    maximise_bucket,
    pack,
    pick_bucket,
    share_out_bucket,
    start_maxima,
    start_sums,
    zero_table,
)

WIDTH = 24
KINDS = {"fp32": np.float32, "fp64": np.float64, "bf16": np.uint16}


class Cut(NamedTuple):
    """A graph, and bounds of target groups and of partitions of its sources."""

    csr: Csr
    groups: list[int]
    partitions: list[int]
    seed: int

    def over_groups(self) -> Iterator[tuple[int, int, np.ndarray, np.ndarray, np.ndarray | None]]:
        """Each group's rows, and its edges as an array of their own, as a stream from disk would bring them."""
        indptr, indices, weights = self.csr
        for first, last in itertools.pairwise(self.groups):
            lo, hi = int(indptr[first]), int(indptr[last])
            own = None if weights is None else weights[lo:hi]
            yield first, last, indptr[first : last + 1] - lo, indices[lo:hi], own

    def over_partitions(self) -> Iterator[tuple[int, int]]:
        return itertools.pairwise(self.partitions)


def bounds(draw: st.DrawFn, count: int) -> list[int]:
    inner = draw(st.sets(st.integers(1, max(1, count - 1)), max_size=5)) if count > 1 else set()
    return [0, *sorted(inner), count]


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    """Directed multigraphs with empty rows, self-loops and now and then a hub of more edges than one list has."""
    vertices = draw(st.integers(1, 40))
    edges = draw(st.sampled_from([0, 5, 80, 400, 3000]))
    seed = draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, vertices, edges), rng.integers(0, vertices, edges)
    if draw(st.booleans()):
        dst[: edges // 2] = 0
    weights = rng.random(edges).astype(np.float32) if draw(st.booleans()) else None
    return Cut(from_coo(src, dst, weights, vertices), bounds(draw, vertices), bounds(draw, vertices), seed)


def bits(array: np.ndarray) -> Any:
    return array.view(np.uint64 if array.itemsize == 8 else np.uint32)


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(bits(np.ascontiguousarray(found)), bits(np.ascontiguousarray(expected)))


def summed(cut: Cut, rows: np.ndarray, kind: type, self_weight: Any, scale: Any) -> np.ndarray:
    """The sum gather, group by group, with one partition's rows in an array of their own at a time."""
    out = []
    for first, last, indptr, indices, weights in cut.over_groups():
        sums = empty_table(last - first, WIDTH, kind)
        at = first_edges(indptr)
        own_weight = None if self_weight is None else self_weight[first:last]
        start_sums(rows[first:last], own_weight, sums, 0, last - first)
        own = -1 if self_weight is None else first
        for low, high in cut.over_partitions():
            add_bucket(
                indptr, indices, weights, rows[low:high].copy(), low, high, own, at, sums, 0, last - first
            )
        finish_sums(None if scale is None else scale[first:last], sums, 0, last - first)
        np.testing.assert_array_equal(at, indptr[1:])
        out.append(sums)
    return np.concatenate(out)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(cut=cuts(), scaled=st.booleans())
@pytest.mark.slow
def test_a_sum_of_buckets_is_one_walk(kind: str, cut: Cut, scaled: bool) -> None:
    rng = np.random.default_rng(cut.seed)
    vertices, number = len(cut.csr.indptr) - 1, np.float64 if kind == "fp64" else np.float32
    x, own, post = (rng.standard_normal((vertices, n)).astype(number) for n in (WIDTH, 1, 1))
    factors = (own[:, 0].copy(), post[:, 0].copy()) if scaled else (None, None)
    csr = cut.csr._replace(weights=None if cut.csr.weights is None else cut.csr.weights.astype(number))
    rows = pack(x, None, KINDS[kind])
    expected = gather_sum(*csr, rows, self_weight=factors[0], scale=factors[1])
    assert_same(summed(cut._replace(csr=csr), rows, number, *factors), expected)


def test_rows_that_nobody_needs_are_passed_over() -> None:
    csr = from_coo(np.array([0, 1, 2, 2]), np.array([0, 0, 1, 2]), None, 3)
    rows, sums = pack(np.ones((3, WIDTH), np.float32), None, np.float32), empty_table(3, WIDTH, np.float32)
    sums[:] = 0
    at = first_edges(csr.indptr, np.array([0, 2]))
    add_bucket(csr.indptr, csr.indices, None, rows, 0, 3, -1, at, sums, 0, 3)
    assert sums[:, 0].tolist() == [2.0, 0.0, 1.0]


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
@settings(max_examples=20)
@given(cut=cuts())
@pytest.mark.slow
def test_maxima_and_their_ties_are_those_of_one_walk(kind: str, cut: Cut) -> None:
    rng = np.random.default_rng(cut.seed)
    vertices = len(cut.csr.indptr) - 1
    rows = pack(rng.integers(-3, 3, (vertices, WIDTH)).astype(np.float32), None, KINDS[kind])
    expected, expected_ties = gather_max(*cut.csr[:2], rows)
    for first, last, indptr, indices, _ in cut.over_groups():
        out, ties = (empty_table(last - first, WIDTH, np.float32) for _ in range(2))
        start_maxima(indptr, out, ties, 0, last - first)
        at = first_edges(indptr)
        for low, high in cut.over_partitions():
            maximise_bucket(indptr, indices, rows[low:high].copy(), low, high, at, out, ties, 0, last - first)
        assert_same(out, expected[first:last])
        assert_same(ties, expected_ties[first:last])


@settings(max_examples=20)
@given(cut=cuts())
def test_the_adjoint_of_maxima_is_that_of_one_walk(cut: Cut) -> None:
    rng = np.random.default_rng(cut.seed)
    vertices = len(cut.csr.indptr) - 1
    rows = pack(rng.integers(-3, 3, (vertices, WIDTH)).astype(np.float32), None, np.float32)
    maxima, _ = gather_max(*cut.csr[:2], rows)
    shares = pack(rng.standard_normal((vertices, WIDTH)).astype(np.float32), None, np.float32)
    back = cut._replace(csr=transpose(cut.csr))
    expected = gather_max_adjoint(*back.csr[:2], rows, maxima, shares)
    for first, last, indptr, indices, _ in back.over_groups():
        out, own_rows = empty_table(last - first, WIDTH, np.float32), rows[first:last]
        out[:] = 0
        at = first_edges(indptr)
        for low, high in cut.over_partitions():
            share_out_bucket(
                indptr,
                indices,
                own_rows,
                maxima[low:high],
                shares[low:high],
                low,
                high,
                at,
                out,
                0,
                last - first,
            )
        assert_same(out, expected[first:last])


def attended(
    cut: Cut, rows: np.ndarray, source: np.ndarray, target: np.ndarray, how: Attention
) -> list[np.ndarray]:
    """out, log_sum, positive and positive_share of all rows."""
    parts = []
    vertices, columns, kind = len(rows), rows.shape[1], source.dtype
    for first, last, indptr, indices, _ in cut.over_groups():
        count = last - first
        state = AttentionState.first(indptr, how.heads, kind)
        out, positive = (zero_table(count, columns, kind) for _ in range(2))
        log_sum, share = (np.zeros((count, how.heads), kind) for _ in range(2))
        walks = [(first, last, True), *((*span, False) for span in cut.over_partitions())]
        for low, high, own_first in walks:
            attend_bucket(
                indptr,
                indices,
                rows[low:high].copy(),
                low,
                high,
                first,
                own_first,
                source,
                target[first:last],
                *how.arguments,
                np.arange(vertices),
                *state,
                out,
                positive,
                share,
                0,
                count,
            )
        finish_attention(how.heads, how.head_columns, *state[2:], out, log_sum, positive, share, 0, count)
        assert (state.done == -1).all() or not len(indices)
        parts.append((out, log_sum, positive, share))
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


@pytest.mark.parametrize("kind", ["fp32", "fp64"])
@settings(max_examples=20)
@given(cut=cuts(), self_loops=st.booleans(), dropout=st.sampled_from([0.0, 0.4]))
@pytest.mark.slow
def test_attention_by_buckets_is_one_walk(kind: str, cut: Cut, self_loops: bool, dropout: float) -> None:
    rng = np.random.default_rng(cut.seed)
    vertices, heads = len(cut.csr.indptr) - 1, 3
    how = Attention(heads, WIDTH // heads, 0.2, self_loops, dropout, seed=5)
    rows = pack(rng.standard_normal((vertices, WIDTH)).astype(KINDS[kind]), None, KINDS[kind])
    source, target = (3 * rng.standard_normal((vertices, heads)).astype(KINDS[kind]) for _ in range(2))
    expected = gather_attention(*cut.csr[:2], rows, source, target, how, adjoint_follows=True)
    for found, one_walk in zip(attended(cut, rows, source, target, how), expected, strict=True):
        assert one_walk is not None
        assert_same(found[:, :WIDTH], one_walk[:, :WIDTH])


@pytest.mark.parametrize("kind", ["fp32", "fp64"])
@settings(max_examples=20)
@given(
    cut=cuts(),
    self_loops=st.booleans(),
    dropout=st.sampled_from([0.0, 0.4]),
    heads=st.sampled_from([3, LANES]),
)
def test_the_adjoint_of_attention_by_buckets_is_one_walk(
    kind: str, cut: Cut, self_loops: bool, dropout: float, heads: int
) -> None:
    rng = np.random.default_rng(cut.seed)
    vertices, width, number = len(cut.csr.indptr) - 1, heads * LANES, KINDS[kind]
    how = Attention(heads, LANES, 0.2, self_loops, dropout, seed=5)
    rows, gradient = (
        pack(rng.standard_normal((vertices, width)).astype(number), None, number) for _ in range(2)
    )
    source = rng.standard_normal((vertices, heads)).astype(number)
    targets = rng.standard_normal((vertices, 3 * heads)).astype(number)
    targets[:, heads : 2 * heads] += 5
    back = cut._replace(csr=transpose(cut.csr))
    expected, expected_source = gather_attention_adjoint(*back.csr[:2], rows, source, targets, gradient, how)
    for first, last, indptr, indices, _ in back.over_groups():
        count = last - first
        state = AdjointState.first(indptr, heads, number)
        out, of_source = zero_table(count, width, number), np.zeros((count, heads), number)
        for low, high, own_first in [
            (first, last, True),
            *((*span, False) for span in back.over_partitions()),
        ]:
            attend_adjoint_bucket(
                indptr,
                indices,
                gradient[low:high].copy(),
                targets[low:high].copy(),
                low,
                high,
                first,
                own_first,
                rows[first:last],
                source[first:last],
                *how.arguments,
                np.arange(vertices),
                *state,
                out,
                of_source,
                0,
                count,
            )
        assert_same(out[:, :width], expected[first:last, :width])
        assert_same(of_source, expected_source[first:last])


@settings(max_examples=20)
@given(cut=cuts())
def test_rows_for_an_edge_function_are_picked_partition_by_partition(cut: Cut) -> None:
    rng = np.random.default_rng(cut.seed)
    rows = rng.standard_normal((len(cut.csr.indptr) - 1, WIDTH)).astype(np.float32)
    ids = cut.csr.indices.astype(np.int64)
    out = np.full((len(ids), WIDTH), np.nan, np.float32)
    for low, high in cut.over_partitions():
        pick_bucket(ids, rows[low:high].copy(), low, high, out)
    np.testing.assert_array_equal(out, rows[ids])
