"""ClassCounts: how many vertices each class has, in all and in each part of the split."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from siafu.graph.graph import Graph

_ROWS_AT_ONCE = 1 << 20
_MOST_NAMES = 3
_FEWEST = 10  # vertices of val or test that may not all be of one class: fewer are by chance


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """Vertices of each class of a graph that has one a vertex.

    all:        [C] vertices of each class
    unlabelled: vertices without a label
    parts:      [C] vertices of each class in train, val and test, as far as there are such parts
    names:      of the classes; empty: they are numbers
    """

    all: NDArray[np.int64]
    unlabelled: int
    parts: Mapping[str, NDArray[np.int64]]
    names: tuple[str, ...]

    @classmethod
    def of(cls, graph: Graph) -> "ClassCounts | None":
        """Counts of a graph; None: its labels are no classes, or it has none."""
        labels = graph.y
        if labels is None or labels.ndim != 1 or graph.has_quantities:
            return None

        def counts(blocks: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
            found = np.zeros(graph.num_classes, np.int64)
            for block in blocks:
                found += np.bincount(block[block >= 0], minlength=graph.num_classes)
            return found

        split = {"train": graph.train, "val": graph.val, "test": graph.test}
        parts = {
            part: counts(np.asarray(labels[rows]) for rows in _blocks(ids))
            for part, ids in split.items()
            if ids is not None
        }
        found = counts(_blocks(labels))
        return cls(found, len(labels) - int(found.sum()), parts, graph.class_names)

    @property
    def occurring(self) -> int:
        """How many classes have a vertex."""
        return int(np.count_nonzero(self.all))

    def majority(self, part: str) -> str | None:
        """The class that more than half of a part's vertices are of, in words: it is right so often to answer it always."""
        counts = self.parts.get(part)
        if counts is None or self.occurring < 2 or 2 * counts.max() <= counts.sum():
            return None
        share = 100 * counts.max() / counts.sum()
        return f"{share:.2f} % of them of {self._told(np.flatnonzero(counts == counts.max()))}"

    def lopsided(self) -> str | None:
        """A line on a split whose train lacks a class, or whose val or test has but one; None: it is fine."""
        faults = []
        if "train" in self.parts:
            absent = np.flatnonzero((self.all > 0) & (self.parts["train"] == 0))
            if len(absent):
                faults.append(f"train has no vertex of {self._told(absent)}")
        for part in ("val", "test"):
            there = np.flatnonzero(self.parts.get(part, ()))
            if len(there) == 1 and self.occurring > 1 and self.parts[part].sum() >= _FEWEST:
                faults.append(f"{part} has vertices of {self._told(there)} only")
        if not faults:
            return None
        return (
            f"check the split: {'; '.join(faults)}; if that is not meant, draw one with every class in each "
            'part: --split stratified:60/20/20, in Python split="stratified:60/20/20"'
        )

    def _told(self, classes: NDArray[np.int64]) -> str:
        names = [
            self.names[number] if self.names else str(number) for number in classes[:_MOST_NAMES].tolist()
        ]
        more = f" and {len(classes) - len(names):,} more" if len(classes) > len(names) else ""
        return f"class{'es' if len(classes) > 1 else ''} {', '.join(names)}{more}"


def _blocks(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The same rows, some at a time: they may be larger than memory."""
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        yield np.asarray(rows[first : first + _ROWS_AT_ONCE])


def lopsided_split(graph: Graph) -> str | None:
    """A line on a graph's split that lacks classes where they are needed; None: it is fine, or labels are no classes."""
    counts = ClassCounts.of(graph)
    return None if counts is None else counts.lopsided()
