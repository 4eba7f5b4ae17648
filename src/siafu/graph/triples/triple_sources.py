"""Readers of triples: text, Parquet or .npz; one file, or a folder with train, valid and test."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line
from siafu.graph.importing.readers import graphbolt, ogb
from siafu.graph.importing.readers.arrays import ArrayCursor, ArrayFile
from siafu.graph.importing.readers.blocks import Ids
from siafu.graph.importing.readers.columns import (
    DESTINATION,
    SOURCE,
    asked_column,
    known_column,
    other_columns,
)
from siafu.graph.importing.readers.edges import EDGES_AT_ONCE, as_ids
from siafu.graph.importing.readers.npz import Archive
from siafu.graph.importing.readers.parquet import ParquetTable, sharing
from siafu.graph.importing.readers.table_form import is_integer, is_number
from siafu.graph.importing.readers.text import BLOCK_BYTES, TextTable

HEAD = (*SOURCE, "h", "subject", "head_id")
RELATION = ("relation", "rel", "predicate", "relation_id", "edge_type", "property", "r")
TAIL = (*DESTINATION, "t", "object", "tail_id")

_MAGIC = {b"PAR1": "parquet", b"PK\x03\x04": "npz"}
_PART = re.compile(r"(train|valid|validation|val|dev|test)(\.[a-z0-9]+)*")
_SPLIT_OF = {"train": 0, "valid": 1, "validation": 1, "val": 1, "dev": 1, "test": 2}


@dataclass(frozen=True, slots=True)
class TripleOptions:
    """How to read triples.

    head, relation, tail: columns by name, or by position from 0; None: well-known names, else the first three
    delimiter, header:    of text; None: as the first lines look
    names:                whether ids are strings even where they look like whole numbers
    """

    head: str | None = None
    relation: str | None = None
    tail: str | None = None
    delimiter: str | None = None
    header: bool | None = None
    names: bool = False


class TripleBlock(NamedTuple):
    """Some triples of one split.

    split:    position in `SPLITS`
    relation: None: the input has no relations, all edges are of one
    read:     how much of the input was read so far, from 0 to 1
    """

    split: int
    head: Ids
    relation: Ids | None
    tail: Ids
    read: float


class TriplePart(Protocol):
    """Triples of one split, out of one file."""

    named: bool
    relations_named: bool
    ignored: tuple[str, ...]
    """Columns that are no part of a triple, by name or position."""

    def blocks(self) -> Iterator[tuple[Ids, Ids | None, Ids, float]]:
        """Heads, relations, tails, and how much was read."""
        ...


@dataclass(frozen=True, slots=True)
class TripleSource:
    """All triples of an input.

    parts:                       splits and what they are read from
    num_entities, num_relations: where the input says so: its ids are used as they are then
    """

    parts: Sequence[tuple[int, TriplePart]]
    num_entities: int | None = None
    num_relations: int | None = None

    @property
    def named(self) -> bool:
        return any(part.named for _, part in self.parts)

    @property
    def relations_named(self) -> bool:
        return any(part.relations_named for _, part in self.parts)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Columns of any part that are no part of a triple."""
        return tuple(dict.fromkeys(column for _, part in self.parts for column in part.ignored))

    def blocks(self) -> Iterator[TripleBlock]:
        for number, (split, part) in enumerate(self.parts):
            for head, relation, tail, read in part.blocks():
                yield TripleBlock(split, head, relation, tail, (number + read) / len(self.parts))


def open_triples(source: Path, options: TripleOptions, block_bytes: int = BLOCK_BYTES) -> TripleSource:
    """Open a file, or a folder with files named train, valid and test."""
    files = split_files(source) if source.is_dir() else {0: source}
    if source.is_dir() and 0 not in files:
        raise BadInput(f"{source} has no file train.tsv, train.txt, train.csv or train.parquet: name it so")
    if source.is_dir() or _kind(source) != "npz":
        found = TripleSource([(split, _part(file, options, block_bytes)) for split, file in files.items()])
        return _of_one_kind(found, files)
    return _archive(source)


def split_files(folder: Path) -> dict[int, Path]:
    """The files of a folder by split, as positions in `SPLITS`."""
    found: dict[int, Path] = {}
    for file in sorted(folder.iterdir()):
        match = _PART.fullmatch(file.name.lower())
        if match is None or not file.is_file():
            continue
        split = _SPLIT_OF[match[1]]
        if split in found:
            raise BadInput(f"{folder} has both {found[split].name} and {file.name}: keep one of them")
        found[split] = file
    return dict(sorted(found.items()))


def looks_like_triples(source: Path) -> bool:
    """Whether an input is triples beyond doubt: three columns of which the middle one has names, or names that say so.

    Three columns of numbers may be edges with weights or times: those want --format triples.
    """
    if source.is_dir():
        of_a_graph = (source / graphbolt.METADATA).is_file() or ogb.is_ogb(source)
        return not of_a_graph and 0 in split_files(source)
    kind = _kind(source)
    if kind == "npz":
        return _has_triples(Archive(source))
    if kind == "parquet":
        return known_column(ParquetTable(source).columns, RELATION[:-1]) is not None
    table = TextTable(source)
    if table.columns is not None:
        return known_column(table.columns, RELATION[:-1]) is not None
    rows = table.sample
    return bool(rows) and all(
        len(row) == 3 and not is_number(row[1]) and not is_number(row[2]) for row in rows
    )


def _kind(file: Path) -> str:
    if not file.exists():
        raise BadInput(f"no file or folder {file}: check the name")
    with file.open("rb") as opened:
        return _MAGIC.get(opened.read(4), "text")


def _part(file: Path, options: TripleOptions, block_bytes: int) -> TriplePart:
    kind = _kind(file)
    if kind == "npz":
        raise BadInput(
            f"{file} is an archive inside of a folder: give it alone, with arrays train, valid and test"
        )
    if kind == "parquet":
        return ParquetTriples(ParquetTable(file), options)
    return TextTriples(_text_table(file, options, block_bytes), options)


def _of_one_kind(found: TripleSource, files: dict[int, Path]) -> TripleSource:
    """Ids are strings in all files if they are in one: in another they may look like numbers."""
    for split, part in found.parts:
        kinds = (part.named, part.relations_named)
        if kinds == (found.named, found.relations_named):
            continue
        if not isinstance(part, TextTriples):
            raise BadInput(f"{files[split]} has numbers where another file has names: save them as one kind")
        part.named, part.relations_named = found.named, found.relations_named
    return found


def _text_table(file: Path, options: TripleOptions, block_bytes: int) -> TextTable:
    table = TextTable(file, delimiter=options.delimiter, header=options.header, block_bytes=block_bytes)
    if options.header is None and table.columns is None and table.sample:
        first = [field.lower() for field in table.sample[0]]
        if sum(known_column(first, names) is not None for names in (HEAD, RELATION, TAIL)) >= 2:
            return TextTable(file, delimiter=options.delimiter, header=True, block_bytes=block_bytes)
    return table


def triple_columns(
    path: Path, columns: Sequence[str] | None, count: int, options: TripleOptions
) -> tuple[int, int | None, int]:
    """Positions of heads, relations and tails; None: two columns, so edges of one relation."""
    found: list[int | None] = [
        known_column(columns, names) if asked is None else asked_column(path, columns, count, asked)
        for names, asked in zip(
            (HEAD, RELATION, TAIL), (options.head, options.relation, options.tail), strict=True
        )
    ]
    chosen = [column for column in found if column is not None]
    if len(set(chosen)) < len(chosen):
        raise BadInput(f"{path}: one column is given for two of head, relation and tail: name three")
    free = [column for column in range(count) if column not in chosen]
    if count == 2 and found[1] is None:
        head, _, tail = (
            free.pop(0) if column is None and k != 1 else column for k, column in enumerate(found)
        )
        assert head is not None and tail is not None
        return head, None, tail
    if len(free) < found.count(None):
        raise BadInput(
            f"{path} has {count} column{'' if count == 1 else 's'}: triples are head, relation and tail; is the delimiter right?"
        )
    filled = [free.pop(0) if column is None else column for column in found]
    return filled[0], filled[1], filled[2]


class TextTriples:
    """Triples out of a table of text."""

    def __init__(self, table: TextTable, options: TripleOptions) -> None:
        self.path = table.path
        self._table = table
        if table.num_columns == 0:
            raise BadInput(f"{table.path} is empty: give lines of head, relation, tail")
        self._columns = triple_columns(table.path, table.columns, table.num_columns, options)
        self.ignored = other_columns(table.columns, table.num_columns, self._columns)
        head, relation, tail = self._columns
        self.named = options.names or self._has_names(head, tail)
        self.relations_named = relation is not None and (options.names or self._has_names(relation))

    def _has_names(self, *columns: int) -> bool:
        """Whether any of the first rows has names: names may be numbers, too (a year, a code)."""
        return any(
            not is_integer(row[column])
            for row in self._table.sample
            for column in columns
            if column < len(row)
        )

    def blocks(self) -> Iterator[tuple[Ids, Ids | None, Ids, float]]:
        head, relation, tail = self._columns
        middle = () if relation is None else (relation,)
        names = (*((head, tail) if self.named else ()), *(middle if self.relations_named else ()))
        integers = (*(() if self.named else (head, tail)), *(() if self.relations_named else middle))
        last = self._table.num_columns == 1 + max(*names, *integers)
        for block in self._table.blocks(names=names, integers=integers, no_others=last):
            heads, tails = block.names[:2] if self.named else block.integers[:2]
            relations: Ids | None = None
            if middle:
                relations = block.names[-1] if self.relations_named else block.integers[-1]
            yield heads, relations, tails, block.read


class ParquetTriples:
    """Triples out of a Parquet table."""

    def __init__(self, table: ParquetTable, options: TripleOptions) -> None:
        self.path = table.path
        self._table = table
        self._columns = triple_columns(table.path, table.columns, len(table.columns), options)
        self.ignored = other_columns(table.columns, len(table.columns), self._columns)
        head, relation, tail = self._columns
        self.named = options.names or table.is_text(head) or table.is_text(tail)
        self.relations_named = relation is not None and (options.names or table.is_text(relation))

    def blocks(self) -> Iterator[tuple[Ids, Ids | None, Ids, float]]:
        head, relation, tail = self._columns
        for (heads, tails, *middle), read in self._table.batches(
            [head, tail, *(() if relation is None else (relation,))]
        ):
            ends = sharing(
                self._table.ids(heads, head, named=self.named), self._table.ids(tails, tail, named=self.named)
            )
            between = None
            if relation is not None:
                between = self._table.ids(middle[0], relation, named=self.relations_named)
            yield ends[0], between, ends[1], read


class ArrayTriples:
    """Triples out of one array of shape [N, 3], or three of N values."""

    named = False
    relations_named = False
    ignored: tuple[str, ...] = ()

    def __init__(self, arrays: Sequence[ArrayFile]) -> None:
        self._arrays = arrays
        shapes = [array.shape for array in arrays]
        one = len(shapes) == 1 and len(shapes[0]) == 2 and shapes[0][1] == 3
        three = len(shapes) == 3 and len(set(shapes)) == 1 and len(shapes[0]) == 1
        if not (one or three):
            raise BadInput(
                f"{arrays[0].where} has shape {one_line(shapes[0])}: triples are [N, 3]: head, relation, tail"
            )

    def blocks(self) -> Iterator[tuple[Ids, Ids | None, Ids, float]]:
        total = len(self._arrays[0])
        cursors = self._cursors(total)
        try:
            for first in range(0, total, EDGES_AT_ONCE):
                count = min(EDGES_AT_ONCE, total - first)
                taken = [as_ids(cursor.take(count), None, cursor.where, first) for cursor in cursors]
                head, relation, tail = np.ascontiguousarray(taken[0].T) if len(taken) == 1 else taken
                yield head, relation, tail, (first + count) / total
        finally:
            for cursor in cursors:
                cursor.__exit__()

    def _cursors(self, total: int) -> list[ArrayCursor]:
        """One over whole rows, or one for each column."""
        if not self._arrays[0].by_column or len(self._arrays) == 3:
            return [array.cursor() for array in self._arrays]
        flat = self._arrays[0].turned().flat()
        return [flat.cursor(column * total) for column in range(3)]


def _has_triples(archive: Archive) -> bool:
    if archive.has("head", "relation", "tail"):
        return True
    array = archive.first("train", "triples")
    return array is not None and len(array.shape) == 2 and array.shape[1] == 3


def _archive(path: Path) -> TripleSource:
    archive = Archive(path)
    parts: list[tuple[int, TriplePart]] = []
    for split, names in enumerate((("train", "triples"), ("valid", "val"), ("test",))):
        array = archive.first(*names)
        if array is not None:
            parts.append((split, ArrayTriples([array])))
    if archive.has("head", "relation", "tail"):
        parts = [(0, ArrayTriples([archive.array(name) for name in ("head", "relation", "tail")]))]
    if not parts or parts[0][0] != 0:
        raise BadInput(
            f"{path} has the arrays {one_line(', '.join(sorted(archive.names)) or '(none)')}: triples are train, valid and test of shape [N, 3], or head, relation and tail"
        )
    return TripleSource(parts, archive.number("num_entities"), archive.number("num_relations"))
