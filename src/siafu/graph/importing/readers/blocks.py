"""The interface of readers: edges in blocks, and rows of vertex data in blocks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line
from siafu.graph.csr import EdgeWeights


@dataclass(frozen=True, slots=True)
class Names:
    """Strings by their places in a buffer of UTF-8 bytes, which both ends of an edge block share.

    starts, lengths: [n] int64
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def size(self) -> int:
        return len(self.starts)

    def text(self, row: int) -> bytes:
        start = int(self.starts[row])
        return self.data[start : start + int(self.lengths[row])].tobytes()


Ids = NDArray[np.int64] | Names


class EdgeBlock(NamedTuple):
    """Some edges, src[e] to dst[e].

    read:  how much of the input was read so far, from 0 to 1
    attr:  [n, D] float32, features of the edges; None where the source has none
    types: [n] their types, as numbers or by name; None where the source has none
    """

    src: Ids
    dst: Ids
    weights: EdgeWeights
    read: float
    attr: NDArray[np.float32] | None = None
    types: NDArray[Any] | Names | None = None


class EdgeSource(Protocol):
    """Edges of an input, in blocks.

    num_vertices: how many the input says there are; None where it does not say
    attr_width:   how many features an edge has
    typed:        whether edges have types
    """

    @property
    def num_vertices(self) -> int | None: ...

    @property
    def attr_width(self) -> int: ...

    @property
    def typed(self) -> bool: ...

    @property
    def named(self) -> bool:
        """Whether ids are strings."""
        ...

    @property
    def weighted(self) -> bool: ...

    def blocks(self, id_stop: int | None) -> Iterator[EdgeBlock]:
        """All edges; an id that is not below `id_stop` is refused, with its place, where the place is known."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """A value for each vertex, in the vertices' order, read in blocks.

    count:  how many rows there are; None if only reading them tells
    shape:  of one row: () for a number, (F,) for F of them
    what:   to name it in errors: "features in x.npy"
    blocks: starts reading: blocks of rows, each of at most about the given number of bytes
    """

    count: int | None
    shape: tuple[int, ...]
    what: str
    blocks: Callable[[int], Iterator[NDArray[Any]]]


SPLIT_CODES = ("", "train", "val", "test")


@dataclass(slots=True)
class VertexData:
    """Vertex data of an input.

    features, labels: a row for each vertex, or None
    split_ids:        for train, val and test, blocks of vertex ids; empty where the split is not given so
    split_codes:      a position in `SPLIT_CODES` for each vertex; None where the split is not given so
    num_classes:      None: as many as the labels show
    class_names:      of labels that were words, by class; empty: they were numbers
    ignored:          names of the arrays of the input that nothing is taken from
    """

    features: Rows | None = None
    labels: Rows | None = None
    split_ids: dict[str, Callable[[], Iterator[NDArray[np.int64]]]] = field(default_factory=dict)
    split_codes: Rows | None = None
    num_classes: int | None = None
    class_names: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


class VertexBlock(NamedTuple):
    """Some rows of a table of vertices, which may come in any order.

    labels:   [n] classes, NaN where unknown; None if the table has none
    split:    [n] uint8, a position in `SPLIT_CODES`; None if the table has none
    features: [n, F] float32; F may be 0
    words:    [n] labels that are words, not numbered yet; None: they are numbers
    """

    ids: Ids
    labels: NDArray[np.float32] | None
    split: NDArray[np.uint8] | None
    features: NDArray[np.float32]
    words: Names | None = None


_SPLIT_WORDS = {
    **dict.fromkeys((b"", b"-", b"none", b"nan", b"-1"), 0),
    **dict.fromkeys((b"train", b"training", b"0"), 1),
    **dict.fromkeys((b"val", b"valid", b"validation", b"dev", b"1"), 2),
    **dict.fromkeys((b"test", b"testing", b"2"), 3),
}


def codes_of(words: Names, place: Callable[[int], str]) -> NDArray[np.uint8]:
    """Positions in `SPLIT_CODES` for the words that people write; place: where a row stands, for errors."""
    codes = np.empty(words.size, np.uint8)
    for row in range(words.size):
        word = words.text(row)
        code = _SPLIT_WORDS.get(word.lower())
        if code is None:
            raise BadInput(
                f"{place(row)} has the split {one_line(repr(word.decode(errors='replace')))}: write train, val, test, or nothing"
            )
        codes[row] = code
    return codes


_MASK_WORDS = {
    **dict.fromkeys((b"", b"false", b"0", b"0.0", b"no", b"nan"), False),
    **dict.fromkeys((b"true", b"1", b"1.0", b"yes"), True),
}


def masked_codes(masks: Sequence[Names | None], place: Callable[[int], str]) -> NDArray[np.uint8]:
    """Positions in `SPLIT_CODES` for columns that say for each row whether it is in train, in val, in test.

    place: where a row stands, for errors
    """
    there = [(code, mask) for code, mask in enumerate(masks, start=1) if mask is not None]
    codes = np.zeros(there[0][1].size, np.uint8)
    for code, mask in there:
        part = SPLIT_CODES[code]
        for row in range(mask.size):
            inside = _MASK_WORDS.get(mask.text(row).lower())
            if inside is None:
                word = one_line(repr(mask.text(row).decode(errors="replace")))
                raise BadInput(
                    f"{place(row)} has {word} in the mask of {part}: write true or false, or 1 or 0"
                )
            if inside and codes[row]:
                raise BadInput(
                    f"{place(row)} is in both {SPLIT_CODES[codes[row]]} and {part}: a vertex may be in one split only"
                )
            if inside:
                codes[row] = code
    return codes


@runtime_checkable
class WithColumns(Protocol):
    """A table whose columns have names.

    ignored: names of the columns that nothing is taken from
    notes:   what its form was taken for, where that could be a mistake
    """

    path: Path
    ignored: tuple[str, ...]
    notes: tuple[str, ...]


class VertexTable(Protocol):
    """A table with a row for each vertex: its id, and any of a label, a split and features.

    feature_names: of the columns that are features; empty: the table has no header
    """

    path: Path
    named: bool
    width: int
    feature_names: tuple[str, ...]
    has_labels: bool
    has_split: bool

    def blocks(self) -> Iterator[VertexBlock]: ...
