from typing import Any

import numpy as np
import pytest

import siafu
from siafu.base.errors import BadInput
from siafu.embedding.questions.vertex_features import with_vectors
from tests.embedding.questions.test_answers import answers_of


def graph_of(ids: Any, x: Any = None) -> siafu.Graph:
    return siafu.Graph.from_csr(np.zeros(5, np.int64), np.empty(0, np.int32), ids=ids, x=x)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_vertex_gets_the_vector_of_the_entity_with_its_name(dtype: str) -> None:
    import torch

    answers = answers_of()
    names = [answers.entities.name(k) for k in (3, 0)]
    own = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]], dtype=getattr(torch, dtype))
    graph = graph_of([b"nobody", *(name.encode() for name in names), b"none"], own)
    found, known = with_vectors(graph, answers)
    vectors = np.zeros((4, answers.embeddings.dim), np.float32)
    vectors[1], vectors[2] = answers.embeddings.entities[3], answers.embeddings.entities[0]
    assert known == 2
    assert found.x is not None
    np.testing.assert_array_equal(found.x, np.concatenate([own.float().numpy(), vectors], axis=1))
    alone, _ = with_vectors(graph, answers, alone=True)
    assert alone.x is not None
    np.testing.assert_array_equal(alone.x, vectors)


def test_numbers_are_names_too() -> None:
    answers = answers_of(named=False)
    found, known = with_vectors(graph_of(None), answers)
    assert known == 4
    assert found.x is not None
    np.testing.assert_array_equal(found.x, answers.embeddings.entities[:4])
    found, known = with_vectors(graph_of([b"2", b"x", b"1", b"y"]), answers)
    assert known == 2
    assert found.x is not None
    np.testing.assert_array_equal(found.x[0], answers.embeddings.entities[2])


def test_a_graph_of_other_vertices_is_refused() -> None:
    with pytest.raises(BadInput, match="no vertex of graph is an entity of these embeddings"):
        with_vectors(graph_of([b"p", b"q", b"r", b"s"]), answers_of())
