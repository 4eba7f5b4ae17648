from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.graph import StoreWriter, read_store
from siafu.graph.importing import relabel
from siafu.graph.importing.readers.blocks import Names
from siafu.graph.importing.relabel import Relabeller
from tests.graph.imports import edge_set, imported


@settings(deadline=None, max_examples=30)
@given(
    pairs=st.lists(
        st.tuples(*2 * [st.integers(-(2**62), 2**62) | st.integers(0, 40)]), min_size=1, max_size=300
    ),
    memory=st.sampled_from([1 << 10, 1 << 24]),
)
def test_any_integers_are_numbered_in_ascending_order(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], memory: int
) -> None:
    directory = tmp_path_factory.mktemp("relabel")
    edges = np.array(pairs, np.int64)
    relabeller = Relabeller(directory, memory=memory, named=False, weighted=True)
    for block in np.array_split(np.arange(len(edges)), 4):
        relabeller.add_edges(edges[block, 0], edges[block, 1], block.astype(np.float32))
    with StoreWriter(directory / "store") as store:
        count = relabeller.number(store)
        store.array("indptr", np.int64).append(np.zeros(count + 1))
        store.array("indices", np.int32)
        store.commit(name="ids", num_classes=0, symmetric=True)
    ids = read_store(directory / "store").ids
    assert ids is not None
    assert np.array_equal(ids, np.unique(edges))
    found = {
        int(w): (ids[s], ids[d])
        for src, dst, ws in relabeller.edges()
        for s, d, w in zip(src, dst, ws, strict=True)
    }
    assert [found[e] for e in range(len(edges))] == pairs


@pytest.mark.slow
def test_many_names_are_numbered_as_they_first_appear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relabel, "_SEEN", 64)
    monkeypatch.setattr(relabel, "_NAMES_WINDOW", 500)
    rng = np.random.default_rng(0)
    pairs = [(f"v{a}", f"v{b}") for a, b in (rng.random((20_000, 2)) ** 3 * 5000).astype(int)]
    source = tmp_path / "edges.tsv"
    source.write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    graph = imported(source)
    assert graph.ids is not None
    assert graph.ids.tolist() == [
        name.encode() for name in dict.fromkeys(end for pair in pairs for end in pair)
    ]
    assert edge_set(graph) == sorted((a.encode(), b.encode()) for a, b in pairs)


@pytest.mark.parametrize("remembered", [1, 1 << 10])
def test_names_whose_hashes_collide_get_another_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered: int
) -> None:
    seeds: list[int] = []
    real = relabel.hash_names

    def poor_at_first(names: Names, seed: int) -> tuple[np.ndarray, np.ndarray]:
        seeds.append(seed)
        keys, checks = real(names, seed)
        return (keys if seed else keys % np.uint64(2), checks)

    monkeypatch.setattr(relabel, "_SEEN", remembered)
    monkeypatch.setattr(relabel, "hash_names", poor_at_first)
    source = tmp_path / "edges.csv"
    source.write_text("a,b\nc,d\na,c\n")
    assert edge_set(imported(source, header=False)) == [(b"a", b"b"), (b"a", b"c"), (b"c", b"d")]
    assert seeds == [0, 1]


def test_parallel_edges_keep_their_order_through_relabelling(tmp_path: Path) -> None:
    source = tmp_path / "edges.csv"
    source.write_text("a,b,1\na,b,2\nb,a,9\na,b,3\n")
    weights = imported(source, header=False, weight="2").edge_weight
    assert weights is not None
    assert weights.tolist() == [9, 1, 2, 3]
