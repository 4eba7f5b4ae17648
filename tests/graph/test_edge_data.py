"""Features and types stay with their edges: sorted, both ways, turned round, in stores, layouts and servers' parts."""

from pathlib import Path

import numpy as np
import pytest
import torch

import siafu
from siafu.base.errors import BadInput, StoreError
from siafu.graph.partition import Partition, edge_numbers, local_graph

SRC, DST = np.random.default_rng(0).integers(0, 50, (2, 400))
ATTR = np.arange(800, dtype=np.float32).reshape(400, 2)
TYPE = np.arange(400) % 7
Edge = tuple[int, int, float, int]


def listed(graph: siafu.Graph, numbers: object = None) -> list[Edge]:
    assert graph.edge_attr is not None
    assert graph.edge_type is not None
    targets = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    rows = zip(graph.indices, targets, graph.edge_attr[:, 0], graph.edge_type, strict=True)
    return sorted((int(s), int(t), float(a), int(k)) for s, t, a, k in rows)


def given(src: object = SRC, dst: object = DST) -> list[Edge]:
    rows = zip(src, dst, ATTR[:, 0], TYPE, strict=True)  # type: ignore[call-overload]
    return sorted((int(s), int(t), float(a), int(k)) for s, t, a, k in rows)


@pytest.fixture
def graph() -> siafu.Graph:
    return siafu.Graph.from_edges(SRC, DST, num_vertices=50, edge_attr=ATTR, edge_type=TYPE)


def test_they_stay_with_their_edges(graph: siafu.Graph) -> None:
    assert listed(graph) == given()
    both = siafu.Graph.from_edges(SRC, DST, num_vertices=50, edge_attr=ATTR, edge_type=TYPE, undirected=True)
    forth = SRC != DST
    assert len(listed(both)) == 400 + forth.sum()
    assert set(listed(both)) == set(given()) | set(given(DST, SRC))


def test_rows_of_a_csr_may_come_unsorted(graph: siafu.Graph) -> None:
    backwards = np.concatenate(
        [np.arange(a, b)[::-1] for a, b in zip(graph.indptr, graph.indptr[1:], strict=False)]
    )
    assert graph.edge_attr is not None
    assert graph.edge_type is not None
    again = siafu.Graph.from_csr(
        graph.indptr,
        graph.indices[backwards],
        edge_attr=graph.edge_attr[backwards],
        edge_type=graph.edge_type[backwards],
    )
    assert listed(again) == given()


def test_out_edges_know_their_numbers(graph: siafu.Graph) -> None:
    targets = np.repeat(np.arange(50), np.diff(graph.indptr))
    out = graph.out_edges
    assert np.array_equal(graph.indices[graph.out_numbers], np.repeat(np.arange(50), np.diff(out.indptr)))
    assert np.array_equal(targets[graph.out_numbers], out.indices)


def test_servers_find_the_rows_of_their_edges(graph: siafu.Graph) -> None:
    partition = Partition("mine", 3, (np.arange(50) * 7 % 3).astype(np.uint16))
    targets = np.repeat(np.arange(50), np.diff(graph.indptr))
    for server in range(3):
        local = local_graph(graph, partition, server)
        for direction, table in (("forward", local.forward), ("backward", local.backward)):
            numbers = edge_numbers(graph, local, direction)
            assert numbers is not None
            ids = np.concatenate([local.vertices, table.ghosts])
            own = np.repeat(local.vertices, np.diff(table.edges.indptr))
            ends = (ids[table.edges.indices], own)
            source, target = ends if direction == "forward" else ends[::-1]
            assert np.array_equal(graph.indices[numbers], source)
            assert np.array_equal(targets[numbers], target)


def test_a_store_and_its_layout_keep_them(graph: siafu.Graph, tmp_path: Path) -> None:
    graph.save(tmp_path / "a")
    stored = siafu.load(str(tmp_path / "a"))
    assert listed(stored) == given()
    layout = stored.reorder("degree").layout
    assert layout is not None
    assert layout.renumbered is not None
    order = layout.renumbered.order
    assert sorted((int(order[s]), int(order[t]), a, k) for s, t, a, k in listed(layout)) == given()
    file = tmp_path / "a" / "edge_attr.npy"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError, match="checksum"):
        siafu.load(str(tmp_path / "a"))


def test_bfloat16_features_stay_so() -> None:
    attr = torch.from_numpy(ATTR[:, :1]).to(torch.bfloat16)
    made = siafu.Graph.from_edges(SRC, DST, num_vertices=50, edge_attr=attr)
    assert made.edge_attr is not None
    assert made.edge_attr.dtype == np.uint16
    assert made.num_edge_features == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            {"edge_attr": ATTR[:-1]},
            r"edge_attr has shape \(399, 2\): give one row of numbers for each of 400 edges",
        ),
        ({"edge_attr": np.full((400, 1), np.nan)}, r"edge_attr\[0, 0\] is NaN or infinite"),
        ({"edge_type": TYPE - 1}, "edge_type has -1: number the types from 0 up"),
        ({"edge_type": TYPE / 2}, "edge_type has shape .* and type float64: give one whole number"),
        ({"edge_attr": ATTR, "merge_parallel": True}, "merge_parallel adds up weights"),
    ],
)
def test_what_does_not_fit_is_refused(data: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        siafu.Graph.from_edges(SRC, DST, num_vertices=50, **data)  # type: ignore[arg-type]
