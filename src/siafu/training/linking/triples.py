"""siafu.train_triples: learning triples by a model over their graph, on samples of it.

Entities have learnt vectors; a model makes rows of them along the edges (GraphSAGE …), and DistMult scores triples by these rows. Each
step draws the neighbourhoods of its entities alone, as MariusGNN does. Plain autograd with Siafu's kernels, in one process.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.base.unknown_keyword import refuse_unknown_keyword
from siafu.embedding.embeddings import Embeddings
from siafu.graph import Graph
from siafu.graph.triples import Triples
from siafu.nn.layers.sage import GraphSAGE
from siafu.nn.model import GNN
from siafu.training.linking.best_epoch import repr_of_best, train_to_best
from siafu.training.linking.entity_vectors import EntityVectors, VectorsInMemory, VectorsOnDisk
from siafu.training.linking.triple_memory import refuse_more_than_memory
from siafu.training.linking.triple_steps import TripleEpoch, TripleSteps, TripleWeights, embeddings_of
from siafu.training.linking.triple_training import TripleTraining

_FIRST = 0.1  # spread of the first vectors


class TripleModel(nn.Module):
    """Vectors of entities and relations, and the model that makes rows of the former.

    entities:  [N, dim], of a mapped file if they were learnt on disk
    relations: [2 R, dim], the second half for questions about heads
    """

    def __init__(self, entities: Tensor, weights: TripleWeights) -> None:
        super().__init__()
        self.entities = nn.Parameter(entities)
        self.relations, self.encoder = weights.relations, weights.encoder


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
        self.model.eval()
        rows = self.model.entities.detach().numpy()
        return embeddings_of(self.model, rows, self.graph, self.triples, self.options)

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
    options:  fields of `siafu.training.linking.triple_training.TripleTraining`; with `partitions`, entities' vectors are on disk
    """
    if not isinstance(triples, Triples):
        raise BadInput(f"train_triples takes siafu.Triples, not {type(triples).__name__}")
    refuse_unknown_keyword(options, TripleTraining, "siafu.train_triples")
    asked = TripleTraining(**options)
    if asked.patience is not None and not len(triples.valid):
        raise BadInput("patience needs validation triples, and there are none: leave it out")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(asked.seed)
        chosen = _encoder(encoder, asked)
        refuse_more_than_memory(triples, asked, len(chosen.convs))
        kind = VectorsInMemory if asked.partitions is None else VectorsOnDisk
        vectors: EntityVectors = kind(_first(asked.dim), triples.train, triples.num_entities, asked)
        relations = torch.randn(2 * triples.num_relations, asked.dim) * _FIRST
    try:
        steps = TripleSteps(triples, TripleWeights(relations, chosen), vectors, asked)
        history, best = train_to_best(steps, asked, steps.run_epoch, "mrr", progress)
        model = TripleModel(torch.from_numpy(steps.entities), steps.weights)
    finally:
        vectors.close()
    model.eval()
    return TripleRun(model, triples, steps.graph, asked, history, best or history[-1])


def _first(dim: int) -> Callable[[int], NDArray[np.float32]]:
    """Draws vectors, one after the other, from PyTorch's random numbers."""

    def drawn(count: int) -> NDArray[np.float32]:
        found: NDArray[np.float32] = (torch.randn(count, dim) * _FIRST).numpy()
        return found

    return drawn


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
