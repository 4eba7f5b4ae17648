"""TripleSteps: epochs of a training on triples: samples, losses, updates, evaluations."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embeddings import Embeddings
from siafu.embedding.evaluation import Evaluator
from siafu.embedding.ranking import RankScores
from siafu.embedding.steps.scores import DISTMULT
from siafu.graph import Graph
from siafu.graph.triples import Triples
from siafu.graph.triples.triples import TripleRows
from siafu.nn.dropout import SampleDropout
from siafu.nn.model import GNN
from siafu.sampling.batch_graphs import BatchGraphs
from siafu.sampling.batches import epoch_batches
from siafu.sampling.fanouts import fanouts_for
from siafu.sampling.picks import ALL
from siafu.sampling.sampler import Sampler
from siafu.training.linking.best_epoch import mean_loss
from siafu.training.linking.entity_vectors import EntityVectors, Residents, VectorState, mapped_rows
from siafu.training.linking.triple_training import TripleTraining

ENCODED_EDGES = 1 << 16
"""Edges of the entities whose rows are made at once, where the vectors are on disk."""

_NEGATIVES = 22  # key of the random numbers, among those that other rooms draw
_BATCHES = 2**32  # of an epoch at most: dropout's masks, and orders of its parts, go by both numbers


@dataclass(frozen=True, slots=True)
class TripleEpoch:
    """One epoch.

    epoch:     counted from 1
    loss:      mean over its steps
    val, test: mrr and hits_at_1, _3, _10, filtered, both ways; None: not evaluated, or there are no such triples
    """

    epoch: int
    loss: float
    val: dict[str, float] | None
    test: dict[str, float] | None
    seconds: float


class KeptRows:
    """Rows that nobody changes: a copy of them is they themselves."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        self.rows = rows

    def __deepcopy__(self, memo: dict[int, Any]) -> "KeptRows":
        return self


class TripleSteps:
    """Epochs of a training.

    weights: what is learnt beside the entities' vectors: `relations` and `encoder`
    graph:   an edge both ways for every training triple
    """

    def __init__(
        self, triples: Triples, weights: "TripleWeights", vectors: EntityVectors, asked: TripleTraining
    ) -> None:
        self._triples, self._vectors, self._asked = triples, vectors, asked
        self.weights = weights
        self._gathers: list[Any] = [layer.gather for layer in weights.encoder.convs]
        self._fanouts = fanouts_for(asked.fanout, len(self._gathers))
        self.graph = graph_of(triples.train, triples.num_entities, triples.name)
        self._optimizer = torch.optim.Adagrad(weights.parameters(), lr=asked.lr)
        self._evaluator = Evaluator(triples, EmbedOptions())
        self._loaded: NDArray[np.float32] | None = None

    def run_epoch(self, number: int, evaluated: bool) -> TripleEpoch:
        """Run an epoch, counted from 0, and evaluate it on wish."""
        began, asked = time.perf_counter(), self._asked
        self.weights.train()
        losses: list[float] = []
        for part, state in enumerate(self._vectors.states(number)):
            near = self._sampled(state)
            places = epoch_batches(state.trained, asked.batch, asked.seed, number + part * _BATCHES)
            losses += [
                self._step(near, self._triples.train.take(each, axis=0), number, first)
                for first, each in enumerate(places, len(losses))
            ]
        seconds = time.perf_counter() - began
        val, test = self._measures() if evaluated else (None, None)
        return TripleEpoch(number + 1, mean_loss(losses, number + 1, asked.lr), val, test, seconds)

    def state_dict(self) -> Mapping[str, Any]:
        """All that is learnt, as it is now."""
        return {"weights": self.weights.state_dict(), "entities": KeptRows(self._vectors.kept())}

    def load_state_dict(self, kept: Mapping[str, Any]) -> None:
        """Take what `state_dict` gave: `entities` are those from now on."""
        self.weights.load_state_dict(kept["weights"])
        self._loaded = kept["entities"].rows

    def eval(self) -> None:
        self.weights.eval()

    @property
    def entities(self) -> NDArray[np.float32]:
        """[N, dim] the vectors that were loaded, else those of the last epoch."""
        return self._vectors.whole() if self._loaded is None else self._loaded

    def _sampled(self, state: VectorState) -> "_Near":
        residents = state.residents
        if residents.are_all:
            graph = self.graph
        else:
            graph = graph_of(self._numbered(residents, state.near), residents.count, self._triples.name)
        sampler = Sampler(graph, self._fanouts, self._asked.seed)
        return _Near(residents, state.buckets, sampler, _graphs(graph, self._gathers))

    def _numbered(self, residents: Residents, places: NDArray[np.int64]) -> TripleRows:
        rows = self._triples.train.take(places, axis=0)
        for column in (0, 2):
            rows[:, column] = residents.numbers(rows[:, column])
        return rows

    def _step(self, near: "_Near", rows: TripleRows, epoch: int, number: int) -> float:
        """Update by some triples."""
        seeds = np.random.SeedSequence([self._asked.seed, _NEGATIVES, epoch, number])
        random = np.random.Generator(np.random.Philox(seeds))
        heads, tails = (near.residents.numbers(rows[:, column]) for column in (0, 2))
        drawn = random.integers(0, near.residents.count, self._asked.negatives)
        entities, places = np.unique(np.concatenate([heads, tails, drawn]), return_inverse=True)
        sample = near.sampler.sample(entities, epoch, number)
        read = near.residents.rows(sample.vertices)
        base = torch.from_numpy(self._vectors.read(read)).requires_grad_()
        key = torch.tensor([self._asked.seed, epoch + number * _BATCHES], dtype=torch.int64)
        with SampleDropout(key, torch.from_numpy(sample.vertices)):
            encoded = self.weights.encoder(near.graphs.of(sample, None), base)[torch.from_numpy(places)]
        head, tail, others = encoded.split([len(rows), len(rows), len(drawn)])
        relations, backward = torch.from_numpy(rows[:, 1].astype(np.int64)), self._triples.num_relations
        weights = draw_weights(near.residents, near.buckets, heads, tails, drawn)
        weights_back = draw_weights(near.residents, near.buckets.T, tails, heads, drawn)
        loss = _loss(head * self.weights.relations[relations], tail, others, weights) + _loss(
            tail * self.weights.relations[relations + backward], head, others, weights_back
        )
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        assert base.grad is not None
        self._vectors.update(read, base.grad.numpy())
        return loss.item()

    def _measures(self) -> tuple[dict[str, float] | None, dict[str, float] | None]:
        triples = self._triples
        if not len(triples.valid) + len(triples.test):
            return None, None
        found = embeddings_of(self.weights, self._vectors.whole(), self.graph, triples, self._asked)
        valid, test = (self._evaluator.scores_or_none(found, split) for split in ("valid", "test"))
        return _told(valid), _told(test)


@dataclass(frozen=True, slots=True)
class _Near:
    """Neighbours of the entities in memory, to be drawn; the buckets that are trained are as `VectorState` has them."""

    residents: Residents
    buckets: NDArray[np.bool_]
    sampler: Sampler
    graphs: BatchGraphs


class TripleWeights(nn.Module):
    """Weights that are learnt beside the entities' vectors.

    relations: [2 R, dim], the second half for questions about heads
    """

    def __init__(self, relations: Tensor, encoder: GNN) -> None:
        super().__init__()
        self.relations, self.encoder = nn.Parameter(relations), encoder


def graph_of(triples: TripleRows, num_entities: int, name: str) -> Graph:
    """An edge both ways for every triple."""
    heads, tails = triples[:, 0], triples[:, 2]
    return Graph.from_edges(
        np.concatenate([heads, tails]), np.concatenate([tails, heads]), num_vertices=num_entities, name=name
    )


def embeddings_of(
    weights: Any, entities: NDArray[np.float32], graph: Graph, triples: Triples, asked: TripleTraining
) -> Embeddings:
    """Rows of all entities, over the whole graph; with vectors on disk, they are made a few at a time, in a file."""
    encoder: GNN = weights.encoder
    encoder.eval()
    with torch.no_grad():
        if asked.partitions is None:
            rows = encoder(graph, torch.from_numpy(entities)).contiguous().numpy()
        else:
            rows = _encoded_on_disk(encoder, graph, entities, Path(asked.scratch_directory))
    return Embeddings(DISTMULT, rows, weights.relations.detach().numpy(), triples.num_relations)


def draw_weights(
    residents: Residents,
    buckets: NDArray[np.bool_],
    given: NDArray[np.int64],
    answers: NDArray[np.int64],
    drawn: NDArray[np.int64],
) -> Tensor | None:
    """[triples, drawn] logarithms of how often each drawn entity counts beside an answer; None: all count once.

    Two remedies, half of the weight each, for what is drawn from a part of the entities:

    - A triple's own two partitions are always in memory: of entities drawn from there, most would be from these, in every epoch. So
      those from its own partitions count together as their share of all entities is; the others, which change from epoch to epoch,
      stand for all the rest.
    - Answers are of the partitions whose buckets are trained now: entities of others would only be pushed away, and come back later.
      So those from partitions that answer now count alike, and others do not.

    buckets: [partitions of what is given, those of answers] whether such triples are trained now
    given, answers: both ends of each triple, and the drawn entities, by their numbers here
    """
    if residents.are_all:
        return None
    layout, every = residents.layout, residents.layout.num_entities
    pairs = residents.partition_of(given) * layout.partitions + residents.partition_of(answers)
    kinds, kind_of = np.unique(pairs, return_inverse=True)
    ours, theirs = np.divmod(kinds, layout.partitions)
    sizes = np.array([layout.count(each) for each in range(layout.partitions)])
    own = sizes[ours] + np.where(ours == theirs, 0, sizes[theirs])
    others = residents.count - own
    own_weight = np.where(others > 0, residents.count / every, 1.0)
    other_weight = (every - own) / every * residents.count / np.maximum(others, 1)
    at = residents.partitions
    is_own = (at == ours[:, None]) | (at == theirs[:, None])
    by_share = np.where(is_own, own_weight[:, None], other_weight[:, None])
    by_answers = (buckets * (residents.count / np.maximum(buckets @ sizes, 1))[:, None])[ours][:, at]
    weights = np.log((by_share + by_answers) / 2).astype(np.float32)
    return torch.from_numpy(weights[kind_of[:, None], drawn % len(at)])


def _loss(queries: Tensor, answers: Tensor, others: Tensor, weights: Tensor | None) -> Tensor:
    """Cross-entropy of each answer among the others, the mean over queries."""
    own = (queries * answers).sum(1, keepdim=True)
    first = torch.zeros(len(queries), dtype=torch.int64)
    scores = queries @ others.t()
    return F.cross_entropy(torch.cat([own, scores if weights is None else scores + weights], 1), first)


def _told(scores: RankScores | None) -> dict[str, float] | None:
    if scores is None:
        return None
    return {"mrr": scores.mrr, **{f"hits_at_{k}": share for k, share in scores.hits.items()}}


def _graphs(graph: Graph, gathers: list[Any]) -> BatchGraphs:
    return BatchGraphs(graph, gathers, torch.float32, sliced=True, edge_rows=False)


def _encoded_on_disk(
    encoder: GNN, graph: Graph, entities: NDArray[np.float32], scratch: Path
) -> NDArray[np.float32]:
    """Rows of all entities, over all their in-edges."""
    gathers: list[Any] = [layer.gather for layer in encoder.convs]
    sampler, graphs = Sampler(graph, [ALL] * len(gathers)), _graphs(graph, gathers)
    out = mapped_rows(scratch, *entities.shape)
    for first, last in _ranges(graph.indptr):
        sample = sampler.sample(np.arange(first, last))
        read = torch.from_numpy(entities[sample.vertices])
        out[first:last] = encoder(graphs.of(sample, None), read)[: last - first].numpy()
    return out


def _ranges(indptr: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """First and last vertices whose in-edges are together about as many as are taken at once."""
    first, vertices = 0, len(indptr) - 1
    while first < vertices:
        end = int(np.searchsorted(indptr, indptr[first] + ENCODED_EDGES, side="right")) - 1
        last = min(max(end, first + 1), first + ENCODED_EDGES)
        yield first, last
        first = last
