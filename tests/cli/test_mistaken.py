"""Mistakes of people who see the command for the first time: one line each, exit 2."""

from pathlib import Path

import pytest

import siafu as package
from siafu.base.errors import BadInput
from tests.cli.command import Siafu
from tests.toys import toy_graph


@pytest.fixture
def run(siafu: Siafu, store: Path) -> Path:
    assert siafu("train", store, epochs=1, out="a.run").code == 0
    return Path("a.run")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"nodes": []}', "is JSON"),
        (b"[[0, 1], [1, 2]]", "is JSON"),
        (b"graph [\n node [ id 1 ]\n]\n", "is GML"),
        (b'<?xml version="1.0"?>\n<graphml/>', "is XML"),
        (b"digraph g {\n a -> b\n}\n", "is DOT"),
        (b"\x93NUMPY\x01\x00", "is a single array of NumPy's"),
        (b"\x80\x04\x95", "is a pickle"),
        ("src,dst\n1,2\n".encode("utf-16"), "UTF-16"),
        (b"a\0b\0c\n", "is a binary file"),
    ],
)
def test_a_file_that_is_no_table_is_not_imported_as_one(siafu: Siafu, content: bytes, told: str) -> None:
    Path("given.txt").write_bytes(content)
    assert told in siafu.refused("import", "given.txt", output="made.store")
    assert not Path("made.store").exists()


def test_what_needs_no_import_is_told_so(siafu: Siafu, store: Path) -> None:
    assert f"{store} is a store already" in siafu.refused("import", store, output="again.store")
    assert "demo is the name of a dataset, and needs no import: siafu train demo" in siafu.refused(
        "import", "demo"
    )


@pytest.mark.parametrize("flag", ["--device", "--gpus"])
def test_there_is_no_gpu_to_choose(siafu: Siafu, flag: str) -> None:
    assert f"there is no {flag}: siafu trains on the CPU" in siafu.refused("train", "demo", flag, "cuda")


def test_names_with_brackets_are_names(siafu: Siafu) -> None:
    Path("given.csv").write_text("<a>,[b]\n<a>,{c}\n")
    assert siafu("import", "given.csv", output="made.store").code == 0
    assert package.load("made.store").num_vertices == 3


def test_a_store_of_triples_in_this_directory_is_told_about(siafu: Siafu) -> None:
    Path("facts.tsv").write_text("a\tlikes\tb\nb\tlikes\tc\n")
    assert "3 entities, 1 relation, 2 train" in siafu("import", "facts.tsv", output="facts.store").out
    assert "entities    3, with names" in siafu("info", "facts.store").out


def test_a_model_and_a_graph_that_are_turned_round_are_told(siafu: Siafu) -> None:
    assert "gcn is a model, and stands first: siafu explain gcn demo" in siafu.refused(
        "explain", "demo", "gcn"
    )


@pytest.mark.slow
def test_a_store_is_no_run_and_a_run_no_graph(siafu: Siafu, store: Path, run: Path) -> None:
    assert f"{store} is a store, not a run: name the directory" in siafu.refused("predict", store)
    for path in ("a.run", "./a.run"):
        assert "a.run is a run's directory, not a graph" in siafu.refused("train", path)
    assert "holds a finished run" in siafu.refused("train", store, out="a.run")
    bare = package.load(store).replace(train=None, val=None, test=None)
    bare.save("bare.store")
    assert "has no split" in siafu.refused("evaluate", "a.run", "bare.store")


@pytest.mark.slow
def test_the_split_that_is_drawn_is_told(siafu: Siafu, store: Path) -> None:
    ended = siafu("train", store, epochs=1, split="random:50/30/20", out="b.run")
    assert "105/63/42 train/val/test" in ended.err.splitlines()[0]


def test_an_author_of_a_model_with_one_output_hears_of_quantities() -> None:
    graph = toy_graph()
    net = package.nn.GCN(graph.num_features, 4, 2, 1)
    with pytest.raises(BadInput, match="learn y as a quantity: objective='regression'"):
        package.train(graph, net, epochs=1)


def test_words_are_no_quantities() -> None:
    graph = toy_graph()
    named = graph.replace(class_names=tuple(f"kind {each}" for each in range(graph.num_classes)))
    with pytest.raises(
        BadInput, match="are words \\(kind 0, kind 1, kind 2 …\\), and regression wants quantities"
    ):
        package.train(named, package.nn.GCN(graph.num_features, 4, 2, 1), objective="regression", epochs=1)


def test_ids_that_count_from_one_are_told(siafu: Siafu) -> None:
    Path("edges.csv").write_text("1,2\n2,3\n3,1\n")
    told = siafu("import", "edges.csv", output="from_one.store")
    assert "vertex 0 has no edges" in told.err
    assert "4 vertices" in told.out
    again = siafu("import", "edges.csv", output="anew.store", ids="relabel")
    assert "vertex 0" not in again.err
    assert "3 vertices" in again.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--epochs", "many"), "'--epochs': give a whole number"),
        (("--lr", "much"), "'--lr': give a number"),
        (("--resume", "a.run"), "an option that takes no value was given one: (a.run)"),
    ],
)
def test_the_command_line_is_refused_in_our_words(siafu: Siafu, words: tuple[str, str], told: str) -> None:
    assert told in siafu.refused("train", "demo", *words)


def test_the_nearest_file_and_the_nearest_store_are_named(siafu: Siafu) -> None:
    Path("friends.csv").write_text("a,b\nb,c\n")
    assert "no file or folder friend.csv: did you mean friends.csv?" in siafu.refused("import", "friend.csv")
    toy_graph().save("my.store")
    assert "no dataset or store 'mystore': did you mean my.store?" in siafu.refused("train", "mystore")
