"""Answers: questions to embeddings by the names of entities and relations."""

import difflib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.embedding.embeddings import Embeddings
from siafu.embedding.steps.batch import HEADS, TAILS
from siafu.graph.triples import Triples

_BLOCK = 1 << 16
_MOST_HINTS = 100_000  # names that are looked through for one like an unknown one


@dataclass(frozen=True, slots=True)
class NameTable:
    """Names of entities or relations.

    names: [N] int64 or UTF-8 bytes; None: numbers from 0 up are their own names
    """

    what: str
    count: int
    names: NDArray[Any] | None

    def number(self, name: Any) -> int:
        """The number of a name, which is text or a whole number."""
        text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
        if self.names is None or self.names.dtype.kind != "S":
            return self._of_number(text)
        found = np.flatnonzero(self.names == text.encode())
        if len(found) == 0:
            raise BadInput(f"no {self.what} {text!r}: {self._hint(text)}")
        return int(found[0])

    def numbers(self, names: list[Any]) -> NDArray[np.int64]:
        """The numbers of many names."""
        if self.names is None or self.names.dtype.kind != "S":
            return np.array([self.number(name) for name in names], np.int64)
        order = np.argsort(self.names)
        wanted = np.array([str(name).encode() for name in names], "S")
        at = np.minimum(np.searchsorted(self.names, wanted, sorter=order), len(order) - 1)
        found = order[at]
        wrong = np.flatnonzero(self.names[found] != wanted)
        if len(wrong):
            self.number(names[int(wrong[0])])
        return found

    def places(self, names: NDArray[Any]) -> NDArray[np.int64]:
        """[N] the number of each name (int64 or UTF-8 bytes); -1: it is unknown."""
        own = np.arange(self.count) if self.names is None else self.names
        if names.dtype.kind != own.dtype.kind:
            names, own = names.astype("S"), own.astype("S")
        order = np.argsort(own, kind="stable")
        found = order[np.minimum(np.searchsorted(own, names, sorter=order), len(order) - 1)]
        return np.where(own[found] == names, found, -1)

    def name(self, number: int) -> Any:
        """Text, or a whole number."""
        if self.names is None:
            return int(number)
        found = self.names[number]
        return found.decode(errors="replace") if isinstance(found, bytes) else int(found)

    def listed(self, most: int = 8) -> str:
        """The first names, and how many more there are."""
        few = ", ".join(repr(self.name(number)) for number in range(min(most, self.count)))
        return few if self.count <= most else f"{few} and {self.count - most:,} more"

    def _of_number(self, text: str) -> int:
        try:
            wanted = int(text)
        except ValueError:
            raise BadInput(f"no {self.what} {text!r}: here they are whole numbers") from None
        if self.names is None:
            if 0 <= wanted < self.count:
                return wanted
            raise BadInput(f"no {self.what} {wanted}: numbers go from 0 to {self.count - 1}")
        at = int(np.searchsorted(self.names, wanted))
        if at == len(self.names) or self.names[at] != wanted:
            raise BadInput(f"no {self.what} {wanted}: it is not in the triples")
        return at

    def _hint(self, text: str) -> str:
        assert self.names is not None
        listed = [name.decode(errors="replace") for name in self.names[:_MOST_HINTS].tolist()]
        near = difflib.get_close_matches(text, listed, 3, 0.5)
        return f"did you mean {' or '.join(map(repr, near))}?" if near else "it is not in the triples"


@dataclass(frozen=True, slots=True)
class Answers:
    """Embeddings with the names of what they are of.

    ids, relations: names; None: numbers
    triples:        those that are known; None: they are not at hand
    """

    embeddings: Embeddings
    ids: NDArray[Any] | None
    relation_names: NDArray[Any] | None
    triples: Triples | None = None

    @property
    def entities(self) -> NameTable:
        return NameTable("entity", self.embeddings.num_entities, self.ids)

    @property
    def relations(self) -> NameTable:
        return NameTable("relation", self.embeddings.num_relations, self.relation_names)

    def predict(
        self, head: Any, relation: Any, tail: Any, *, top: int, new: bool = False
    ) -> list[tuple[Any, float]]:
        """The likeliest missing ends of a triple, with their scores, best first."""
        if (head is None) == (tail is None):
            raise BadInput("give a head or a tail, not both: the other one is asked for")
        if relation is None and self.embeddings.num_relations > 1:
            raise BadInput(f"give a relation (--relation): there are {self.relations.listed()}")
        side = TAILS if tail is None else HEADS
        entity = self.entities.number(head if tail is None else tail)
        kind = 0 if relation is None else self.relations.number(relation)
        asked = self.embeddings.queries(side, np.array([entity]), np.array([kind]))
        left_out = self._known(side, entity, kind) if new else np.empty(0, np.int64)
        return self._best(asked, self.embeddings.scores, top, left_out)

    def neighbours(self, entity: Any, *, top: int) -> list[tuple[Any, float]]:
        """The entities whose vectors point in the most similar direction, with the cosine, best first."""
        number = self.entities.number(entity)
        vectors = self.embeddings.entities
        own = vectors[number] / max(np.linalg.norm(vectors[number]), 1e-30)

        def cosines(queries: NDArray[Any], first: int, last: int) -> NDArray[Any]:
            lengths = np.maximum(np.linalg.norm(vectors[first:last], axis=1), 1e-30)
            found: NDArray[Any] = (queries @ vectors[first:last].T) / lengths
            return found

        return self._best(own[None], cosines, top, np.array([number]))

    def score(self, triples: list[tuple[Any, Any, Any]]) -> NDArray[Any]:
        """The score of each triple."""
        if not triples:
            return np.empty(0, np.float32)
        heads, relations, tails = (list(column) for column in zip(*triples, strict=True))
        rows = np.stack(
            [self.entities.numbers(heads), self.relations.numbers(relations), self.entities.numbers(tails)],
            axis=1,
        )
        return self.embeddings.score_triples(rows)

    def _known(self, side: int, entity: int, relation: int) -> NDArray[Any]:
        if self.triples is None:
            raise BadInput(
                "the run's store is not where it was, so known triples cannot be left out: give --store"
            )
        known, asked = (0, 2) if side == TAILS else (2, 0)
        found = [
            rows[(rows[:, known] == entity) & (rows[:, 1] == relation), asked]
            for rows in (self.triples.train, self.triples.valid, self.triples.test)
        ]
        return np.unique(np.concatenate(found))

    def _best(
        self, queries: NDArray[Any], scored: Any, top: int, left_out: NDArray[Any]
    ) -> list[tuple[Any, float]]:
        """The `top` best entities; of equals those of the lowest numbers."""
        count = self.embeddings.num_entities
        best, numbers = np.empty(0, np.float32), np.empty(0, np.int64)
        for first in range(0, count, _BLOCK):
            last = min(first + _BLOCK, count)
            scores = scored(queries, first, last)[0]
            inside = left_out[(left_out >= first) & (left_out < last)]
            scores[inside - first] = -np.inf
            best, numbers = np.append(best, scores), np.append(numbers, np.arange(first, last))
            kept = np.argsort(-best, kind="stable")[:top]
            best, numbers = best[kept], numbers[kept]
        found = [(self.entities.name(int(k)), float(s)) for k, s in zip(numbers, best, strict=True)]
        return [each for each in found if np.isfinite(each[1])]
