import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import siafu
from siafu.base.errors import BadInput, SiafuError
from siafu.base.hardware.memory import own_bytes
from siafu.embedding import embedding_memory
from siafu.embedding.disk.bucket_orders import ORDERS
from siafu.embedding.disk.disk_trainer import DiskTrainer
from siafu.embedding.disk.partition_buffer import PartitionBuffer, PartitionLayout
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_run import EmbeddingRun
from siafu.embedding.embedding_trainer import EmbeddingTrainer
from siafu.embedding.embeddings import Embeddings
from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.ranking import rank_triples
from siafu.tables import ScratchDirectory
from tests.embedding.knowledge import SMALL, families, small_options
from tests.tables.faulty_disk import FaultyDisk


def learn(**options: Any) -> EmbeddingRun:
    return siafu.embed(families(), **{**SMALL, **options})


def vectors_of(trainer: DiskTrainer, kind: int = 0) -> np.ndarray:
    return np.concatenate(list(trainer.streamed(kind).parts()))


@pytest.mark.parametrize("ahead", [1, 2, 3])
@pytest.mark.parametrize("told", [True, False])
def test_rows_stay_with_their_partition_wherever_it_is(tmp_path: Path, ahead: int, told: bool) -> None:
    layout = PartitionLayout(1003, 10, 5, 2)
    buffer = PartitionBuffer(layout, 2, ScratchDirectory(tmp_path), ahead=ahead)
    buffer.fill(
        lambda begin, end: np.arange(begin, end, dtype=np.float32)[:, None] + np.zeros(10, np.float32)
    )
    moves = [(3, 4), (1, 0), (4, 3), (0, 1), (3, 2)]
    buffer.load((3, 1), [coming for _, coming in moves] if told else ())
    buffer.arrays[1][buffer.slots[3] * layout.rows] = 7.0
    for leaving, coming in moves:
        buffer.admit(coming)
        buffer.release(leaving)
        for partition, slot in buffer.slots.items():
            rows = buffer.arrays[0][slot * layout.rows :][: layout.count(partition)]
            assert np.array_equal(rows[:, 3], layout.entities(partition))
        if coming == 3:
            assert buffer.arrays[1][buffer.slots[3] * layout.rows, 0] == 7.0
    assert set(buffer.slots) == {1, 2}
    buffer.flush()
    assert buffer.read(3, 1)[0, 0] == 7.0
    assert buffer.swaps == 5
    assert buffer.scratch.traffic.bytes_read > 0
    assert buffer.moving_seconds > 0
    buffer.close()


def test_a_partition_is_not_read_ahead_while_it_changes(tmp_path: Path) -> None:
    layout = PartitionLayout(30, 4, 5, 1)
    buffer = PartitionBuffer(layout, 2, ScratchDirectory(tmp_path), ahead=2)
    buffer.fill(lambda begin, end: np.zeros((end - begin, 4), np.float32))
    buffer.load((0, 1), [2, 1])  # 1 comes again, and is here still
    buffer.arrays[0][buffer.slots[1] * layout.rows] = 5.0
    buffer.admit(2)
    buffer.release(1)
    buffer.admit(1)
    assert buffer.arrays[0][buffer.slots[1] * layout.rows, 0] == 5.0
    buffer.close()


def test_a_write_that_fails_behind_is_told(tmp_path: Path) -> None:
    calls = FaultyDisk(kind="write", error=errno.EIO, fails_at=6)
    buffer = PartitionBuffer(PartitionLayout(30, 4, 5, 1), 2, ScratchDirectory(tmp_path, calls))
    buffer.fill(lambda begin, end: np.zeros((end - begin, 4), np.float32))
    buffer.load((0, 1), [2, 3])
    buffer.admit(2)
    buffer.release(0)
    buffer.admit(3)
    with pytest.raises(SiafuError, match="cannot write a scratch file"):
        for partition in (1, 2):
            buffer.release(partition)
        buffer.flush()
    buffer.close()


@pytest.mark.parametrize("partitions", [2, 5, 16])
def test_first_vectors_are_those_in_memory(tmp_path: Path, partitions: int) -> None:
    options = small_options(partitions=partitions, buffer=2)
    trainer = DiskTrainer(families(), options, tmp_path)
    assert np.array_equal(vectors_of(trainer), EmbeddingTrainer(families(), options).embeddings.entities)


@pytest.mark.parametrize(("partitions", "buffer"), [(6, 3), (5, 4), (7, 2), (3, 3)])
@pytest.mark.parametrize("order", sorted(ORDERS))
def test_every_triple_is_trained_once_an_epoch(
    tmp_path: Path, order: str, partitions: int, buffer: int
) -> None:
    options = small_options(partitions=partitions, buffer=buffer, order=order)
    trainer = DiskTrainer(families(), options, tmp_path)
    for _ in range(2):
        assert trainer.run_epoch().triples == len(families().train)


@pytest.mark.parametrize(("batch", "chunk"), [(40, 20), (100, 30), (20, 50)])
def test_every_triple_is_trained_once_however_batches_are_cut(tmp_path: Path, batch: int, chunk: int) -> None:
    options = small_options(partitions=6, buffer=3, batch=batch, chunk=chunk)
    trainer = DiskTrainer(families(), options, tmp_path)
    assert trainer.run_epoch().triples == len(families().train)


def test_a_chunk_of_one_bucket_draws_a_fair_share_from_its_own_partitions(tmp_path: Path) -> None:
    triples = families()
    trainer = DiskTrainer(triples, small_options(partitions=4, buffer=3, batch=8, chunk=4), tmp_path)
    layout, slots = trainer.buffer.layout, {0: 0, 1: 1, 2: 2}
    batches = trainer._batches.of([(0, 1)], slots, 0, 0)
    drawn = [sampler.draw(random, 1, 1000)[0, 0] // layout.rows for _, sampler, random in batches][:-1]
    own = np.mean([(each < 2).mean() for each in drawn])
    assert own == pytest.approx(2 / 4, abs=0.02)
    batches = trainer._batches.of([(0, 0)], slots, 0, 0)
    drawn = [sampler.draw(random, 1, 1000)[0, 0] // layout.rows for _, sampler, random in batches][:-1]
    assert np.mean([(each < 1).mean() for each in drawn]) == pytest.approx(1 / 4, abs=0.02)


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_what_is_learnt_on_disk_ranks_far_above_chance(order: str) -> None:
    found = learn(epochs=20, partitions=6, buffer=3, order=order, filter_negatives=order == "beta").summary()
    assert found["test_mrr"] > 0.2  # chance: 0.045 of 120 entities
    assert found["bytes_written"] > 0


def test_a_run_says_how_often_it_swapped() -> None:
    assert learn(epochs=2, partitions=6, buffer=3, order="beta").summary()["swaps"] == 2 * 7


def test_a_resumed_run_on_disk_has_the_bits_of_one_that_never_stopped(tmp_path: Path) -> None:
    options = {"exact": True, "partitions": 5, "buffer": 2, "optimizer": "adam", "lr": 0.05}
    whole = learn(out=tmp_path / "whole", epochs=4, **options)
    learn(out=tmp_path / "parts", epochs=2, **options)
    parts = learn(out=tmp_path / "parts", epochs=4, resume=True, **options)
    assert np.array_equal(whole.embeddings.entities, parts.embeddings.entities)
    assert whole.summary()["swaps"] == parts.summary()["swaps"]
    again = EmbeddingRun.load(tmp_path / "parts")
    assert np.array_equal(again.embeddings.entities, whole.embeddings.entities)


def test_nothing_is_left_in_the_scratch_directory(tmp_path: Path) -> None:
    learn(partitions=4, buffer=2, scratch=tmp_path)
    assert not list(tmp_path.iterdir())


def test_ranks_of_vectors_on_disk_are_those_in_memory(tmp_path: Path) -> None:
    triples = families()
    trainer = DiskTrainer(triples, small_options(partitions=5, buffer=2), tmp_path)
    trainer.run_epoch()
    on_disk = trainer.embeddings
    memory = Embeddings(on_disk.score, vectors_of(trainer), on_disk.relations, on_disk.num_relations)
    known = KnownTriples.of([triples.train, triples.test], triples.num_relations)
    found, wanted = (rank_triples(each, triples.test, known) for each in (on_disk, memory))
    assert np.array_equal(found, wanted)


def test_what_does_not_fit_memory_goes_to_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    triples = siafu.Triples.from_arrays(families().train, num_entities=300_000)
    options = EmbedOptions(**SMALL)
    budget = embedding_memory.needed_bytes(triples, options) - 20_000_000
    chosen = embedding_memory.on_disk(triples, options, budget)
    assert chosen is not None and chosen.partitions is not None
    assert embedding_memory.disk_bytes(triples, chosen) <= budget
    monkeypatch.setattr("siafu.embedding.embed.budget_bytes", lambda memory, taken: taken + budget)
    run = siafu.embed(triples, **SMALL | {"epochs": 1})
    assert run.config["training"]["partitions"] == chosen.partitions
    assert run.summary()["bytes_read"] > 0


def test_a_scratch_directory_that_is_not_there_is_told() -> None:
    with pytest.raises(BadInput, match=r"scratch directory .* does not exist"):
        learn(partitions=4, buffer=2, scratch="/nowhere")


def test_a_buffer_larger_than_all_partitions_is_refused() -> None:
    with pytest.raises(BadInput, match="buffer is 9, and there are 4 partitions"):
        small_options(partitions=4, buffer=9)
    with pytest.raises(BadInput, match="give partitions, too"):
        small_options(buffer=3)


def test_memory_that_holds_not_even_a_buffer_is_refused() -> None:
    with pytest.raises(BadInput, match="training these embeddings needs"):
        learn(memory=f"{own_bytes()}")
