from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from siafu.base.errors import BadInput
from siafu.embedding.embeddings import Embeddings
from siafu.embedding.questions.answers import Answers
from siafu.embedding.questions.scored_file import write_scores
from siafu.embedding.questions.vector_files import export_vectors
from siafu.embedding.ranking import rank_triples
from siafu.embedding.steps.scores import SCORES
from siafu.graph.triples import Triples


def answers_of(*, named: bool = True, reciprocal: bool = False) -> Answers:
    rng = np.random.default_rng(0)
    tables = [rng.standard_normal(shape).astype(np.float32) for shape in ((9, 4), (2 * (1 + reciprocal), 4))]
    embeddings = Embeddings(SCORES["complex"], *tables, 2)
    triples = Triples.from_arrays([[0, 0, 1], [0, 0, 2], [3, 1, 0]], num_entities=9, num_relations=2)
    if not named:
        return Answers(embeddings, None, None, triples)
    ids = np.array([f"entity {k}".encode() for k in range(9)])
    return Answers(embeddings, ids, np.array([b"likes", b"knows"]), triples)


def test_the_best_answer_is_the_one_of_rank_one() -> None:
    answers = answers_of(named=False)
    found = answers.predict(4, 1, None, top=9)
    for place, (entity, score) in enumerate(found):
        assert rank_triples(answers.embeddings, np.array([[4, 1, entity]]), None)[0] == place + 1
        assert score == pytest.approx(float(answers.score([(4, 1, entity)])[0]), rel=1e-5)


def test_heads_are_answered_too() -> None:
    answers = answers_of(named=False, reciprocal=True)
    best = answers.predict(None, 1, 4, top=1)[0][0]
    assert rank_triples(answers.embeddings, np.array([[best, 1, 4]]), None)[1] == 1


def test_known_answers_can_be_left_out() -> None:
    found = answers_of().predict("entity 0", "likes", None, top=9, new=True)
    assert {name for name, _ in found} == {f"entity {k}" for k in (0, 3, 4, 5, 6, 7, 8)}


def test_neighbours_have_the_highest_cosine() -> None:
    answers = answers_of(named=False)
    vectors = answers.embeddings.entities / np.linalg.norm(answers.embeddings.entities, axis=1)[:, None]
    cosines = vectors @ vectors[2]
    wanted = [k for k in np.argsort(-cosines) if k != 2][:3]
    assert [entity for entity, _ in answers.neighbours(2, top=3)] == wanted


@pytest.mark.parametrize(
    ("question", "line"),
    [
        (("entity 77", "likes", None), "no entity 'entity 77': did you mean"),
        (("entity 1", "hates", None), "no relation 'hates'"),
        (("entity 1", None, None), "give a relation"),
        (("entity 1", "likes", "entity 2"), "give a head or a tail, not both"),
    ],
)
def test_questions_that_cannot_be_answered_are_told(question: tuple[Any, Any, Any], line: str) -> None:
    with pytest.raises(BadInput, match=line):
        answers_of().predict(*question, top=3)


def test_numbers_out_of_range_are_told() -> None:
    with pytest.raises(BadInput, match="no entity 9: numbers go from 0 to 8"):
        answers_of(named=False).neighbours(9, top=1)


def test_a_file_of_triples_is_scored(tmp_path: Path) -> None:
    answers = answers_of()
    source, out = tmp_path / "asked.tsv", tmp_path / "scores.csv"
    source.write_text("entity 1\tlikes\tentity 2\nentity 8\tknows\tentity 0\n")
    with out.open("wb") as file:
        assert write_scores(answers, source, file) == 2
    lines = out.read_text().splitlines()
    assert lines[0] == "head,relation,tail,score"
    wanted = answers.score([("entity 1", "likes", "entity 2"), ("entity 8", "knows", "entity 0")])
    assert [float(line.split(",")[3]) for line in lines[1:]] == pytest.approx(wanted.tolist(), rel=1e-5)
    source.write_text("entity 1\tlikes\tnobody\n")
    with pytest.raises(BadInput, match="no entity 'nobody'"), out.open("wb") as file:
        write_scores(answers, source, file)


def test_vectors_are_written_to_parquet(tmp_path: Path) -> None:
    answers = answers_of()
    export_vectors(answers, tmp_path / "v.parquet", relations=False)
    table = parquet.read_table(tmp_path / "v.parquet")
    assert table["id"].to_pylist() == [f"entity {k}" for k in range(9)]
    assert np.array_equal(np.array(table["vector"].to_pylist(), np.float32), answers.embeddings.entities)


def test_vectors_are_written_to_npy_with_their_names_beside(tmp_path: Path) -> None:
    answers = answers_of(reciprocal=True)
    export_vectors(answers, tmp_path / "v.npy", relations=True)
    assert np.array_equal(np.load(tmp_path / "v.npy"), answers.embeddings.relations)
    names = np.load(tmp_path / "v.ids.npy").tolist()
    assert names == [b"likes", b"knows", b"likes (inverse)", b"knows (inverse)"]


def test_vectors_are_written_as_word2vec_does(tmp_path: Path) -> None:
    answers = answers_of()
    export_vectors(answers, tmp_path / "v.txt", relations=False)
    head, *lines = (tmp_path / "v.txt").read_text().splitlines()
    assert head == "9 4"
    words = [line.split(" ") for line in lines]
    assert [word[0] for word in words] == [f"entity_{k}" for k in range(9)]
    assert np.array_equal(np.array([word[1:] for word in words], np.float32), answers.embeddings.entities)


def test_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"ends in \.parquet, \.npy"):
        export_vectors(answers_of(), tmp_path / "v.doc", relations=False)
