"""Knowledge graphs that nobody would make by hand are trained like any other."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import siafu
from siafu.graph.triples import Triples
from siafu.graph.triples.triple_import import import_triples
from tests.embedding.knowledge import SMALL, families

ON_DISK = {"partitions": 4, "buffer": 2}


@pytest.mark.parametrize("where", [{}, ON_DISK], ids=["memory", "disk"])
def test_loops_leaks_unseen_entities_and_odd_names_are_trained_ranked_and_found(
    tmp_path: Path, where: dict[str, Any]
) -> None:
    facts = ['"a\tb"\tlikes  it\tc d', "c d\tlikes  it\tc d", "c d\tlikes  it\t'", '"a\tb"\tis\té']
    (tmp_path / "kg").mkdir()
    (tmp_path / "kg" / "train.tsv").write_text("\n".join(facts + facts) + "\n")
    (tmp_path / "kg" / "valid.tsv").write_text(facts[0] + "\n")  # stands in train
    (tmp_path / "kg" / "test.tsv").write_text("never seen\tis\té\n")
    import_triples(tmp_path / "kg", tmp_path / "kg.store")
    run = siafu.embed(tmp_path / "kg.store", **{**SMALL, **where})
    assert len(run.triples.train) == 4
    assert 0 < run.summary()["test_mrr"] <= 1
    assert run.vector("a\tb").shape == (16,)
    assert len(run.predict(head="never seen", relation="likes  it", top=3)) == 3


def test_a_million_relations_are_trained() -> None:
    rows = np.stack([np.arange(1000) % 50, np.arange(1000) * 1000, np.arange(1000) % 37], axis=1)
    triples = Triples.from_arrays(rows, rows[:20], num_relations=1_000_000)
    run = siafu.embed(triples, **{**SMALL, "dim": 4, "epochs": 1})
    assert run.embeddings.relations.shape == (2_000_000, 4)
    assert run.summary()["val_mrr"] > 0


@pytest.mark.parametrize("chunk", [50, 10**11])
@pytest.mark.parametrize("where", [{}, ON_DISK], ids=["memory", "disk"])
def test_a_batch_larger_than_the_graph_takes_no_memory_for_more(where: dict[str, Any], chunk: int) -> None:
    options: dict[str, Any] = {**SMALL, **where, "batch": 10**12, "chunk": chunk, "epochs": 1}
    run = siafu.embed(families(), **options)
    assert run.config["training"]["batch"] == 10**12
    assert run.summary()["val_mrr"] > 0
