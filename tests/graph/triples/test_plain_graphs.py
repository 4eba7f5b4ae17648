from pathlib import Path

import numpy as np
import pytest

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.triples import triples_at, triples_of


def ring(vertices: int = 400, **more: object) -> Graph:
    """A ring with each edge both ways, and every edge of vertex 0 twice."""
    here = np.arange(vertices)
    there = (here + 1) % vertices
    src, dst = np.concatenate([here, there, [0]]), np.concatenate([there, here, [1]])
    return Graph.from_edges(src, dst, num_vertices=vertices, **more)  # type: ignore[arg-type]


def test_every_edge_is_a_fact_once_in_one_part() -> None:
    graph = ring()
    found = triples_of(graph, holdout=0.2)
    parts = [{tuple(row) for row in rows.tolist()} for rows in (found.train, found.valid, found.test)]
    assert sum(map(len, parts)) == sum(map(len, (found.train, found.valid, found.test))) == 800
    assert set.union(*parts) == {(v, 0, (v + 1) % 400) for v in range(400)} | {
        ((v + 1) % 400, 0, v) for v in range(400)
    }
    assert (found.num_entities, found.num_relations) == (400, 1)
    assert all(len(part) > 60 for part in parts)


def test_an_edge_and_the_edge_back_stay_together() -> None:
    found = triples_of(ring(), holdout=0.2)
    for rows in (found.train, found.valid, found.test):
        there = {(head, tail) for head, _, tail in rows.tolist()}
        assert there == {(tail, head) for head, tail in there}


def test_types_are_relations() -> None:
    graph = Graph.from_edges([0, 0, 1], [1, 1, 2], num_vertices=3, edge_type=[2, 0, 1])
    found = triples_of(graph, holdout=0)
    assert found.num_relations == 3
    assert {tuple(row) for row in found.train.tolist()} == {(0, 2, 1), (0, 0, 1), (1, 1, 2)}
    assert len(found.valid) == len(found.test) == 0


def test_a_graphs_store_is_found_by_its_path_and_gives_the_same_triples_again(tmp_path: Path) -> None:
    ring().save(tmp_path / "ring.store")
    first, again = (triples_at(tmp_path / "ring.store") for _ in range(2))
    assert first.source == str((tmp_path / "ring.store").resolve())
    assert first.fingerprint == again.fingerprint
    assert triples_of(ring(), holdout=0.1).source is None, (
        "the store alone does not say which share was held out"
    )


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BadInput, match=r"holdout is 0\.5"):
        triples_of(ring(), holdout=0.5)
    with pytest.raises(BadInput, match="has no edges to learn from"):
        triples_of(Graph.from_edges([], [], num_vertices=3))
    with pytest.raises(BadInput, match="no dataset or store 'dmo': did you mean demo"):
        triples_at("dmo")
