"""Tables of text: CSV, TSV and columns between spaces, plain or gzipped."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.threads import run_all, thread_count
from siafu.graph.importing.readers import parse
from siafu.graph.importing.readers.blocks import EdgeBlock, Names
from siafu.graph.importing.readers.columns import EdgeColumns, names_of, other_columns
from siafu.graph.importing.readers.table_form import (
    delimiter_of,
    has_decimal_commas,
    is_integer,
    is_number,
    looks_like_header,
    split_fields,
)
from siafu.graph.importing.readers.textfile import Opened, read_some, whole_lines

BLOCK_BYTES = 4 << 20
_MEND_EDGE = "fill it in, leave the edge out, or do not name the column"
_SAMPLE_BYTES = 1 << 16
_SAMPLE_ROWS = 100


class TableBlock(NamedTuple):
    """Some rows of a table: the columns that were asked for, in the order of asking.

    integers: [columns, rows] int64; numbers: [rows, columns] float32
    read:     how much of the file was read so far, from 0 to 1
    line:     the number of its first line in the file
    """

    integers: NDArray[np.int64]
    numbers: NDArray[np.float32]
    names: list[Names]
    read: float
    line: int

    def line_of(self, names: Names, row: int) -> int:
        """The line in the file that a name of this block stands in."""
        return self.line + int(np.count_nonzero(names.data[: names.starts[row]] == ord("\n")))


class TextTable:
    """A file of rows and columns. Opening it reads the first rows, to see how the rest is written.

    columns: the names in its header; None if it has none
    sample:  fields of the first rows after the header
    decimal_commas: whether 1,5 is one and a half
    """

    def __init__(
        self,
        path: Path,
        *,
        delimiter: str | None = None,
        header: bool | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.path = path
        self._block_bytes = block_bytes
        with Opened(path) as (file, _):
            lines = _first_lines(read_some(file, _SAMPLE_BYTES, path))
        self._delimiter = delimiter_of(delimiter, lines)
        rows = [split_fields(line, self._delimiter) for line in lines]
        if header and not rows:
            raise BadInput(f"{path} is empty: its first row should name the columns")
        self.columns = (
            rows.pop(0) if rows and (looks_like_header(rows) if header is None else header) else None
        )
        self.sample = rows
        self.decimal_commas = has_decimal_commas(self._delimiter, rows)
        self._header_was_guessed = header is None
        self.num_columns = len(self.columns or (rows[0] if rows else []))

    def notes(self, first_row: str, if_header: str) -> tuple[str, ...]:
        """Lines about the table's form, which an import prints because it changes what is read.

        first_row: what the first row is taken for; empty: it can be nothing else
        if_header: what to do if it names the columns
        """
        told = []
        if first_row and self._header_was_guessed and self.columns is None:
            told.append(f"{self.path.name} has no header: its first row is {first_row} ({if_header})")
        if self.decimal_commas:
            told.append(f"{self.path.name} has decimal commas: 1,5 is read as 1.5, and 1.500 as 1500")
        return tuple(told)

    def blocks(
        self,
        *,
        integers: Sequence[int] = (),
        numbers: Sequence[int] = (),
        weights: Sequence[int] = (),
        names: Sequence[int] = (),
        words: Sequence[int] = (),
        id_stop: int | None = None,
        advice: str = "",
        mend: str = "",
        no_others: bool = False,
    ) -> Iterator[TableBlock]:
        """Rows of the columns at these positions; integers are ids, from 0 up, where `id_stop` is given.

        `advice` is what to do if the last of the numbers is none, `mend` if a weight is not finite.

        A block's `numbers` are the weights, which must be finite, then the numbers, which may be missing.
        Its `names` are the names, which may not be empty, then the words, which may.
        With `no_others` a row that goes on after the last of these columns is refused.
        """
        wanted = [
            *((column, parse.INTEGER, slot) for slot, column in enumerate(integers)),
            *((column, parse.WEIGHT, slot) for slot, column in enumerate(weights)),
            *((column, parse.NUMBER, slot) for slot, column in enumerate(numbers, start=len(weights))),
            *((column, parse.NAME, slot) for slot, column in enumerate(names)),
            *((column, parse.WORD, slot) for slot, column in enumerate(words, start=len(names))),
        ]
        if no_others:
            wanted.append((1 + max(column for column, _, _ in wanted), parse.END, 0))
        plan = _Plan.of(wanted, self._delimiter, -1 if id_stop is None else id_stop, self.decimal_commas)
        first_line = 1
        with Opened(self.path) as (file, share_read):
            for text, read in self._parsed(file, share_read, plan):
                if text.error[0] != parse.FINE:
                    advised = len(numbers) > 0 and text.error[3] == numbers[-1]
                    self._refuse(text, first_line, plan, advice if advised else "", mend)
                first_line += text.lines
                yield TableBlock(text.integers, text.numbers, text.names, read, first_line - text.lines)

    def _parsed(
        self, file: IO[bytes], share_read: Callable[[], float], plan: "_Plan"
    ) -> Iterator[tuple["_ParsedText", float]]:
        """Blocks of text, parsed by all threads while the next are read."""
        texts = whole_lines(file, self._block_bytes, self.path, skip_header=self.columns is not None)

        def read_next() -> tuple[list[bytearray], float]:
            batch = list(islice(texts, 2 * thread_count()))
            return batch, share_read()

        batch, read = read_next()
        while batch:
            jobs: list[Callable[[], Any]] = [read_next, *(partial(plan.parse, text) for text in batch)]
            (batch, next_read), *parsed = run_all(lambda job: job(), jobs)
            for text in parsed:
                yield text, read
            read = next_read

    def _refuse(
        self, text: "_ParsedText", first_line: int, plan: "_Plan", advice: str, mend: str
    ) -> NoReturn:
        wrong, lo, hi, column, lines = (int(part) for part in text.error)
        wanted = f"expected at least {plan.num_columns} columns"
        if lo == hi:
            wanted = mend if wrong == parse.NOT_FINITE and mend else wanted
            wrong = parse.MISSING
        advice = advice or ("the table has decimal commas" if self.decimal_commas else "")
        field = bytes(text.data[lo:hi]).decode(errors="replace")
        field = field if len(field) <= 40 else field[:40] + "…"
        name = repr(self.columns[column]) if self.columns and column < len(self.columns) else str(column)
        what = {
            parse.NOT_INTEGER: f"{field!r} in column {name} is not a whole number; if ids are names, give --ids names",
            parse.TOO_LARGE: f"{field} in column {name} is too large: whole numbers go to 2**63 - 1; if ids are names, give --ids names",
            parse.NOT_NUMBER: f"{field!r} in column {name} is not a number{advice and f': {advice}'}",
            parse.NOT_FINITE: f"{field!r} in column {name} is not a finite number{mend and f': {mend}'}",
            parse.MISSING: f"there is nothing in column {name}: {wanted}",
            parse.OUT_OF_RANGE: f"id {field} in column {name} is out of range: with {plan.id_stop} vertices, ids go from 0 to {plan.id_stop - 1}",
            parse.OPEN_QUOTE: f"a quote in column {name} is not closed before the line ends",
            parse.AFTER_QUOTE: f"{field!r} stands after the closing quote in column {name}: put the quote at the field's end",
            parse.STRAY_RETURN: "a carriage return stands inside the line: end lines with a newline, \\n or \\r\\n",
            parse.TOO_MANY: f"{field!r} stands after the last of the {plan.num_columns} columns that the first row has: mend the row",
            parse.NOT_TEXT: f"the name {field!r} in column {name} is not UTF-8, or has a zero byte: save the file as UTF-8",
        }[wrong]
        raise BadInput(f"{self.path}, line {first_line + lines}: {what}")


class _ParsedText(NamedTuple):
    data: NDArray[np.uint8]
    lines: int
    integers: NDArray[np.int64]
    numbers: NDArray[np.float32]
    names: list[Names]
    error: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The columns to read, in the kernel's form."""

    kinds: NDArray[np.int64]
    slots: NDArray[np.int64]
    counts: dict[int, int]
    delimiter: int
    id_stop: int
    decimal_mark: int

    @classmethod
    def of(
        cls, wanted: list[tuple[int, int, int]], delimiter: str, id_stop: int, decimal_commas: bool
    ) -> "_Plan":
        columns = max(column for column, _, _ in wanted) + 1
        kinds, slots = np.full(columns, parse.SKIP), np.zeros(columns, np.int64)
        counts: dict[int, int] = {}
        for column, kind, slot in wanted:
            kinds[column], slots[column] = kind, slot
            counts[kind] = counts.get(kind, 0) + 1
        mark = ord("," if decimal_commas else ".")
        return cls(
            kinds, slots, counts, parse.WHITESPACE if delimiter == " " else ord(delimiter), id_stop, mark
        )

    @property
    def num_columns(self) -> int:
        return int(np.count_nonzero(self.kinds != parse.END))

    def parse(self, text: bytearray) -> _ParsedText:
        data = np.frombuffer(text, np.uint8)
        lines = int(np.count_nonzero(data == 10))
        counts = self.counts
        integers = np.empty((counts.get(parse.INTEGER, 0), lines), np.int64)
        numbers = np.empty((lines, counts.get(parse.NUMBER, 0) + counts.get(parse.WEIGHT, 0)), np.float32)
        starts = np.empty((counts.get(parse.NAME, 0) + counts.get(parse.WORD, 0), lines), np.int64)
        lengths = np.empty_like(starts)
        error = np.zeros(5, np.int64)
        returns = np.flatnonzero(data == 13)
        stray = returns[~np.isin(data[returns + 1], (10, 13))]  # carriage returns that do not end a line
        if len(stray):
            at = int(stray[0])
            error[:] = parse.STRAY_RETURN, at, at + 1, 0, text.count(b"\n", 0, at)
            return _ParsedText(data, lines, integers, numbers, [], error)
        names_are_fine = parse.NAME not in counts or _is_text(text)
        plan = (self.delimiter, self.decimal_mark, self.kinds, self.slots, self.id_stop)
        rows = parse.parse_rows(data, *plan, integers, numbers, starts, lengths, error)
        places = zip(starts[:, :rows], lengths[:, :rows], strict=True)
        names = [Names(data, start, length) for start, length in places]
        if not names_are_fine and error[0] == parse.FINE:
            self._find_bad_name(text, names, error)
        return _ParsedText(data, lines, integers[:, :rows], numbers[:rows], names, error)

    def _find_bad_name(self, text: bytearray, names: list[Names], error: NDArray[np.int64]) -> None:
        """Say where the first name is that is no text, if there is one."""
        for column in np.flatnonzero(self.kinds == parse.NAME):
            found = names[self.slots[column]]
            wrong = next((row for row in range(found.size) if not _is_text(found.text(row))), None)
            if wrong is None:
                continue
            lo, length = int(found.starts[wrong]), int(found.lengths[wrong])
            lines = text.count(b"\n", 0, lo)
            if error[0] == parse.FINE or lines < error[4]:
                error[:] = parse.NOT_TEXT, lo, lo + length, column, lines


class TextEdges:
    """Edges out of a table of text: a column of sources, one of destinations, perhaps of weights, features and types."""

    def __init__(
        self,
        table: TextTable,
        columns: EdgeColumns | None = None,
        *,
        named: bool | None = None,
        num_vertices: int | None = None,
    ) -> None:
        self.num_vertices = num_vertices
        self._table = table
        self.path = table.path
        asked = EdgeColumns() if columns is None else columns
        self._columns = asked.positions(table.path, table.columns, table.num_columns)
        self.ignored = other_columns(table.columns, table.num_columns, self._columns.taken)
        self.end_names = names_of(table.columns, self._columns[:2])
        self.weighted = self._columns.weight is not None
        self.attr_width = len(self._columns.features)
        self.typed = self._columns.type is not None
        # The first row decides: a later one that differs is more likely a mistake.
        self.named = self._any_field(is_integer, self._columns[:2]) if named is None else named
        self.notes = self._notes()
        self._types_are_words = self.typed and self._any_field(is_number, [self._columns.type])

    def _notes(self) -> tuple[str, ...]:
        row, ends = self._table.sample[0] if self._table.sample else [], self._columns[:2]
        edge = (
            f"an edge from {row[ends[0]]!r} to {row[ends[1]]!r}"
            if self.named and max(ends) < len(row)
            else ""
        )
        return self._table.notes(edge, "if it names the columns: --header")

    def _any_field(self, is_fine: Callable[[str], bool], columns: Sequence[int | None]) -> bool:
        """Whether the first row has a field in these columns that is not of the kind."""
        row = self._table.sample[0] if self._table.sample else []
        return any(not is_fine(row[at]) for at in columns if at is not None and at < len(row))

    def blocks(self, id_stop: int | None) -> Iterator[EdgeBlock]:
        src_column, dst_column, weight, features, kind = self._columns
        ends = (src_column, dst_column)
        types = () if kind is None else (kind,)
        weights = () if weight is None else (weight,)
        for block in self._table.blocks(
            names=(*(ends if self.named else ()), *(types if self._types_are_words else ())),
            integers=() if self.named else ends,
            weights=(*features, *weights, *(() if self._types_are_words else types)),
            id_stop=id_stop,
            mend=_MEND_EDGE,
        ):
            src, dst = block.names[:2] if self.named else block.integers
            numbers, width = block.numbers, self.attr_width
            yield EdgeBlock(
                src,
                dst,
                numbers[:, width] if weights else None,
                block.read,
                numbers[:, :width] if width else None,
                None if kind is None else block.names[-1] if self._types_are_words else numbers[:, -1],
            )


def _is_text(data: bytes | bytearray) -> bool:
    if b"\0" in data:
        return False
    try:
        data.isascii() or data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _first_lines(sample: bytes) -> list[str]:
    """The first lines that are no comments, without what may be cut off at the sample's end."""
    whole = sample if len(sample) < _SAMPLE_BYTES else sample[: sample.rfind(b"\n") + 1] or sample
    lines = whole.decode("utf-8", errors="replace").removeprefix("\ufeff").split("\n")
    rows = [line.rstrip("\r") for line in lines if line.strip() and line.lstrip()[0] not in "#%"]
    return rows[: _SAMPLE_ROWS + 1]
