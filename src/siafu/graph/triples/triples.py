"""Triples: a knowledge graph as three lists of facts."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from siafu.base.errors import BadInput
from siafu.graph.stores.manifest import block_checksums

SPLITS = ("train", "valid", "test")

TripleRows = NDArray[Any]
"""[N, 3] int32 or int64: head, relation and tail of each triple, as ids from 0 up."""

_BLOCK = 16 << 20


@dataclass(frozen=True, eq=False)
class Triples:
    """A knowledge graph: facts to learn from, and facts held out.

    train, valid, test: [N, 3] int32 (int64 from 2**31 entities on): head, relation, tail; no triple twice in one of them
    num_entities:       heads and tails are from 0 to this; entities that no training triple names count too
    num_relations:      relations are from 0 to this
    ids:                [num_entities] the entities' names in the source, int64 or UTF-8 bytes; None: their numbers are their names
    relations:          [num_relations] likewise for relations
    source:             the store's path; None: they were made in memory
    """

    train: TripleRows
    valid: TripleRows
    test: TripleRows
    num_entities: int
    num_relations: int
    ids: NDArray[Any] | None = None
    relations: NDArray[Any] | None = None
    name: str = "triples"
    source: str | None = field(default=None)

    def __repr__(self) -> str:
        parts = "/".join(f"{len(part):,}" for part in (self.train, self.valid, self.test))
        return (
            f"Triples({self.name!r}, {self.num_entities:,} entities, {self.num_relations:,} relations, "
            f"{parts} train/valid/test triples)"
        )

    @classmethod
    def from_arrays(
        cls,
        train: ArrayLike,
        valid: ArrayLike | None = None,
        test: ArrayLike | None = None,
        *,
        num_entities: int | None = None,
        num_relations: int | None = None,
        name: str = "triples",
    ) -> "Triples":
        """Triples out of arrays of shape [N, 3]: head, relation, tail, as numbers from 0 up."""
        rows = [_checked(split, values) for split, values in zip(SPLITS, (train, valid, test), strict=True)]
        if len(rows[0]) == 0:
            raise BadInput("train has no triples: there is nothing to learn from")
        entities = 1 + max(int(each[:, [0, 2]].max(initial=-1)) for each in rows)
        relations = 1 + max(int(each[:, 1].max(initial=-1)) for each in rows)
        for what, found, asked in (
            ("entities", entities, num_entities),
            ("relations", relations, num_relations),
        ):
            if asked is not None and asked < found:
                raise BadInput(f"num_{what} is {asked}, and ids go to {found - 1}: give at least {found}")
        dtype = np.int32 if max(entities, num_entities or 0) < 2**31 else np.int64
        learnt, valid_rows, test_rows = (np.unique(each, axis=0).astype(dtype) for each in rows)
        counts = (num_entities or entities, num_relations or relations)
        return cls(learnt, valid_rows, test_rows, *counts, name=name)

    @cached_property
    def fingerprint(self) -> int:
        """A CRC-32 of all triples: two stores that have it in common train alike."""
        counted = [self.num_entities, self.num_relations]
        for rows in (self.train, self.valid, self.test):
            counted += [len(rows), *block_checksums(rows, _BLOCK)]
        (found,) = block_checksums(np.array(counted, np.int64), _BLOCK)
        return found


def _checked(split: str, values: ArrayLike | None) -> TripleRows:
    if values is None:
        return np.empty((0, 3), np.int64)
    rows = np.asarray(values)
    if rows.ndim != 2 or rows.shape[1] != 3 or rows.dtype.kind not in "iu":
        raise BadInput(
            f"{split} has shape {rows.shape} and type {rows.dtype}: give whole numbers of shape [N, 3]: head, relation, tail"
        )
    if rows.size and rows.min() < 0:
        raise BadInput(f"{split} has the id {rows.min()}: ids go from 0 up")
    return rows
