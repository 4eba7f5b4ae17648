"""EmbeddingRun: one training of embeddings, done, and what it can answer."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.dataset_names import CATALOGUE_NAMES
from siafu.base.errors import BadInput
from siafu.embedding.embeddings import Embeddings
from siafu.embedding.questions.answers import Answers
from siafu.embedding.questions.vector_files import export_vectors
from siafu.embedding.questions.vertex_features import with_vectors
from siafu.embedding.steps.scores import SCORES
from siafu.graph import Graph
from siafu.graph.triples import Triples, triples_at
from siafu.report.files.large_tensors import load_tables
from siafu.report.files.metrics import EpochMetrics, read_metrics
from siafu.report.files.run_directory import RunDirectory

KIND = "embedding"
"""The `kind` in the config of a run of `siafu embed`."""


@dataclass(frozen=True, eq=False)
class EmbeddingRun:
    """One training of embeddings, done.

    embeddings: vectors of the best epoch: of the highest filtered MRR on the validation triples; without any, of the last
    history:    what each epoch measured; `val_accuracy` is the MRR
    config:     what was asked for: data, options
    found:      what came of it, as `summary` gives it
    triples:    what it was trained on; None: the store is no longer where it was
    path:       the run's directory; None: it was not saved
    """

    embeddings: Embeddings
    history: list[EpochMetrics]
    config: dict[str, Any]
    found: dict[str, Any]
    triples: Triples | None = field(default=None, repr=False)
    path: Path | None = None

    def __repr__(self) -> str:
        found = self.found
        scored = "" if found["test_mrr"] is None else f", test MRR {found['test_mrr']:.4f}"
        return f"EmbeddingRun({found['score']}, {found['dim']} wide, on {found['dataset']}, {len(self.history)} epochs{scored})"

    @classmethod
    def load(cls, path: str | Path, store: str | Path | None = None) -> "EmbeddingRun":
        """A finished run from its directory.

        store: where its triples are now; by default where they were
        """
        directory = RunDirectory(Path(path))
        config = directory.config()
        if config.get("kind") != KIND:
            raise BadInput(
                f"{path} holds a trained model, not embeddings: use 'siafu predict' or 'siafu evaluate'"
            )
        summary = directory.summary()
        embeddings = load_embeddings(directory, config)
        triples = _triples_of(config, store)
        return cls(embeddings, read_metrics(directory.metrics_path), config, summary, triples, directory.path)

    def summary(self) -> dict[str, Any]:
        """Results of the run, as JSON takes them."""
        return dict(self.found)

    @property
    def answers(self) -> Answers:
        """Questions by the names of entities and relations."""
        triples = self.triples
        ids, relations = (None, None) if triples is None else (triples.ids, triples.relations)
        return Answers(self.embeddings, ids, relations, triples)

    def predict(
        self, head: Any = None, relation: Any = None, tail: Any = None, *, top: int = 10, new: bool = False
    ) -> list[tuple[Any, float]]:
        """The likeliest tails of (head, relation, ?) or heads of (?, relation, tail), with their scores, best first.

        new: leave out entities that make a triple of the training, validation or test data
        """
        return self.answers.predict(head, relation, tail, top=top, new=new)

    def neighbours(self, entity: Any, *, top: int = 10) -> list[tuple[Any, float]]:
        """The entities whose vectors point in the most similar direction, with the cosine, best first."""
        return self.answers.neighbours(entity, top=top)

    def score(self, triples: list[tuple[Any, Any, Any]]) -> NDArray[np.float32]:
        """The score of each triple (head, relation, tail), by names: the higher, the likelier."""
        return self.answers.score(triples)

    def export(self, path: str | Path, *, relations: bool = False) -> None:
        """Write the vectors of all entities, or of all relations, with their names.

        path: ends in .parquet (columns id and vector), .npy (and the names in a file that ends in .ids.npy), or .txt or .vec
              (word2vec's text, which gensim reads; blanks in names become _)
        """
        export_vectors(self.answers, Path(path), relations=relations)

    def features(self, graph: Graph, *, alone: bool = False) -> Graph:
        """The graph with entities' vectors behind the features of the vertices of the same names; zeros where there is none.

        alone: in place of the features
        """
        return with_vectors(graph, self.answers, alone=alone)[0]

    def vector(self, entity: Any) -> NDArray[np.float32]:
        """The vector of an entity."""
        return np.array(self.embeddings.entities[self.answers.entities.number(entity)])


def load_embeddings(directory: RunDirectory, config: dict[str, Any]) -> Embeddings:
    """The vectors that a finished run saved, and a look at whether the files beside them are of the same run."""
    tables, state = load_tables(directory.model)
    directory.check(state["files"] if isinstance(state.get("files"), dict) else {})
    training, graph = config["training"], config["graph"]
    score = SCORES.get(training.get("score"))
    entities, relations = tables.get("entities"), tables.get("relations")
    count, dim = graph.get("relations"), training.get("dim")
    if (
        score is None
        or entities is None
        or relations is None
        or entities.shape != (graph.get("entities"), dim)
        or relations.shape != ((1 + training.get("reciprocal", False)) * count, score.relation_width(dim))
    ):
        raise BadInput(f"{directory.model} holds the vectors of another run: copy the run again")
    return Embeddings(score, entities, relations, count)


def _triples_of(config: dict[str, Any], store: str | Path | None) -> Triples | None:
    where = store or config.get("dataset")
    if not isinstance(where, str | Path):
        return None
    if store is None and not Path(where).exists() and str(where) not in CATALOGUE_NAMES:
        return None
    triples = triples_at(where, verify=False)
    graph = config["graph"]
    if (triples.num_entities, triples.num_relations) != (graph.get("entities"), graph.get("relations")):
        raise BadInput(
            f"{where} has other entities and relations than the run was trained on: name its store"
        )
    return triples
