"""Evaluator: filtered ranks of a knowledge graph's held-out triples."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embeddings import Embeddings
from siafu.embedding.known_triples import KnownTriples
from siafu.embedding.ranking import RankScores, rank_triples
from siafu.embedding.sampled_ranking import draw_candidates, rank_among
from siafu.graph.triples import Triples
from siafu.objective.metric import Metric

MRR = Metric("mrr", is_share=False)
"""The mean reciprocal rank, filtered, both ways: what the best epoch is chosen by."""


class Evaluator:
    """Ranks the triples of a split among all entities, or a sample; those of all splits are known."""

    def __init__(self, triples: Triples, options: EmbedOptions) -> None:
        self._triples = triples
        self._options = options

    @cached_property
    def _known(self) -> KnownTriples:
        triples = self._triples
        asked = np.concatenate([triples.valid, triples.test])
        parts = [triples.train, triples.valid, triples.test]
        return KnownTriples.of(parts, triples.num_relations, asked)

    @cached_property
    def _candidates(self) -> NDArray[np.int64] | None:
        """The same in every epoch, so that epochs can be compared."""
        count, every = self._options.candidates, self._triples.num_entities
        return None if count is None or count >= every else draw_candidates(every, count, self._options.seed)

    def scores(self, embeddings: Embeddings, split: str) -> RankScores:
        """MRR and Hits@k of a split."""
        rows, ties = getattr(self._triples, split), self._options.ties
        if self._candidates is None:
            return RankScores.of(rank_triples(embeddings, rows, self._known, ties=ties))
        return RankScores.of(rank_among(embeddings, rows, self._candidates, self._known, ties=ties))

    def scores_or_none(self, embeddings: Embeddings, split: str) -> RankScores | None:
        """The same; None: the split has no triples."""
        return self.scores(embeddings, split) if len(getattr(self._triples, split)) else None
