"""Evaluator: filtered ranks of a knowledge graph's held-out triples."""

from functools import cached_property

import numpy as np

from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embeddings import Embeddings
from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.ranking import RankScores, rank_triples
from siafu.graph.triples import Triples
from siafu.objective.metric import Metric

MRR = Metric("mrr", is_share=False)
"""The mean reciprocal rank, filtered, both ways: what the best epoch is chosen by."""


class Evaluator:
    """Ranks the triples of a split among all entities; those of all splits are known."""

    def __init__(self, triples: Triples, options: EmbedOptions) -> None:
        self._triples = triples
        self._ties = options.ties

    @cached_property
    def _known(self) -> KnownTriples:
        triples = self._triples
        asked = np.concatenate([triples.valid, triples.test])
        parts = [triples.train, triples.valid, triples.test]
        return KnownTriples.of(parts, triples.num_relations, asked)

    def scores(self, embeddings: Embeddings, split: str) -> RankScores:
        """MRR and Hits@k of a split."""
        rows = getattr(self._triples, split)
        return RankScores.of(rank_triples(embeddings, rows, self._known, ties=self._ties))

    def scores_or_none(self, embeddings: Embeddings, split: str) -> RankScores | None:
        """The same; None: the split has no triples."""
        return self.scores(embeddings, split) if len(getattr(self._triples, split)) else None
