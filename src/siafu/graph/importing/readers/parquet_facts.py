"""Statistics in a Parquet file, compared with its rows: they reveal damage that pyarrow reads without an error.

The file's footer is parsed here, because pyarrow crashes on the statistics of a damaged file.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line
from siafu.graph.importing.readers.thrift import Struct, parse_struct

_AGAIN = "copy or write it again"
_MOST_FOOTER = (
    16 << 20
)  # bytes of a description that is parsed here; beyond it, the reader's own care must do
# Fields of Parquet's FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and Statistics.
_FILE_ROWS, _FILE_GROUPS = 3, 4
_GROUP_COLUMNS, _GROUP_ROWS = 1, 3
_CHUNK_COLUMN = 3
_COLUMN_TYPE, _COLUMN_PATH, _COLUMN_STATISTICS = 1, 3, 12
_NULLS, _HIGHEST, _LOWEST = 3, 5, 6
_BYTE_ARRAY = 6
_NUMBERS = {0: "<?", 1: "<i", 2: "<q", 4: "<f", 5: "<d"}
_UNSIGNED = {1: "<I", 2: "<Q"}


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn pyarrow's errors about a damaged file into one line with the file's name."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:  # of many kinds: Arrow's own, the system's, text that is none, no memory
        raise BadInput(f"{path} is damaged: {one_line(error)}; {_AGAIN}") from error


@dataclass
class RowGroupFacts:
    """Statistics of a row group, and how many of its rows are still to come.

    nulls:  how many empty values are still to come, by column
    bounds: the lowest and highest value, by column; text as bytes
    """

    path: Path
    rows: int
    nulls: dict[str, int] = field(default_factory=dict)
    bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def check(self, batch: Any) -> None:
        """Refuse rows with a value that cannot be; count the others."""
        self.rows -= batch.num_rows
        for name in self.nulls:
            self.nulls[name] -= batch.column(name).null_count
        for name, (low, high) in self.bounds.items():
            lowest, highest = _bounds(batch.column(name))
            # Not "low <= lowest": of NaN nothing is known.
            if lowest is not None and (lowest < low or highest > high):
                raise BadInput(
                    f"{self.path}, column {name!r} is damaged: it holds {one_line(repr(lowest if lowest < low else highest))}, "
                    f"where the file says that values go from {one_line(repr(low))} to {one_line(repr(high))}; {_AGAIN}"
                )

    def check_all_came(self) -> None:
        """Refuse a row group that has other than as many rows and empty values as it says."""
        if self.rows:
            raise BadInput(
                f"{self.path} is damaged: it has {abs(self.rows):,} rows {'less' if self.rows > 0 else 'more'} than it says; {_AGAIN}"
            )
        wrong = next((name for name, left in self.nulls.items() if left), None)
        if wrong is not None:
            raise BadInput(
                f"{self.path}, column {wrong!r} is damaged: other rows are empty than it says; {_AGAIN}"
            )


def read_facts(path: Path, schema: Any, names: list[str]) -> list[RowGroupFacts] | None:
    """The facts of each row group, of these columns; None where the description is too long to parse."""
    footer = _footer(path)
    if footer is None:
        return None
    with naming(path):
        said = parse_struct(footer)
        groups: list[Struct] = said[_FILE_GROUPS]
        rows = [group[_GROUP_ROWS] for group in groups]
        if sum(rows) != said[_FILE_ROWS] or min(rows, default=0) < 0:
            raise ValueError(f"its parts have {sum(rows):,} rows where it says {said[_FILE_ROWS]:,}")
        kinds = {name: schema.field(name).type for name in names}
        return [_facts(path, group, kinds) for group in groups]


def _footer(path: Path) -> bytes | None:
    with path.open("rb") as file:
        end = file.seek(-8, os.SEEK_END)
        size = int.from_bytes(file.read(4), "little")
        if size > min(end, _MOST_FOOTER):
            return None
        file.seek(end - size)
        return file.read(size)


def _facts(path: Path, group: Struct, kinds: dict[str, Any]) -> RowGroupFacts:
    facts = RowGroupFacts(path, group[_GROUP_ROWS])
    for chunk in group[_GROUP_COLUMNS]:
        column: Struct = chunk[_CHUNK_COLUMN]
        name = b".".join(column[_COLUMN_PATH]).decode()
        statistics: Struct = column.get(_COLUMN_STATISTICS, {})
        if name not in kinds:
            continue
        if _NULLS in statistics:
            facts.nulls[name] = statistics[_NULLS]
        if _LOWEST in statistics and _HIGHEST in statistics:
            ends = [_plain(statistics[end], column[_COLUMN_TYPE], kinds[name]) for end in (_LOWEST, _HIGHEST)]
            if None not in ends:
                facts.bounds[name] = (ends[0], ends[1])
    return facts


def _plain(value: bytes, kind: int, arrow_kind: Any) -> Any:
    """A value as statistics hold it; None of a kind that is not compared."""
    import pyarrow as arrow

    if kind == _BYTE_ARRAY:
        return value
    form = (_UNSIGNED if arrow.types.is_unsigned_integer(arrow_kind) else {}).get(kind) or _NUMBERS.get(kind)
    return None if form is None else struct.unpack(form, value)[0]


def _bounds(values: Any) -> tuple[Any, Any]:
    """The lowest and highest of some values, text as bytes; None where there are none, or of a kind without order."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    kinds = arrow.types
    if kinds.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kinds.is_string(values.type) or kinds.is_large_string(values.type):
        values = values.cast(arrow.large_binary())
    ordered = (kinds.is_integer, kinds.is_float32, kinds.is_float64, kinds.is_boolean, kinds.is_binary)
    if not (any(is_kind(values.type) for is_kind in ordered) or kinds.is_large_binary(values.type)):
        return None, None
    found = compute.min_max(values).as_py()
    return found["min"], found["max"]
