from pathlib import Path

from tests.cli.command import Siafu


def test_triples_are_recognised_and_imported(siafu: Siafu, tmp_path: Path) -> None:
    source = tmp_path / "facts.tsv"
    source.write_text("Paris\tcapital of\tFrance\nParis\tcapital of\tFrance\nBerlin\tcapital of\tGermany\n")
    ended = siafu("import", source, output=tmp_path / "kg.store")
    assert ended.code == 0, ended
    assert "4 entities, 1 relation, 2 train, 0 valid, 0 test" in ended.out
    assert "1 triples stood more than once" in ended.err
    assert "is a store of triples" in siafu.refused("train", tmp_path / "kg.store")


def test_three_columns_of_numbers_are_edges_unless_told_otherwise(siafu: Siafu, tmp_path: Path) -> None:
    source = tmp_path / "numbers.tsv"
    source.write_text("0\t1\t2\n1\t0\t0\n")
    assert "2 edges" in siafu("import", source, output=tmp_path / "graph.store").out
    assert "2 triples" in siafu("import", source, output=tmp_path / "kg.store", format="triples").out


def test_options_of_graphs_are_refused_for_triples(siafu: Siafu, tmp_path: Path) -> None:
    source = tmp_path / "facts.tsv"
    source.write_text("a\tr\tb\n")
    line = siafu.refused("import", source, output=tmp_path / "kg.store", format="triples", undirected=True)
    assert "--undirected is for graphs" in line
