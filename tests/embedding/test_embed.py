import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import siafu
from siafu.base import compiling as clock
from siafu.base import threads
from siafu.base.compiling import compiling
from siafu.base.errors import BadInput, Diverged, Interrupted
from siafu.embedding.embedding_run import EmbeddingRun
from siafu.embedding.embedding_trainer import EmbeddingTrainer
from siafu.embedding.evaluation import Evaluator
from siafu.embedding.ranking import RankScores
from siafu.embedding.steps.epoch_order import epoch_batches
from siafu.embedding.steps.scores import SCORES
from siafu.report.files.metrics import EpochMetrics
from siafu.report.progress import Progress
from tests.embedding.knowledge import SMALL, families, small_options


def learn(triples: Any = None, **options: Any) -> EmbeddingRun:
    return siafu.embed(families() if triples is None else triples, **{**SMALL, **options})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("score", "more"),
    [
        ("distmult", {}),
        ("complex", {"regularization": 1e-3}),
        ("complex", {"optimizer": "adam", "lr": 0.02, "filter_negatives": True}),
        ("transe", {"lr": 0.3}),
        ("transe-l1", {"loss": "margin", "margin": 1.0, "unit_entities": True, "reciprocal": False}),
        ("rotate", {"loss": "logistic", "margin": 3.0, "adversarial": 1.0, "lr": 0.3}),
        ("dot", {"degree_share": 0.5}),
        ("complex", {"all_entities": True, "dropout": 0.2, "relation_dropout": 0.1}),
    ],
)
def test_what_is_learnt_ranks_held_out_triples_far_above_chance(score: str, more: dict[str, Any]) -> None:
    found = learn(score=score, epochs=25, **more).summary()
    assert found["test_mrr"] > (0.1 if score == "dot" else 0.2), found  # chance: 0.045 of 120 entities


def test_exact_training_has_the_same_bits_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = []
    for count in (1, 2, 3):
        monkeypatch.setattr(threads, "_pool", lambda count=count: threads.ThreadPoolExecutor(count))
        for module in ("siafu.base.threads", "siafu.embedding.steps.lane", "siafu.embedding.steps.epoch"):
            monkeypatch.setattr(f"{module}.thread_count", lambda count=count: count)
        tables.append(learn(exact=True).embeddings)
    for other in tables[1:]:
        assert np.array_equal(tables[0].entities, other.entities)
        assert np.array_equal(tables[0].relations, other.relations)


def test_the_seed_decides_what_is_learnt() -> None:
    first, again, other = (learn(exact=True, seed=seed, epochs=1).embeddings.entities for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("where", [{}, {"partitions": 4, "buffer": 2}], ids=["memory", "disk"])
def test_a_rate_that_decays_takes_the_first_epoch_as_it_is_and_smaller_steps_after_it(
    where: dict[str, Any],
) -> None:
    steady, decayed = (
        [
            learn(exact=True, optimizer="adam", epochs=epochs, lr_decay=decay, **where).embeddings.entities
            for epochs in (1, 2)
        ]
        for decay in (1.0, 1e-6)
    )
    assert np.array_equal(steady[0], decayed[0])
    assert np.abs(steady[1] - steady[0]).max() > 0.01
    assert np.abs(decayed[1] - decayed[0]).max() < 1e-4


def test_an_epoch_takes_every_triple_once() -> None:
    taken = np.concatenate(list(epoch_batches(1003, 100, 0, 4)))
    assert np.array_equal(np.sort(taken), np.arange(1003))
    assert not np.array_equal(taken, np.concatenate(list(epoch_batches(1003, 100, 0, 5))))


def test_a_saved_run_has_a_summary_metrics_and_vectors(tmp_path: Path) -> None:
    run = learn(out=tmp_path / "run", evaluate_every=2)
    again = EmbeddingRun.load(tmp_path / "run")
    assert again.summary() == run.summary() == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert np.array_equal(again.embeddings.entities, run.embeddings.entities)
    assert [epoch.val_accuracy is not None for epoch in again.history] == [False, True, True]
    wanted = {"val_mrr", "test_mrr", "test_hits_at_1", "test_hits_at_3", "test_hits_at_10"}
    assert wanted | {"triples_per_second", "swaps", "bytes_read", "bytes_written"} <= run.summary().keys()


def test_the_result_is_the_best_epoch(tmp_path: Path) -> None:
    run = learn(out=tmp_path / "run", epochs=12, lr=1.0, evaluate_every=1)
    found = [epoch.val_accuracy or 0.0 for epoch in run.history]
    assert run.summary()["best_epoch"] == found.index(max(found)) + 1
    assert run.summary()["val_mrr"] == pytest.approx(max(found), abs=1e-12)


def test_patience_ends_a_run_that_does_not_get_better() -> None:
    run = learn(epochs=60, lr=1.0, evaluate_every=1, patience=3)
    assert len(run.history) == run.summary()["best_epoch"] + 3


def test_triples_without_held_out_ones_are_learnt_without_scores() -> None:
    found = learn(siafu.Triples.from_arrays(families().train)).summary()
    assert found["val_mrr"] is None and found["test_mrr"] is None
    assert found["best_epoch"] == 3


@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(tmp_path: Path, optimizer: str) -> None:
    options = {"exact": True, "optimizer": optimizer, "lr": 0.05, "evaluate_every": 1, "checkpoint_every": 0}
    whole = learn(out=tmp_path / "whole", epochs=4, **options)
    learn(out=tmp_path / "parts", epochs=2, **options)
    parts = learn(out=tmp_path / "parts", epochs=4, resume=True, **options)
    assert np.array_equal(whole.embeddings.entities, parts.embeddings.entities)
    assert np.array_equal(whole.embeddings.relations, parts.embeddings.relations)
    assert [e.train_loss for e in whole.history] == [e.train_loss for e in parts.history]


class _Stopping(Progress):
    """Sends this process a signal when an epoch has ended."""

    def epoch_ended(self, metrics: EpochMetrics) -> None:
        if metrics.epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_saves_and_the_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    options: dict[str, Any] = {"exact": True, "epochs": 4, "out": tmp_path / "run"}
    with pytest.raises(Interrupted, match=r"stopped by SIGINT after epoch 2 and saved in .*run"):
        learn(progress=_Stopping(), **options)
    again = learn(resume=True, **options)
    whole = learn(**options | {"out": None})
    assert np.array_equal(again.embeddings.entities, whole.embeddings.entities)


def test_a_finished_run_that_is_resumed_is_loaded(tmp_path: Path) -> None:
    run = learn(out=tmp_path / "run")
    again = learn(out=tmp_path / "run", resume=True)
    assert again.summary() == run.summary()


def test_a_run_is_not_resumed_with_other_options(tmp_path: Path) -> None:
    learn(out=tmp_path / "run")
    with pytest.raises(BadInput, match=r"cannot resume .* training.lr was 0.1, now 0.2"):
        learn(out=tmp_path / "run", resume=True, lr=0.2)
    with pytest.raises(BadInput, match=r"graph.fingerprint was"):
        learn(families(seed=3), out=tmp_path / "run", resume=True)


def test_a_flipped_bit_in_a_checkpoint_is_found(tmp_path: Path) -> None:
    learn(out=tmp_path / "run", checkpoint_every=0)
    file = tmp_path / "run" / "checkpoint.safetensors"
    data = bytearray(file.read_bytes())
    data[-100] ^= 4
    file.write_bytes(data)
    with pytest.raises(BadInput, match=r"checkpoint.safetensors is corrupted \(its checksum is wrong\)"):
        learn(out=tmp_path / "run", resume=True, epochs=5)


def test_a_loss_that_is_no_number_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"not a number in epoch [0-9]: .* below 1e\+30"):
        learn(lr=1e30, out=tmp_path / "run")
    assert not (tmp_path / "run" / "summary.json").exists()


def test_what_needs_more_memory_is_refused_before_it_is_taken() -> None:
    with pytest.raises(BadInput, match="training these embeddings needs"):
        learn(memory="50MB")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"score": "complex", "dim": 5}, "give an even number"),
        ({"loss": "margin"}, "margin is 0"),
        ({"adversarial": 1.0}, "adversarial is for the loss logistic"),
        ({"unit_entities": True}, "unit_entities is for transe"),
        ({"dropout": 1.0}, "give a share from 0 up, and below 1"),
        ({"all_entities": True, "partitions": 4}, "all_entities needs every vector in memory"),
        ({"all_entities": True, "degree_share": 0.5}, "leave one out"),
        ({"score": "transx"}, "unknown score 'transx'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], line: str) -> None:
    with pytest.raises(BadInput, match=line):
        small_options(**options)


def test_a_number_is_no_triples() -> None:
    with pytest.raises(BadInput, match="embed takes a store's path, Triples or a Graph, not int"):
        siafu.embed(3)  # type: ignore[arg-type]


def test_the_bound_on_batches_under_way_is_kept() -> None:
    trainer = EmbeddingTrainer(families(), small_options(staleness=1))
    assert trainer.run_epoch().staleness == 0
    trainer = EmbeddingTrainer(families(), small_options(staleness=2))
    assert trainer.run_epoch().staleness <= 1


def test_every_score_that_can_be_asked_for_is_there() -> None:
    from siafu.embedding import embed_options
    from siafu.embedding.steps import losses

    assert set(embed_options.SCORES) == set(SCORES)
    assert set(embed_options.LOSSES) == set(losses.LOSSES)


def test_a_finished_run_that_goes_on_keeps_its_best_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {1: 0.2, 2: 0.6, 3: 0.3, 4: 0.4}

    def scores(self: Evaluator, embeddings: Any, split: str) -> RankScores:
        return replace(real(self, embeddings, split), mrr=found.get(len(asked) + 1, 0.1))

    asked: list[int] = []
    real = Evaluator.scores
    monkeypatch.setattr(Evaluator, "scores", scores)
    options = {**SMALL, "exact": True, "evaluate_every": 1, "out": tmp_path / "run"}
    monkeypatch.setattr(Progress, "epoch_ended", lambda self, metrics: asked.append(metrics.epoch))
    first = siafu.embed(families(), **{**options, "epochs": 2})
    asked[:] = [1, 2]
    again = siafu.embed(families(), **{**options, "epochs": 4}, resume=True)
    assert again.summary()["best_epoch"] == 2
    assert np.array_equal(first.embeddings.entities, again.embeddings.entities)


def test_times_of_epochs_and_evaluations_are_without_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    run_epoch, scores = EmbeddingTrainer.run_epoch, Evaluator.scores

    def compiled_for(seconds: float) -> None:
        nonlocal now
        with compiling("kernels"):
            now += seconds

    def slow_epoch(self: EmbeddingTrainer, rests: Any) -> Any:
        nonlocal now
        compiled_for(50)
        now += 2
        return run_epoch(self, rests)

    def slow_scores(self: Evaluator, *given: Any) -> RankScores:
        nonlocal now
        compiled_for(70)
        now += 3
        return scores(self, *given)

    monkeypatch.setattr(clock.time, "perf_counter", lambda: now)
    monkeypatch.setattr(EmbeddingTrainer, "run_epoch", slow_epoch)
    monkeypatch.setattr(Evaluator, "scores", slow_scores)
    run = learn(epochs=2, evaluate_every=1)
    assert [(epoch.seconds, epoch.evaluate_seconds) for epoch in run.history] == [(2.0, 3.0), (2.0, 3.0)]
