"""Tables of vertices in text, and single columns of labels or splits."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph.check import MAX_VERTICES
from siafu.graph.importing.readers.blocks import Names, Rows, VertexBlock, codes_of, masked_codes
from siafu.graph.importing.readers.columns import (
    FILL_IN,
    NUMBER_CLASSES,
    VertexColumns,
    names_of,
    other_columns,
)
from siafu.graph.importing.readers.table_form import is_integer, is_number
from siafu.graph.importing.readers.text import TableBlock, TextTable

_BOOLEANS = ("true", "false")


class TextVertices:
    """A row for each vertex: an id, and any of a label, a split and features."""

    def __init__(self, table: TextTable, asked: VertexColumns, named: bool | None = None) -> None:
        self.path = table.path
        self._table = table
        kinds = [_kind_of(table, column) for column in range(table.num_columns)]
        numeric = [column for column, kind in enumerate(kinds) if kind != "words"]
        self._columns = asked.positions(table.path, table.columns, table.num_columns, numeric)
        others = other_columns(table.columns, table.num_columns, self._columns.taken)
        left = [column for column in range(table.num_columns) if column not in self._columns.taken]
        self.ignored = tuple(
            f"{name}{_why_no_numbers(table, column)}" for name, column in zip(others, left, strict=True)
        )
        self.width = len(self._columns.features)
        self.feature_names = names_of(table.columns, self._columns.features)
        self.has_labels = self._columns.label is not None
        self.has_split = self._columns.has_split
        label = self._columns.label
        self._labels_are_words = label is not None and kinds[label] != "numbers"
        ids = [row[self._columns.id] for row in table.sample if len(row) > self._columns.id]
        self.named = not all(map(is_integer, ids)) if named is None else named
        first = f"the vertex {ids[0]!r}" if self.named and ids else ""
        self.notes = table.notes(first, "if it names the columns: --id-column NAME with the name of one")

    def blocks(self) -> Iterator[VertexBlock]:
        ids, label, split, features, masks = self._columns
        words = () if label is None or not self._labels_are_words else (label,)
        labels = () if label is None or words else (label,)
        splits = tuple(each for each in (split, *masks) if each is not None)
        names, integers = ((ids,), ()) if self.named else ((), (ids,))
        for block in self._table.blocks(
            names=names,
            integers=integers,
            words=(*words, *splits),
            weights=features,
            numbers=labels,
            advice=NUMBER_CLASSES if labels else "",
            mend=FILL_IN,
        ):
            yield VertexBlock(
                block.names[0] if self.named else block.integers[0],
                block.numbers[:, -1] if labels else None,
                self._codes(block, block.names[len(names) + len(words) :]) if splits else None,
                block.numbers[:, : self.width],
                block.names[len(names)] if words else None,
            )

    def _codes(self, block: TableBlock, words: Sequence[Names]) -> NDArray[np.uint8]:
        """The split of a block: out of one column, or out of a mask for each part."""
        place = partial(_line, self.path, block)
        if not self._columns.masks:
            return codes_of(words[0], place)
        found = iter(words)
        return masked_codes([None if each is None else next(found) for each in self._columns.masks], place)


def _kind_of(table: TextTable, column: int) -> Literal["numbers", "booleans", "words"]:
    """Values of a column, as the first rows have them; it may lack some."""
    values = [row[column] for row in table.sample if len(row) > column and row[column]]
    known = [value for value in values if value != "NA"]
    if all(is_number(value, table.decimal_commas) for value in known) and (known or not values):
        return "numbers"
    return "booleans" if known and all(value.lower() in _BOOLEANS for value in known) else "words"


def _why_no_numbers(table: TextTable, column: int) -> str:
    """A hint on a column of words that would be numbers; nothing where it would not."""
    values = [row[column] for row in table.sample if len(row) > column and row[column]]
    by_commas = any("," in value for value in values) and all(is_number(v.replace(",", ".")) for v in values)
    return " (numbers with decimal commas: write 1.5 for 1,5)" if by_commas else ""


def number_rows(path: Path, what: str, *, always_wide: bool = False, header: bool | None = None) -> Rows:
    """A table of numbers with a row for each vertex, in order, and no ids."""
    table = _without_ids(path, header)
    wide = always_wide or table.num_columns > 1
    advice = NUMBER_CLASSES if what == "labels" else ""

    def blocks(most_bytes: int) -> Iterator[NDArray[np.float32]]:
        for block in table.blocks(numbers=range(table.num_columns), advice=advice, no_others=True):
            yield block.numbers if wide else block.numbers[:, 0]

    return Rows(None, (table.num_columns,) if wide else (), f"{what} in {path}", blocks)


def integer_blocks(path: Path) -> Iterator[NDArray[np.int64]]:
    """The first column of a table without a header, whole numbers."""
    for block in _without_ids(path, header=False).blocks(integers=[0]):
        yield block.integers[0]


def one_count(path: Path) -> int:
    """The one whole number that a file holds."""
    counts = [int(count) for block in integer_blocks(path) for count in block]
    if len(counts) != 1 or not 0 <= counts[0] <= MAX_VERTICES:
        held = f"{counts[0]}" if len(counts) == 1 else f"{len(counts)} numbers"
        raise BadInput(f"{path} holds {held}: it should hold how many vertices one graph has")
    return counts[0]


def split_rows(path: Path) -> Rows:
    """A split for each vertex, in order: a word in the table's first column."""
    table = _without_ids(path)

    def blocks(most_bytes: int) -> Iterator[NDArray[np.uint8]]:
        for block in table.blocks(words=[0]):
            yield codes_of(block.names[0], partial(_line, path, block))

    return Rows(None, (), f"split in {path}", blocks)


def _line(path: Path, block: TableBlock, row: int) -> str:
    return f"{path}, line {block.line_of(block.names[-1], row)},"


def _without_ids(path: Path, header: bool | None = None) -> TextTable:
    table = TextTable(path, header=header)
    if table.num_columns == 0:
        raise BadInput(f"{path} is empty: give a row for each vertex")
    return table
