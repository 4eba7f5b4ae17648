"""EmbeddingTrainer: epochs over triples in memory, one after the other."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import Diverged
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embeddings import (
    BriefEmbeddings,
    Embeddings,
    first_entities,
    first_relations,
    widened_stream,
)
from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.steps.epoch import Batches, EpochLosses, EpochRunner
from siafu.embedding.steps.epoch_order import epoch_batches
from siafu.embedding.steps.float_bits import BRIEF, as_kind, table_type
from siafu.embedding.steps.lane import TrainedTables
from siafu.embedding.steps.negatives import EveryEntity, Negatives, NegativeSampler, generator
from siafu.embedding.steps.row_updates import RowOptimizer
from siafu.embedding.steps.scores import SCORES
from siafu.graph.triples import Triples
from siafu.graph.triples.triples import TripleRows
from siafu.report.files.large_tensors import StreamedTable

NEGATIVES = 4
"""Key of the random numbers that draw negatives."""

Pause = Callable[[], bool]
"""Whether an epoch should rest here, where its state can be saved."""

_LEG = 256  # batches from one place where an epoch can rest to the next


def never() -> bool:
    """No pause: the epoch runs through."""
    return False


class EmbeddingTrainer:
    """Learns embeddings of triples, with all vectors in memory.

    epoch:    how many are done
    position: batches done of the next one
    losses:   of these batches
    """

    def __init__(self, triples: Triples, options: EmbedOptions) -> None:
        self.triples = triples
        self.options = options
        self.epoch = 0
        self.position = 0
        self.losses = EpochLosses()
        score = SCORES[options.score]
        entities = first_entities(score, 0, triples.num_entities, options.dim, options.seed)
        relations = first_relations(
            score, triples.num_relations, options.dim, options.seed, reciprocal=options.reciprocal
        )
        self.tables = TrainedTables.of(
            RowOptimizer.of(
                options.optimizer,
                as_kind(entities, table_type(options.precision)),
                options.lr,
                unit_rows=options.unit_entities,
            ),
            RowOptimizer.of(options.optimizer, relations, options.lr),
            triples.num_relations,
        )
        if options.filter_negatives:
            self.tables.known = KnownTriples.of([triples.train], triples.num_relations)
        self._runner = EpochRunner(options, self.tables)
        self._sampler: Negatives = EveryEntity()
        if not options.all_entities:
            ends = triples.train[:, [0, 2]] if options.degree_share else None
            self._sampler = NegativeSampler(triples.num_entities, options.degree_share, ends)

    @property
    def embeddings(self) -> Embeddings:
        """The vectors as they are now."""
        kind = BriefEmbeddings if self.options.precision == "bf16" else Embeddings
        return kind(
            SCORES[self.options.score],
            self.tables.entities.table,
            self.tables.relations.table,
            self.triples.num_relations,
        )

    def run_epoch(self, pause: Pause = never) -> EpochLosses | None:
        """Go over all training triples once. None: it rests within the epoch; the next call goes on from there."""
        self.tables.set_lr(self.options.lr_in(self.epoch))
        batches = self._batches()
        while True:
            before = self.losses.batches
            self._runner.run(islice(batches, _LEG), self.losses)
            refuse_divergence(self.losses, self.epoch, self.options)
            done = self.losses.batches - before
            self.position += done
            if done < _LEG:
                break
            if pause():
                return None
        losses, self.losses = self.losses, EpochLosses()
        self.epoch, self.position = self.epoch + 1, 0
        return losses

    def _batches(self) -> Batches:
        options, rows = self.options, self.triples.train
        order = epoch_batches(len(rows), options.batch, options.seed, self.epoch)
        return self._drawn(rows.take(positions, axis=0) for positions in islice(order, self.position, None))

    def _drawn(self, batches: Iterator[TripleRows]) -> Batches:
        for number, batch in enumerate(batches, self.position):
            yield batch, self._sampler, generator(self.options.seed, NEGATIVES, self.epoch, number)

    def state(self) -> tuple[dict[str, NDArray[Any] | StreamedTable], dict[str, Any]]:
        """All that the next epoch depends on: arrays, and numbers."""
        arrays: dict[str, NDArray[Any] | StreamedTable] = {}
        for name, table in self._optimizers.items():
            arrays[name] = _kept(table.table)
            arrays |= {f"{name}.moment{k}": _kept(moment) for k, moment in enumerate(table.moments)}
        return arrays, {name: table.steps for name, table in self._optimizers.items()}

    def restore(self, arrays: dict[str, NDArray[Any]], steps: dict[str, int]) -> None:
        """Take the tables that `state` gave. ValueError: they are of other embeddings."""
        for name, table in self._optimizers.items():
            own = {name: table.table} | {f"{name}.moment{k}": each for k, each in enumerate(table.moments)}
            for each, found in own.items():
                if (
                    each not in arrays
                    or arrays[each].shape != found.shape
                    or arrays[each].dtype != np.float32
                ):
                    raise ValueError(f"it has no {each} of shape {list(found.shape)} and float32")
                found[:] = as_kind(arrays[each], found.dtype)
            table.steps = steps[name]

    @property
    def _optimizers(self) -> dict[str, RowOptimizer]:
        return {"entities": self.tables.entities, "relations": self.tables.relations}


def _kept(table: NDArray[Any]) -> NDArray[Any] | StreamedTable:
    """A table as a file has it: in float32, which bfloat16 comes back from as it was."""
    return table if table.dtype != BRIEF else widened_stream(table)


def refuse_divergence(losses: EpochLosses, epoch: int, options: EmbedOptions) -> None:
    """Refuse to go on with a loss that is no number; epoch: how many were done before."""
    if not np.isfinite(losses.total):
        raise Diverged(
            f"the loss is not a number in epoch {epoch + 1}: training diverged; "
            f"choose a learning rate below {options.lr:g} (lr, on the command line --lr)"
        )
