"""Number of classes among labels, and a check that the labels are classes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput

FEW = 1000
"""Up to so many classes, any number of them may be unused."""

_CLASSES_PER_USED = 16


class ClassCount:
    """Counts the classes of labels that come in blocks.

    Labels that are years, codes or other large numbers would make a model as wide as the largest: they are refused
    where more than `FEW` classes are counted and fewer than one in 16 of them occurs.

    num_classes:  as the user or the input says; None: one more than the highest label
    num_vertices: how many labels there are at most
    """

    def __init__(self, num_classes: int | None, num_vertices: int) -> None:
        self._told = num_classes
        self._num_vertices = num_vertices
        self._highest = -1
        self._seen = np.zeros(FEW, np.bool_)

    def add(self, labels: NDArray[np.int64]) -> None:
        """A block of labels; those below 0 are unknown."""
        self._highest = max(self._highest, int(labels.max(initial=-1)))
        if self._told is not None:
            if self._highest >= self._told:
                raise BadInput(
                    f"y has class {self._highest} but num_classes is {self._told}: classes go from 0 to num_classes - 1"
                )
            return
        if self._highest >= max(FEW, _CLASSES_PER_USED * self._num_vertices):
            raise self._too_many(f"{self._num_vertices:,} vertices have labels at most")
        if self._highest >= len(self._seen):
            self._seen = np.concatenate([self._seen, np.zeros(self._highest + 1 - len(self._seen), np.bool_)])
        self._seen[labels[labels >= 0]] = True

    def total(self) -> int:
        """Number of classes."""
        if self._told is not None:
            return self._told
        used = int(np.count_nonzero(self._seen))
        if self._highest >= max(FEW, _CLASSES_PER_USED * used):
            raise self._too_many(f"only {used:,} of those classes occur")
        return self._highest + 1

    def _too_many(self, fact: str) -> BadInput:
        classes = self._highest + 1
        return BadInput(
            f"y has class {self._highest}, which makes {classes} classes, but {fact}: number the classes from 0 up, "
            f"or say that there are so many (num_classes={classes}, on the command line --num-classes {classes})"
        )


def count_classes(labels: NDArray[Any], num_classes: int | None) -> int:
    """Number of classes in `Graph.y`."""
    if labels.ndim == 2:
        return int(labels.shape[1])
    counted = ClassCount(num_classes, len(labels))
    counted.add(labels)
    return counted.total()


def named_classes(y: Any) -> tuple[Any, tuple[str, ...]]:
    """Labels that are words as numbers in alphabetical order, -1 where unknown, and the words; others as they are."""
    if hasattr(y, "notna") and np.asarray(y).dtype.kind in "USO":  # a column of pandas'
        y = np.asarray(y.astype(object).where(y.notna(), None))
    values = y if isinstance(y, np.ndarray) else np.asarray(y, object) if _is_words(y) else None
    if values is None or values.dtype.kind not in "USO" or values.ndim != 1:
        return y, ()
    words = [_word(value) for value in values.tolist()]
    names = sorted({word for word in words if word is not None})
    numbers = {word: number for number, word in enumerate(names)}
    return np.array([-1 if word is None else numbers[word] for word in words], np.int64), tuple(names)


def _is_words(y: Any) -> bool:
    return isinstance(y, list | tuple) and any(isinstance(value, str) for value in y)


def _word(value: Any) -> str | None:
    """A label as a word; None: it is unknown."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if value is None or value == "" or (isinstance(value, float) and value != value):
        return None
    return str(value)
