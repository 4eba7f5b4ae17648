"""Tables of bfloat16 learn as those of float32 do, in memory, on disk and on servers, and are half as large."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import siafu
from siafu.base.errors import BadInput
from siafu.embedding.embedding_memory import table_bytes
from siafu.embedding.embedding_trainer import EmbeddingTrainer
from tests.embedding.knowledge import SMALL, families, small_options

ON_DISK = {"partitions": 4, "buffer": 2}


@pytest.mark.parametrize("where", [{}, ON_DISK], ids=["memory", "disk"])
def test_bf16_learns_as_fp32_does(where: dict[str, Any]) -> None:
    options = {**SMALL, "epochs": 12, "exact": True, **where}
    fp32, bf16 = (siafu.embed(families(), precision=each, **options).summary() for each in ("fp32", "bf16"))
    assert abs(fp32["test_mrr"] - bf16["test_mrr"]) < 0.05
    assert bf16["test_mrr"] > 0.4


@pytest.mark.parametrize("where", [{}, ON_DISK], ids=["memory", "disk"])
def test_a_run_in_bf16_goes_on_bit_for_bit(tmp_path: Path, where: dict[str, Any]) -> None:
    options = {**SMALL, "precision": "bf16", "exact": True, "evaluate_every": 1, **where}
    whole = siafu.embed(families(), **{**options, "epochs": 4})
    siafu.embed(families(), **{**options, "epochs": 2}, out=tmp_path / "run")
    again = siafu.embed(families(), **{**options, "epochs": 4}, out=tmp_path / "run", resume=True)
    assert np.array_equal(whole.embeddings.entities, again.embeddings.entities)
    assert whole.embeddings.entities.dtype == np.float32


def test_tables_of_bf16_take_half_the_memory() -> None:
    trainer = EmbeddingTrainer(families(), small_options(precision="bf16"))
    table = trainer.tables.entities
    assert {each.itemsize for each in (table.table, *table.moments)} == {2}
    fp32 = table_bytes(1000, small_options())
    assert table_bytes(1000, small_options(precision="bf16")) == fp32 // 2


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(BadInput, match="fp32"):
        siafu.embed(families(), precision="fp8")
