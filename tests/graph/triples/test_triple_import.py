import gzip
import re
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from siafu.base.errors import BadInput
from siafu.graph.triples import triple_import
from tests.graph.triples.triple_imports import by_name, imported

_FACTS = {
    ("Paris", "capital of", "France"),
    ("Berlin", "capital of", "Germany"),
    ("France", "next to", "Germany"),
}


def lines(facts: set[tuple[str, str, str]], delimiter: str = "\t") -> str:
    return "".join(delimiter.join(fact) + "\n" for fact in sorted(facts))


def test_names_with_spaces_are_kept(tmp_path: Path) -> None:
    source = tmp_path / "facts.tsv"
    source.write_text(lines(_FACTS))
    triples, done = imported(source)
    assert by_name(triples) == _FACTS
    assert (done.num_entities, done.num_relations) == (4, 2)


def test_a_tab_inside_of_quotes_is_part_of_the_name(tmp_path: Path) -> None:
    source = tmp_path / "facts.tsv"
    source.write_text('"a\tb"\tr\tc\n')
    assert by_name(imported(source)[0]) == {("a\tb", "r", "c")}


def test_a_gzipped_file_is_read(tmp_path: Path) -> None:
    source = tmp_path / "facts.tsv.gz"
    source.write_bytes(gzip.compress(lines(_FACTS).encode()))
    assert by_name(imported(source)[0]) == _FACTS


def test_parquet_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    heads, relations, tails = zip(*sorted(_FACTS), strict=True)
    source = tmp_path / "facts.parquet"
    parquet.write_table(pyarrow.table({"tail": tails, "relation": relations, "head": heads}), source)
    assert by_name(imported(source)[0]) == _FACTS


@pytest.mark.parametrize("header", ["subject,predicate,object", "head,relation,tail"])
def test_a_header_names_the_columns(tmp_path: Path, header: str) -> None:
    source = tmp_path / "facts.csv"
    source.write_text(header + "\n" + lines(_FACTS, ","))
    assert by_name(imported(source)[0]) == _FACTS


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    source = tmp_path / "facts.tsv"
    source.write_text("r\tx\ta\tb\n")
    assert by_name(imported(source, head="2", relation="0", tail="3")[0]) == {("a", "r", "b")}


@pytest.mark.parametrize(
    ("header", "column"), [("head\trelation\ttail\tyear\n", "year"), ("", "column 3")], ids=["header", "none"]
)
def test_columns_that_are_left_out_are_told(tmp_path: Path, header: str, column: str) -> None:
    source = tmp_path / "facts.tsv"
    source.write_text(header + "Paris\tcapital of\tFrance\t987\nBonn\tcapital of\tGermany\t1949\n")
    triples, done = imported(source)
    assert len(by_name(triples)) == 2
    assert list(done.warnings()) == [f"left out, as triples have head, relation and tail alone: {column}"]


def test_a_folder_has_a_file_for_each_split(tmp_path: Path) -> None:
    folder = tmp_path / "kg"
    folder.mkdir()
    (folder / "train.txt").write_text("a\tr\tb\nb\ts\tc\n")
    (folder / "valid.txt").write_text("a\ts\tc\n")
    (folder / "test.txt").write_text("c\tr\ta\n")
    triples, done = imported(folder)
    assert by_name(triples) == {("a", "r", "b"), ("b", "s", "c")}
    assert by_name(triples, "valid") == {("a", "s", "c")}
    assert by_name(triples, "test") == {("c", "r", "a")}
    assert done.triples == {"train": 2, "valid": 1, "test": 1}


def test_names_that_look_like_numbers_in_one_file_are_names_in_all(tmp_path: Path) -> None:
    folder = tmp_path / "kg"
    folder.mkdir()
    (folder / "train.tsv").write_text("a\tr\t1984\n")
    (folder / "test.tsv").write_text("1984\tr\t1985\n")
    assert by_name(imported(folder)[0], "test") == {("1984", "r", "1985")}


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_archive_has_an_array_for_each_split(tmp_path: Path, order: str) -> None:
    source = tmp_path / "kg.npz"
    train, test = np.array([[0, 0, 5], [2, 1, 0]], order=order), np.array([[5, 1, 2]], np.int32)  # type: ignore[call-overload]
    np.savez(source, train=train, test=test, num_entities=9, num_relations=3)
    triples, done = imported(source)
    assert (done.num_entities, done.num_relations) == (9, 3)
    assert triples.ids is None
    assert {tuple(row) for row in triples.train.tolist()} == {(0, 0, 5), (2, 1, 0)}
    assert triples.test.tolist() == [[5, 1, 2]]
    assert len(triples.valid) == 0


def test_numbers_are_numbered_anew_in_ascending_order(tmp_path: Path) -> None:
    source = tmp_path / "kg.tsv"
    source.write_text("700\t40\t-5\n-5\t2\t12\n")
    triples, _ = imported(source)
    assert triples.ids is not None and triples.ids.tolist() == [-5, 12, 700]
    assert triples.relations is not None and triples.relations.tolist() == [2, 40]
    assert by_name(triples) == {(700, 40, -5), (-5, 2, 12)}


def test_two_columns_are_edges_of_one_relation(tmp_path: Path) -> None:
    source = tmp_path / "edges.tsv"
    source.write_text("a\tb\nb\tc\n")
    assert by_name(imported(source)[0]) == {("a", "edge", "b"), ("b", "edge", "c")}


def test_duplicates_leaks_unseen_entities_and_self_loops_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "kg"
    folder.mkdir()
    (folder / "train.tsv").write_text("a\tr\tb\na\tr\tb\nb\tr\tb\n")
    (folder / "test.tsv").write_text("a\tr\tb\na\tr\tz\n")
    triples, done = imported(folder)
    assert (done.duplicates, done.leaked["test"], done.unseen, done.self_loops) == (1, 1, 1, 1)
    assert len(triples.train) == 2
    told = " ".join(done.warnings())
    for words in ("more than once", "1 of 2 triples of test stand in train", "1 entities", "to itself"):
        assert words in told


@given(
    facts=st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(0, 30)), min_size=1, max_size=200
    )
)
@pytest.mark.slow
def test_what_is_stored_is_the_set_of_what_was_given(
    tmp_path_factory: pytest.TempPathFactory, facts: list[tuple[int, int, int]]
) -> None:
    source = tmp_path_factory.mktemp("kg") / "kg.tsv"
    source.write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in facts))
    triples, done = imported(source)
    assert by_name(triples) == {(f"e{h}", f"r{r}", f"e{t}") for h, r, t in facts}
    assert len(triples.train) + done.duplicates == len(facts)


@pytest.mark.slow
def test_the_same_file_gives_the_same_store_however_little_memory_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    facts = rng.integers(0, 3000, (20_000, 3)) % (3000, 17, 3000)
    source = tmp_path / "kg.tsv"
    source.write_text("".join(f"entity {h}\trelation {r}\tentity {t}\n" for h, r, t in facts))
    first, _ = imported(source)
    rows, ids = first.train.copy(), np.array(first.ids)
    monkeypatch.setattr(triple_import, "memory_budget", lambda limit: 1 << 20)
    again, _ = imported(source)
    assert np.array_equal(rows, again.train)
    assert np.array_equal(ids, np.array(again.ids))


@pytest.mark.slow
def test_a_million_relations_are_no_trouble(tmp_path: Path) -> None:
    source = tmp_path / "kg.npz"
    relations = np.arange(1_000_000) * 3
    np.savez(source, head=relations % 11, relation=relations, tail=relations % 7)
    triples, done = imported(source)
    assert done.num_relations == 1_000_000
    assert triples.relations is not None and triples.relations[-1] == 2_999_997


@pytest.mark.slow
def test_a_share_is_held_out_of_one_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    source = tmp_path / "kg.npz"
    np.savez(source, triples=rng.integers(0, 1000, (20_000, 3)))
    triples, done = imported(source, holdout=0.1)
    assert sum(done.triples.values()) + done.duplicates == 20_000
    for split in ("valid", "test"):
        assert abs(done.triples[split] / 20_000 - 0.1) < 0.01
    assert not {tuple(row) for row in triples.train.tolist()} & {tuple(row) for row in triples.test.tolist()}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "is empty: give lines of head, relation, tail"),
        ("a\tr\tb\na\tr\n", "line 2: there is nothing in column 2"),
        ("a\tr\tb\na\tr\tb\tc\n", "line 2: 'c' stands after the last of the 3 columns"),
        ("1\t2\t3\n1\tx\t3\n" * 200 + "1\t2\tb\n", "'b' in column 2 is not a whole number"),
        ("a\n", "1 column: triples are head, relation and tail"),
    ],
)
def test_bad_lines_are_told_with_their_place(tmp_path: Path, text: str, line: str) -> None:
    source = tmp_path / "kg.tsv"
    source.write_text(text)
    with pytest.raises(BadInput, match=re.escape(line)):
        imported(source)
    assert not (tmp_path / "imported.store").exists()


def test_ids_beyond_what_an_archive_says_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "kg.npz"
    np.savez(source, train=np.array([[0, 0, 5]]), num_entities=3, num_relations=1)
    with pytest.raises(BadInput, match="entities up to 5, but num_entities is 3"):
        imported(source)


def test_held_out_triples_of_a_folder_are_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "kg"
    folder.mkdir()
    for split in ("train", "test"):
        (folder / f"{split}.tsv").write_text("a\tr\tb\n")
    with pytest.raises(BadInput, match="leave --holdout out"):
        imported(folder, holdout=0.1)
