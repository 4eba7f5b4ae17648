"""Triples learnt with the entities' vectors in partitions on disk."""

import gc
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

import siafu
from siafu.base.storage.mapped import mapped_file
from siafu.embedding.disk.bucket_orders import ORDERS
from siafu.embedding.disk.partition_buffer import PartitionLayout
from siafu.training.linking import triple_steps
from siafu.training.linking.entity_vectors import Residents, VectorsOnDisk
from siafu.training.linking.triple_memory import memory_list
from siafu.training.linking.triple_steps import draw_weights
from siafu.training.linking.triple_training import TripleTraining
from tests.training.linking.test_triples import ENTITIES, FAST, make_triples, same_model

_RUN = """
import sys, threading, numpy as np, siafu
from siafu.base.hardware.memory import own_bytes
rows = np.random.default_rng(0).integers(0, 600_000, (20_000, 3)).astype(np.int32)
rows[:, 1] = 0
triples = siafu.Triples.from_arrays(rows[40:], rows[:20], rows[20:40], num_entities=600_000)
peak, done = 0, threading.Event()
def watch():
    global peak
    while not done.wait(0.002):
        peak = max(peak, own_bytes())
thread = threading.Thread(target=watch, daemon=True)
thread.start()
run = siafu.train_triples(triples, dim=100, epochs=2, memory="1GB", partitions=16, scratch=sys.argv[1])
done.set(); thread.join()
print(peak, len(run.history))
"""


def residents_of(partitions: int, held: list[int], entities: int = 23) -> Residents:
    layout = PartitionLayout(entities, 4, partitions, 2)
    return Residents(layout, np.array(held), np.arange(len(held))[::-1] * layout.rows)


@pytest.mark.parametrize(("partitions", "fanout"), [(1, "4"), (5, "4"), (3, "3,2")])
def test_a_buffer_of_all_partitions_learns_the_bits_of_memory(
    tmp_path: Path, partitions: int, fanout: str
) -> None:
    triples, options = make_triples(), {**FAST, "epochs": 3, "fanout": fanout}
    memory = siafu.train_triples(triples, **options)
    disk = siafu.train_triples(triples, partitions=partitions, buffer=partitions, scratch=tmp_path, **options)
    assert same_model(memory.model, disk.model)
    assert disk.summary()["test_mrr"] == pytest.approx(memory.summary()["test_mrr"], abs=1e-6)
    rows = [each.embeddings().entities for each in (memory, disk)]
    assert np.allclose(*rows, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_what_is_learnt_on_disk_ranks_above_chance(tmp_path: Path, order: str) -> None:
    run = siafu.train_triples(
        make_triples(), epochs=25, fanout="5", partitions=6, buffer=4, order=order, scratch=tmp_path, **FAST
    )
    by_chance = np.mean(1 / np.arange(1, ENTITIES + 1))
    assert run.summary()["test_mrr"] > 1.5 * by_chance
    assert run.best.val is not None
    assert run.best.val["mrr"] == max(each.val["mrr"] for each in run.history if each.val is not None)
    again = run.embeddings()
    assert mapped_file(again.entities) is not None


@pytest.mark.parametrize(("partitions", "buffer"), [(6, 3), (5, 2), (4, 4)])
@pytest.mark.parametrize("order", sorted(ORDERS))
def test_an_epoch_trains_every_triple_once_among_those_in_memory(
    tmp_path: Path, order: str, partitions: int, buffer: int
) -> None:
    triples = make_triples()
    asked = TripleTraining(dim=4, partitions=partitions, buffer=buffer, order=order, scratch=tmp_path)
    vectors = VectorsOnDisk(lambda count: np.ones((count, 4), np.float32), triples.train, ENTITIES, asked)
    for epoch in range(2):
        trained = []
        for state in vectors.states(epoch):
            held = np.isin(triples.train[:, [0, 2]] % partitions, state.residents.partitions).all(1)
            assert np.array_equal(state.near, np.flatnonzero(held))
            assert np.isin(state.trained, state.near).all()
            assert len(state.residents.partitions) <= buffer
            trained.append(state.trained)
        assert np.array_equal(np.sort(np.concatenate(trained)), np.arange(len(triples.train)))
    vectors.close()


def test_what_is_updated_stays_with_its_entity_wherever_its_partition_is(tmp_path: Path) -> None:
    triples = make_triples()
    asked = TripleTraining(dim=4, partitions=5, buffer=2, scratch=tmp_path, lr=1.0)
    count = iter(range(ENTITIES))
    vectors = VectorsOnDisk(
        lambda n: np.array([next(count) for _ in range(n)], np.float32)[:, None] + np.zeros(4, np.float32),
        triples.train,
        ENTITIES,
        asked,
    )
    seen = set()
    for state in vectors.states(0):
        numbers = np.arange(state.residents.count)
        entities = np.flatnonzero(np.isin(np.arange(ENTITIES) % 5, state.residents.partitions))
        rows = state.residents.rows(numbers)
        assert np.array_equal(state.residents.numbers(entities), numbers)
        new = np.array([each not in seen for each in entities.tolist()])
        assert np.allclose(vectors.read(rows)[:, 2], entities - ~new, atol=1e-5)
        # The first step of Adagrad has the size of the learning rate.
        vectors.update(rows[new], np.ones((int(new.sum()), 4), np.float32))
        seen.update(entities.tolist())
    assert np.allclose(vectors.whole()[:, 0], np.arange(ENTITIES) - 1, atol=1e-5)
    vectors.close()


def test_drawn_entities_count_half_by_share_and_half_by_the_partitions_that_answer() -> None:
    residents = residents_of(6, [1, 2, 5])
    buckets = np.zeros((6, 6), np.bool_)
    buckets[1, [2, 5]] = buckets[2, 2] = True
    given, answers = residents.numbers(np.array([1, 2])), residents.numbers(np.array([5, 8]))
    weights = draw_weights(residents, buckets, given, answers, np.arange(residents.count))
    assert weights is not None
    shares = torch.exp(weights).numpy() / residents.count
    assert np.allclose(shares.sum(1), 1)
    at = residents.partition_of(np.arange(residents.count))
    # Of 23 entities, partitions 1, 2 and 5 have 4, 4 and 3; what is given in 1 is answered in 2 and 5 now, what is in 2 there alone.
    own, others = 7 / 23, 16 / 23
    for triple, partition, share in (
        (0, 1, own * 4 / 7 / 2),
        (0, 5, (own * 3 / 7 + 3 / 7) / 2),
        (0, 2, (others + 4 / 7) / 2),
        (1, 2, (4 / 23 + 1) / 2),
        (1, 1, 19 / 23 * 4 / 7 / 2),
    ):
        assert shares[triple][at == partition].sum() == pytest.approx(share, rel=1e-5)


def test_drawn_entities_count_alike_where_a_triple_has_all_that_are_in_memory() -> None:
    residents, every = residents_of(6, [1, 5]), np.zeros((6, 6), np.bool_)
    every[np.ix_([1, 5], [1, 5])] = True
    weights = draw_weights(residents, every, np.array([0]), np.array([1]), np.arange(residents.count))
    assert weights is not None
    assert torch.allclose(weights, torch.zeros(()))
    whole = residents_of(2, [0, 1])
    assert draw_weights(whole, every[:2, :2], np.array([0]), np.array([1]), np.arange(23)) is None


def test_rows_made_a_few_at_a_time_are_those_of_the_whole_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = siafu.train_triples(make_triples(), epochs=1, fanout="3,2", partitions=4, scratch=tmp_path, **FAST)
    with torch.no_grad():
        whole = run.model.encoder(run.graph, run.model.entities).numpy()
    monkeypatch.setattr(triple_steps, "ENCODED_EDGES", 50)
    assert np.allclose(run.embeddings().entities, whole, rtol=1e-4, atol=1e-6)


def test_without_held_out_triples_the_last_epochs_vectors_are_the_result(tmp_path: Path) -> None:
    alone = siafu.Triples.from_arrays(make_triples().train, num_entities=ENTITIES)
    options = {**FAST, "epochs": 2, "fanout": "3"}
    memory = siafu.train_triples(alone, **options)
    assert same_model(
        memory.model, siafu.train_triples(alone, partitions=3, buffer=3, scratch=tmp_path, **options).model
    )


def test_files_have_no_names_and_go_with_the_result(tmp_path: Path) -> None:
    run = siafu.train_triples(make_triples(), epochs=2, fanout="3", partitions=4, scratch=tmp_path, **FAST)
    assert not list(tmp_path.iterdir())
    assert len(open_files(tmp_path)) == 1  # the vectors
    del run
    gc.collect()
    assert not open_files(tmp_path)


def open_files(directory: Path) -> list[str]:
    """Files there that this process still holds, with a name or without."""
    held = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            held.append(str(link.readlink()))
    return [each for each in held if each.startswith(str(directory))]


def test_the_list_of_memory_has_the_buffer_in_place_of_the_table() -> None:
    row = np.zeros((1, 3), np.int32)
    triples = siafu.Triples(np.broadcast_to(row, (1000, 3)), row[:0], row[:0], 10_000_000, 10)
    memory, disk = (
        memory_list(triples, TripleTraining(**options), 1)
        for options in ({}, {"partitions": 16, "buffer": 4})
    )
    assert memory["vectors"] == 3 * 10_000_000 * 200
    assert disk["vectors"] == pytest.approx(6 / 16 * 2 * 10_000_000 * 200, rel=0.1)


def test_what_does_not_fit_in_memory_fits_with_partitions() -> None:
    row = np.zeros((1, 3), np.int32)
    triples = siafu.Triples(np.broadcast_to(row, (20_000, 3)), row, row, 600_000, 1)
    memory, disk = (
        sum(memory_list(triples, TripleTraining(dim=100, **options), 1).values())
        for options in ({}, {"partitions": 16})
    )
    assert memory > 2 * disk


@pytest.mark.slow
def test_a_training_on_disk_takes_no_more_than_its_memory(tmp_path: Path) -> None:
    child = [sys.executable, "-c", _RUN, str(tmp_path)]
    ended = subprocess.run(child, capture_output=True, text=True, env={**os.environ, "SIAFU_THREADS": "2"})
    assert ended.returncode == 0, ended.stderr
    peak, epochs = ended.stdout.split()
    assert int(epochs) == 2
    assert int(peak) <= 1e9
