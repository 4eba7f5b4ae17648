"""Triples learnt by a model over samples of their graph."""

import numpy as np
import pytest
import torch

import siafu
from siafu.base.errors import BadInput
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.evaluation import Evaluator

ENTITIES, GROUPS = 60, 6
FAST = {"dim": 8, "batch": 64, "negatives": 16}


def make_triples(*, held_out=40):
    """Relation r leads from each group of entities to the r-th after it."""
    random = np.random.default_rng(0)
    heads, relations = random.integers(0, ENTITIES, 700), random.integers(0, 3, 700)
    tails = (heads + relations + GROUPS * random.integers(0, ENTITIES // GROUPS, 700)) % ENTITIES
    rows = np.unique(np.stack([heads, relations, tails], 1), axis=0)
    random.shuffle(rows)
    parts = rows[: 2 * held_out], rows[2 * held_out :]
    return siafu.Triples.from_arrays(
        parts[1], parts[0][:held_out], parts[0][held_out:], num_entities=ENTITIES
    )


def same_model(one, other):
    return all(
        torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_vectors_and_encoder_learn_to_rank_held_out_triples():
    triples = make_triples()
    run = siafu.train_triples(triples, epochs=12, fanout="5", **FAST)
    losses = [each.loss for each in run.history]
    assert losses[-1] < 0.8 * losses[0]
    by_chance = np.mean(1 / np.arange(1, ENTITIES + 1))
    assert run.summary()["test_mrr"] > 2 * by_chance
    assert run.best.val["mrr"] == max(each.val["mrr"] for each in run.history)


def test_embeddings_are_those_that_the_metrics_were_measured_with():
    triples = make_triples()
    run = siafu.train_triples(triples, epochs=2, fanout="3,2", **FAST)
    found = Evaluator(triples, EmbedOptions()).scores(run.embeddings(), "test")
    assert run.summary()["test_mrr"] == found.mrr and run.summary()["test_hits_at_10"] == found.hits[10]


def test_a_seed_decides_every_bit():
    triples = make_triples()
    encoder = [siafu.nn.GraphSAGE(8, 8, 1, 8, dropout=0.0) for _ in range(2)]
    encoder[1].load_state_dict(encoder[0].state_dict())
    one, two = (siafu.train_triples(triples, each, epochs=2, fanout="4", **FAST) for each in encoder)
    other = siafu.train_triples(triples, epochs=2, fanout="4", seed=1, **FAST)
    assert same_model(one.model, two.model) and not same_model(one.model, other.model)


def test_without_validation_triples_the_last_epoch_counts():
    triples = make_triples()
    alone = siafu.Triples.from_arrays(triples.train, num_entities=ENTITIES)
    run = siafu.train_triples(alone, epochs=2, fanout="3", **FAST)
    assert run.best.epoch == 2 and run.best.val is None
    with pytest.raises(BadInput, match="patience needs validation triples"):
        siafu.train_triples(alone, patience=1)


@pytest.mark.parametrize(
    ("encoder", "options", "words"),
    [
        (torch.nn.Linear(8, 8), {}, "encoder is a Linear"),
        (siafu.nn.GCN(4, 8, 1, 8), {}, "from 4 columns to 8, and dim is 8"),
        (siafu.nn.GCN(8, 8, 2, 8, norm="batch_norm"), {"fanout": "2,2"}, "choose layer_norm"),
        (siafu.nn.GCN(8, 8, 2, 8), {"fanout": "2"}, "fanout is 2, and the model gathers 2 times"),
        (None, {"fanout": "x"}, "fanout is 'x'"),
        (None, {"nonsense": 1}, "no keyword nonsense"),
        (None, {"lr": 0.0}, "give a learning rate above 0"),
        (None, {"buffer": 2}, "buffer is for vectors in partitions, and there are none"),
        (None, {"scratch": "."}, "scratch is for vectors in partitions, and there are none"),
        (None, {"partitions": 4, "buffer": 5}, "buffer is 5, and there are 4 partitions: give at most that"),
        (None, {"partitions": 4, "buffer": 1}, "buffer is 1, and a triple is of two partitions"),
        (None, {"partitions": 4, "order": "gamma"}, "gamma"),
        (None, {"partitions": 4, "scratch": "/nowhere/at/all"}, "/nowhere/at/all"),
        (None, {"memory": "1kB"}, "training these triples needs .* and memory is 1kB: .* with partitions"),
        (None, {"memory": "1kB", "partitions": 4}, "needs .* and memory is 1kB: .* more partitions"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(encoder, options, words):
    with pytest.raises(BadInput, match=words):
        siafu.train_triples(make_triples(), encoder, **{**FAST, **options})


def test_only_triples_are_taken():
    with pytest.raises(BadInput, match=r"takes siafu.Triples, not int"):
        siafu.train_triples(3)
