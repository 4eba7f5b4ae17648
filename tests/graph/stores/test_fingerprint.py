"""Fingerprints: one for each content."""

from pathlib import Path

import numpy as np
import pytest

from siafu import Graph
from siafu.graph.stores.fingerprint import fingerprint
from siafu.graph.stores.store import read_store
from tests.toys import toy_graph


def test_a_store_has_the_fingerprint_of_the_graph_it_was_written_from(tmp_path: Path) -> None:
    graph = toy_graph()
    graph.save(tmp_path / "toy")
    assert fingerprint(read_store(tmp_path / "toy")) == fingerprint(graph)


@pytest.mark.parametrize("field", ["indptr", "indices", "x", "y", "train", "val", "test"])
def test_any_change_of_content_changes_the_fingerprint(field: str) -> None:
    graph = toy_graph()
    changed = getattr(graph, field).copy()
    changed.reshape(-1)[-1] -= 1
    assert fingerprint(graph.replace(**{field: changed})) != fingerprint(graph)


def test_what_is_missing_counts() -> None:
    graph = toy_graph()
    assert fingerprint(graph.replace(val=None, test=graph.val)) != fingerprint(
        graph.replace(val=graph.val, test=None)
    )


def test_names_do_not_count() -> None:
    graph = toy_graph()
    renamed = graph.replace(name="other", ids=np.arange(graph.num_vertices))
    assert fingerprint(renamed) == fingerprint(graph)


def test_a_graph_without_edges_has_one() -> None:
    assert len(fingerprint(Graph.from_edges([], [], num_vertices=3))) == 16
