"""EmbeddingTrainer: epochs over triples in memory, one after the other."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import Diverged
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embeddings import Embeddings, first_entities, first_relations
from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.steps.epoch import Batches, EpochLosses, EpochRunner
from siafu.embedding.steps.epoch_order import epoch_batches
from siafu.embedding.steps.lane import TrainedTables
from siafu.embedding.steps.negatives import NegativeSampler, generator
from siafu.embedding.steps.row_updates import RowOptimizer
from siafu.embedding.steps.scores import SCORES
from siafu.graph.triples import Triples
from siafu.graph.triples.triples import TripleRows

NEGATIVES = 4
"""Key of the random numbers that draw negatives."""


class EmbeddingTrainer:
    """Learns embeddings of triples, with all vectors in memory.

    epoch: how many are done
    """

    def __init__(self, triples: Triples, options: EmbedOptions) -> None:
        self.triples = triples
        self.options = options
        self.epoch = 0
        score = SCORES[options.score]
        entities = first_entities(score, 0, triples.num_entities, options.dim, options.seed)
        relations = first_relations(
            score, triples.num_relations, options.dim, options.seed, reciprocal=options.reciprocal
        )
        self.tables = TrainedTables.of(
            RowOptimizer.of(options.optimizer, entities, options.lr, unit_rows=options.unit_entities),
            RowOptimizer.of(options.optimizer, relations, options.lr),
            triples.num_relations,
        )
        if options.filter_negatives:
            self.tables.known = KnownTriples.of([triples.train], triples.num_relations)
        self._runner = EpochRunner(options, self.tables)
        self._sampler = NegativeSampler(
            triples.num_entities,
            options.degree_share,
            triples.train[:, [0, 2]] if options.degree_share else None,
        )

    @property
    def embeddings(self) -> Embeddings:
        """The vectors as they are now."""
        return Embeddings(
            SCORES[self.options.score],
            self.tables.entities.table,
            self.tables.relations.table,
            self.triples.num_relations,
        )

    def run_epoch(self) -> EpochLosses:
        """Go over all training triples once."""
        losses = EpochLosses()
        self._runner.run(self._batches(), losses)
        refuse_divergence(losses, self.epoch, self.options)
        self.epoch += 1
        return losses

    def _batches(self) -> Batches:
        options, rows = self.options, self.triples.train
        order = epoch_batches(len(rows), options.batch, options.seed, self.epoch)
        return self._drawn(rows[positions] for positions in order)

    def _drawn(self, batches: Iterator[TripleRows]) -> Batches:
        for number, batch in enumerate(batches):
            yield batch, self._sampler, generator(self.options.seed, NEGATIVES, self.epoch, number)

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """All that the next epoch depends on: arrays, and numbers."""
        arrays = {}
        for name, table in self._optimizers.items():
            arrays[name] = table.table
            arrays |= {f"{name}.moment{k}": moment for k, moment in enumerate(table.moments)}
        return arrays, {name: table.steps for name, table in self._optimizers.items()}

    def restore(self, epoch: int, arrays: dict[str, NDArray[Any]], steps: dict[str, int]) -> None:
        """Go on from a state that `state` gave. ValueError: it is of other tables."""
        for name, found in self.state()[0].items():
            if name not in arrays or (arrays[name].shape, arrays[name].dtype) != (found.shape, found.dtype):
                raise ValueError(f"it has no {name} of shape {list(found.shape)} and {found.dtype}")
            found[:] = arrays[name]
        for name, table in self._optimizers.items():
            table.steps = steps[name]
        self.epoch = epoch

    @property
    def _optimizers(self) -> dict[str, RowOptimizer]:
        return {"entities": self.tables.entities, "relations": self.tables.relations}


def refuse_divergence(losses: EpochLosses, epoch: int, options: EmbedOptions) -> None:
    """Refuse to go on with a loss that is no number; epoch: how many were done before."""
    if not np.isfinite(losses.total):
        raise Diverged(
            f"the loss is not a number in epoch {epoch + 1}: training diverged; "
            f"choose a learning rate below {options.lr:g} (lr, on the command line --lr)"
        )
