from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.base.errors import BadInput
from siafu.graph import Graph, StoreWriter, read_store
from siafu.graph.sorting import sort
from siafu.graph.sorting.sort import EdgeSorter, SortedEdges


def sort_to_graph(
    directory: Path,
    src: np.ndarray,
    dst: np.ndarray,
    num_vertices: int,
    weights: np.ndarray | None = None,
    *,
    memory_limit: int = 1 << 20,
    merge_parallel: bool = False,
    block: int = 1000,
) -> tuple[Graph, SortedEdges]:
    sorter = EdgeSorter(
        num_vertices, memory_limit=memory_limit, scratch=directory, weighted=weights is not None
    )
    for start in range(0, len(src), block):
        part = slice(start, start + block)
        sorter.add(src[part], dst[part], None if weights is None else weights[part])
    target = directory / "store"
    with StoreWriter(target, overwrite=True) as store:
        found = sorter.write(store, merge_parallel=merge_parallel)
        store.commit(name="sorted", num_classes=0, symmetric=found.symmetric)
    return read_store(target), found


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "_LEAST_MEMORY", 1)


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    num_vertices = draw(st.sampled_from([1, 2, 3, 7, 255, 256, 257, 5000]))
    count = draw(st.integers(0, 3000))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    skew = draw(st.sampled_from([1, 4]))
    src = (num_vertices * rng.random(count) ** skew).astype(np.int64)
    dst = (num_vertices * rng.random(count) ** skew).astype(np.int32)
    return src, dst, num_vertices


@settings(deadline=None, max_examples=40)
@given(edges=edge_lists(), memory_limit=st.sampled_from([2_000, 50_000, 1 << 24]))
@pytest.mark.slow
def test_sorted_edges_are_those_that_were_added(
    tmp_path_factory: pytest.TempPathFactory,
    edges: tuple[np.ndarray, np.ndarray, int],
    memory_limit: int,
) -> None:
    src, dst, num_vertices = edges
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sort, "_LEAST_MEMORY", 1)
        graph, found = sort_to_graph(
            tmp_path_factory.mktemp("sort"), src, dst, num_vertices, memory_limit=memory_limit
        )
    order = np.lexsort((src, dst))
    assert found.num_edges == len(src)
    assert np.array_equal(graph.indices, src[order])
    assert np.array_equal(np.diff(graph.indptr), np.bincount(dst, minlength=num_vertices))


@settings(deadline=None, max_examples=25)
@given(edges=edge_lists(), memory_limit=st.sampled_from([2_000, 1 << 24]))
def test_merging_adds_weights_up_as_scipy_does(
    tmp_path_factory: pytest.TempPathFactory,
    edges: tuple[np.ndarray, np.ndarray, int],
    memory_limit: int,
) -> None:
    src, dst, num_vertices = edges
    weights = (np.arange(len(src)) % 64).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sort, "_LEAST_MEMORY", 1)
        graph, _ = sort_to_graph(
            tmp_path_factory.mktemp("sort"),
            src,
            dst,
            num_vertices,
            weights,
            memory_limit=memory_limit,
            merge_parallel=True,
        )
    expected = sp.coo_matrix((weights, (dst, src)), shape=(num_vertices, num_vertices)).tocsr()
    assert np.array_equal(graph.indptr, expected.indptr)
    assert np.array_equal(graph.indices, expected.indices)
    assert np.array_equal(graph.edge_weight, expected.data)


@settings(deadline=None, max_examples=30)
@given(edges=edge_lists(), weighted=st.booleans(), dropped=st.booleans())
def test_symmetry_is_found_as_scipy_finds_it(
    tmp_path_factory: pytest.TempPathFactory,
    edges: tuple[np.ndarray, np.ndarray, int],
    weighted: bool,
    dropped: bool,
) -> None:
    one, other, num_vertices = edges
    src, dst = np.concatenate([one, other]), np.concatenate([other, one])
    if dropped:
        src, dst = src[1:], dst[1:]
    weights = np.concatenate([np.arange(len(one)), np.arange(len(one))]).astype(np.float32) + 1
    weights = weights[: len(src)] if weighted else None
    _, found = sort_to_graph(tmp_path_factory.mktemp("sort"), src, dst, num_vertices, weights)
    triples = list(zip(src, dst, np.zeros(len(src)) if weights is None else weights, strict=True))
    assert found.symmetric == (sorted(triples) == sorted((b, a, w) for a, b, w in triples))


def test_parallel_weighted_edges_stay_in_the_order_they_came(tmp_path: Path) -> None:
    src, dst = np.zeros(9000, np.int32), np.ones(9000, np.int32)
    weights = np.arange(9000, dtype=np.float32)
    graph, _ = sort_to_graph(tmp_path, src, dst, 2, weights)
    assert np.array_equal(graph.edge_weight, weights)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("merge_parallel", [False, True])
def test_copies_of_one_edge_may_exceed_memory(tmp_path: Path, merge_parallel: bool) -> None:
    src, dst = np.full(20_000, 3, np.int32), np.full(20_000, 4, np.int32)
    weights = np.ones(20_000, np.float32)
    graph, found = sort_to_graph(
        tmp_path, src, dst, 6, weights, memory_limit=30_000, merge_parallel=merge_parallel
    )
    assert found.num_edges == (1 if merge_parallel else 20_000)
    assert graph.edge_weight is not None
    assert graph.edge_weight.sum() == 20_000
    assert np.flatnonzero(np.diff(graph.indptr)).tolist() == [4]


@pytest.mark.usefixtures("little_memory")
def test_a_hub_row_may_exceed_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    src, dst = rng.permutation(50_000), np.full(50_000, 7)
    graph, _ = sort_to_graph(tmp_path, src, dst, 50_000, memory_limit=60_000)
    assert np.array_equal(graph.indices, np.arange(50_000))
    assert graph.indptr[7] == 0
    assert graph.indptr[8] == 50_000


def test_a_graph_without_edges_or_vertices_is_written(tmp_path: Path) -> None:
    none = np.empty(0, np.int32)
    graph, found = sort_to_graph(tmp_path, none, none, 0)
    assert graph.indptr.tolist() == [0]
    assert found == SortedEdges(0, True, 0)


@pytest.mark.parametrize(("src", "dst"), [(4, 0), (0, 4), (-1, 0), (0, -1)])
def test_an_id_out_of_range_is_refused(tmp_path: Path, src: int, dst: int) -> None:
    sorter = EdgeSorter(4, memory_limit=1 << 20, scratch=tmp_path)
    with pytest.raises(BadInput, match=f"edge {src} to {dst}: with 4 vertices, ids go from 0 to 3"):
        sorter.add(np.array([src]), np.array([dst]))


def test_ids_past_31_bits_are_kept_whole(tmp_path: Path) -> None:
    sorter = EdgeSorter(2**32, memory_limit=1 << 24, scratch=tmp_path)
    sorter.add(np.array([2**32 - 1, 0]), np.array([2**31, 5]))
    parts = list(sorter._parts(merge_parallel=False))
    assert [part.indices.tolist() for part in parts] == [[0], [2**32 - 1]]
    rows = [part.first_row + int(np.argmax(part.counts)) for part in parts]
    assert rows == [5, 2**31]


def test_scratch_files_have_no_name(tmp_path: Path) -> None:
    sorter = EdgeSorter(4, memory_limit=1 << 20, scratch=tmp_path)
    sorter.add(np.zeros(10_000, np.int32), np.zeros(10_000, np.int32))
    assert list(tmp_path.iterdir()) == []
