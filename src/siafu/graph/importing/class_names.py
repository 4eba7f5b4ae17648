"""ClassNames: labels that are words, numbered in alphabetical order."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph.check import MAX_CLASSES
from siafu.graph.importing.readers.blocks import Names, Rows

_UNKNOWN = frozenset((b"", b"-", b"nan", b"none", b"null", b"n/a", b"<na>", b"#n/a"))
"""Words for a label that is not known, in small letters."""

_BLOCK_BYTES = 8 << 20
_NOT_AVAILABLE = b"NA"
"""Another one, in capitals alone, as pandas and R have it: Na is sodium."""


class ClassNames:
    """Takes labels as they are read, and gives each new one the next number; `in_order` numbers them by name.

    A number is known as soon as a word is read, the alphabetical one only when all are.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._unknown: set[bytes] = set()

    def numbers(self, words: Names) -> NDArray[np.float32]:
        """The number of each word, NaN where it says that the label is unknown."""
        found = np.full(words.size, np.nan, np.float32)
        known = self._numbers
        for row in range(words.size):
            word = words.text(row).strip()
            number = known.get(word)
            if number is None:
                number = self._number(word)
            if number is not None:
                found[row] = number
        return found

    def _number(self, word: bytes) -> int | None:
        """The number of a word that may be new; None: it says that the label is unknown."""
        if word == _NOT_AVAILABLE or word.lower() in _UNKNOWN:
            self._unknown.add(word)
            return None
        number = self._numbers.setdefault(word, len(self._numbers))
        if number >= MAX_CLASSES:
            raise BadInput(f"there are more than {MAX_CLASSES:,} different labels: is it the right column?")
        return number

    def of_array(self, labels: Rows) -> Rows:
        """Labels of an array: words as numbers, which `in_order` takes; numbers as they are. Words are read twice."""
        first = next(labels.blocks(1), None)
        if labels.shape or first is None or first.dtype.kind not in "US":
            return labels
        for block in labels.blocks(_BLOCK_BYTES):
            self._of_block(block)
        return Rows(
            labels.count, labels.shape, labels.what, lambda most: map(self._of_block, labels.blocks(most))
        )

    def _of_block(self, block: NDArray[Any]) -> NDArray[np.float32]:
        words, places = np.unique(block, return_inverse=True)
        numbers = [self._number(_bytes(word).strip()) for word in words]
        return np.array([np.nan if number is None else number for number in numbers], np.float32)[places]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Words that were read as no label."""
        return tuple(word.decode() for word in sorted(self._unknown) if word)

    @property
    def names(self) -> tuple[str, ...]:
        """All words in alphabetical order: class 0 is the first."""
        return tuple(word.decode(errors="replace") for word in sorted(self._numbers))

    def in_order(self, labels: Rows) -> Rows:
        """The same labels, numbered by name; read only after all words have come."""
        return Rows(labels.count, labels.shape, labels.what, self._renumbering(labels.blocks))

    def _renumbering(
        self, blocks: Callable[[int], Iterator[NDArray[np.float32]]]
    ) -> Callable[[int], Iterator[NDArray[np.float32]]]:
        def renumbered(most_bytes: int) -> Iterator[NDArray[np.float32]]:
            ranks = np.empty(len(self._numbers), np.float32)
            ranks[[self._numbers[word] for word in sorted(self._numbers)]] = np.arange(len(ranks))
            for block in blocks(most_bytes):
                known = ~np.isnan(block)
                numbered = block.copy()
                numbered[known] = ranks[block[known].astype(np.int64)]
                yield numbered

        return renumbered


def _bytes(word: Any) -> bytes:
    """A word of an array of words, in UTF-8."""
    return bytes(word) if isinstance(word, bytes) else str(word).encode()
