"""siafu.train_triples: learning triples by a model over their graph, on samples of it.

Entities have learnt vectors; a model makes rows of them along the edges (GraphSAGE …), and DistMult scores triples by these rows. Each
step draws the neighbourhoods of its entities alone, as MariusGNN does. Plain autograd with Siafu's kernels, in one process.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.base.unknown_keyword import refuse_unknown_keyword
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embeddings import Embeddings
from siafu.embedding.evaluation import Evaluator
from siafu.embedding.steps.scores import DISTMULT
from siafu.graph import Graph
from siafu.graph.triples import Triples
from siafu.nn.dropout import SampleDropout
from siafu.nn.layers.sage import GraphSAGE
from siafu.nn.model import GNN
from siafu.sampling.batch_graphs import BatchGraphs
from siafu.sampling.batches import epoch_batches
from siafu.sampling.fanouts import fanouts_for
from siafu.sampling.sampler import Sampler
from siafu.training.linking.best_epoch import mean_loss, repr_of_best, train_to_best
from siafu.training.linking.triple_training import TripleTraining

_FIRST = 0.1  # spread of the first vectors
_NEGATIVES = 22  # key of the random numbers, among those that other rooms draw
_BATCHES = 2**32  # of an epoch at most: dropout's masks go by both numbers


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


class TripleModel(nn.Module):
    """Vectors of entities and relations, and the model that makes rows of the former.

    entities:  [N, dim]; relations: [2 R, dim], the second half for questions about heads
    """

    def __init__(self, triples: Triples, encoder: GNN, dim: int) -> None:
        super().__init__()
        self.entities = nn.Parameter(torch.randn(triples.num_entities, dim) * _FIRST)
        self.relations = nn.Parameter(torch.randn(2 * triples.num_relations, dim) * _FIRST)
        self.encoder = encoder


@dataclass(frozen=True, eq=False)
class TripleRun:
    """A training on triples, done. The model has the weights of the best epoch: by validation triples, else the last."""

    model: TripleModel
    triples: Triples
    graph: Graph
    options: TripleTraining
    history: list[TripleEpoch]
    best: TripleEpoch

    def __repr__(self) -> str:
        return repr_of_best(self, self.triples.name)

    def embeddings(self) -> Embeddings:
        """Rows of all entities, over the whole graph, and vectors of relations, as `siafu.embed` has them."""
        return _embeddings(self.model, self.graph, self.triples)

    def summary(self) -> dict[str, Any]:
        """Results as JSON has them; metrics are those of the best epoch."""
        return {
            "dataset": self.triples.name,
            "model": type(self.model.encoder).__name__,
            **asdict(self.options),
            "epochs": len(self.history),
            "best_epoch": self.best.epoch,
            "train_loss": self.best.loss,
            **{f"val_{name}": value for name, value in (self.best.val or {}).items()},
            **{f"test_{name}": value for name, value in (self.best.test or {}).items()},
            "seconds_total": sum(each.seconds for each in self.history),
        }


def train_triples(
    triples: Triples,
    encoder: GNN | None = None,
    *,
    progress: Callable[[TripleEpoch], Any] = lambda epoch: None,
    **options: Any,
) -> TripleRun:
    """Train vectors and an encoder to score the triples of a knowledge graph above others with another head or tail.

    The loss of a triple is the cross-entropy of its tail among the step's drawn entities, and the same for its head. The graph
    has an edge both ways for every training triple.

    encoder:  one of Siafu's models, from `dim` columns to `dim`; None: GraphSAGE with a layer for each fanout
    progress: called with every epoch
    options:  fields of `siafu.training.linking.triple_training.TripleTraining`
    """
    if not isinstance(triples, Triples):
        raise BadInput(f"train_triples takes siafu.Triples, not {type(triples).__name__}")
    refuse_unknown_keyword(options, TripleTraining, "siafu.train_triples")
    asked = TripleTraining(**options)
    if asked.patience is not None and not len(triples.valid):
        raise BadInput("patience needs validation triples, and there are none: leave it out")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(asked.seed)
        model = TripleModel(triples, _encoder(encoder, asked), asked.dim)
    steps = _Steps(triples, model, asked)
    history, best = train_to_best(model, asked, steps.run_epoch, "mrr", progress)
    return TripleRun(model, triples, steps.graph, asked, history, best or history[-1])


def _encoder(given: GNN | None, asked: TripleTraining) -> GNN:
    if given is None:
        return GraphSAGE(asked.dim, asked.dim, len(asked.fanout.split(",")), asked.dim)
    if not isinstance(given, GNN):
        raise BadInput(
            f"encoder is a {type(given).__name__}: give one of siafu.nn's models, such as GraphSAGE"
        )
    config = given.config()
    ends = config["in_channels"], config["out_channels"] or config["hidden_channels"]
    if ends != (asked.dim, asked.dim):
        raise BadInput(
            f"the encoder goes from {ends[0]} columns to {ends[1]}, and dim is {asked.dim}: all must be equal"
        )
    for layer in given.convs:
        gather: Any = layer.gather
        if not gather.takes_samples:
            raise BadInput(
                f"{gather.title} cannot be estimated from a sample of the edges: choose another encoder"
            )
    if config["norm"] not in (None, "layer_norm"):
        raise BadInput(
            "the encoder has batch norms, which vectors of drawn entities have not the rows for: choose layer_norm"
        )
    return given


class _Steps:
    """Epochs of a training: samples, losses, updates."""

    def __init__(self, triples: Triples, model: TripleModel, asked: TripleTraining) -> None:
        self._triples, self._model, self._asked = triples, model, asked
        self._train = np.asarray(triples.train, np.int64)
        heads, tails = self._train[:, 0], self._train[:, 2]
        self.graph = Graph.from_edges(
            np.concatenate([heads, tails]),
            np.concatenate([tails, heads]),
            num_vertices=triples.num_entities,
            name=triples.name,
        )
        gathers = [layer.gather for layer in model.encoder.convs]
        self._sampler = Sampler(self.graph, fanouts_for(asked.fanout, len(gathers)), asked.seed)
        self._graphs = BatchGraphs(self.graph, gathers, torch.float32, sliced=True, edge_rows=False)  # type: ignore[arg-type]
        self._optimizer = torch.optim.Adagrad(model.parameters(), lr=asked.lr)
        self._evaluator = Evaluator(triples, EmbedOptions())

    def run_epoch(self, number: int, evaluated: bool) -> TripleEpoch:
        """Run an epoch, counted from 0, and evaluate it on wish."""
        began, asked = time.perf_counter(), self._asked
        self._model.train()
        batches = epoch_batches(np.arange(len(self._train)), asked.batch, asked.seed, number)
        losses = [self._step(self._train[rows], number, place) for place, rows in enumerate(batches)]
        seconds = time.perf_counter() - began
        val, test = (self._measures(split) if evaluated else None for split in ("valid", "test"))
        return TripleEpoch(number + 1, mean_loss(losses, number + 1, asked.lr), val, test, seconds)

    def _step(self, rows: NDArray[np.int64], epoch: int, number: int) -> float:
        """Update by some triples."""
        seeds = np.random.SeedSequence([self._asked.seed, _NEGATIVES, epoch, number])
        random = np.random.Generator(np.random.Philox(seeds))
        drawn = random.integers(0, self._triples.num_entities, self._asked.negatives)
        entities, places = np.unique(np.concatenate([rows[:, 0], rows[:, 2], drawn]), return_inverse=True)
        encoded = self._encoded(entities, epoch, number)[torch.from_numpy(places)]
        head, tail, others = encoded.split([len(rows), len(rows), len(drawn)])
        relations, backward = torch.from_numpy(rows[:, 1]), self._triples.num_relations
        loss = _loss(head * self._model.relations[relations], tail, others) + _loss(
            tail * self._model.relations[relations + backward], head, others
        )
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.item()

    def _encoded(self, entities: NDArray[np.int64], epoch: int, number: int) -> Tensor:
        """Rows of some entities, over a sample of their neighbourhoods."""
        sample = self._sampler.sample(entities, epoch, number)
        key = torch.tensor([self._asked.seed, epoch + number * _BATCHES], dtype=torch.int64)
        vertices = torch.from_numpy(sample.vertices)
        with SampleDropout(key, vertices):
            out: Tensor = self._model.encoder(self._graphs.of(sample, None), self._model.entities[vertices])
        return out

    def _measures(self, split: str) -> dict[str, float] | None:
        scores = self._evaluator.scores_or_none(_embeddings(self._model, self.graph, self._triples), split)
        return (
            None
            if scores is None
            else {"mrr": scores.mrr, **{f"hits_at_{k}": share for k, share in scores.hits.items()}}
        )


def _loss(queries: Tensor, answers: Tensor, others: Tensor) -> Tensor:
    """Cross-entropy of each answer among the others, the mean over queries."""
    own = (queries * answers).sum(1, keepdim=True)
    first = torch.zeros(len(queries), dtype=torch.int64)
    return F.cross_entropy(torch.cat([own, queries @ others.t()], 1), first)


def _embeddings(model: TripleModel, graph: Graph, triples: Triples) -> Embeddings:
    model.eval()
    with torch.no_grad():
        rows = model.encoder(graph, model.entities).contiguous()
    return Embeddings(DISTMULT, rows.numpy(), model.relations.detach().numpy(), triples.num_relations)
