"""Tables in Parquet files, read with pyarrow: of edges, and of vertices."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line
from siafu.graph import check
from siafu.graph.importing.readers.blocks import EdgeBlock, Ids, Names, VertexBlock, codes_of, masked_codes
from siafu.graph.importing.readers.columns import FILL_IN, EdgeColumns, VertexColumns, names_of, other_columns
from siafu.graph.importing.readers.edges import as_ids, as_weights
from siafu.graph.importing.readers.folders import file_inside
from siafu.graph.importing.readers.parquet_facts import naming, read_facts

_ROWS_AT_ONCE = 1 << 18


class ParquetTable:
    """A Parquet file, or a directory of such files that are one table."""

    def __init__(self, path: Path) -> None:
        self._parquet, self._arrow = _pyarrow()
        self.path = path
        self._files = (
            [file_inside(path, file.name) for file in sorted(path.glob("*.parquet"))]
            if path.is_dir()
            else [path]
        )
        if not self._files or not all(file.exists() for file in self._files):
            raise BadInput(f"no file {path}: check the name")
        with self._open(self._files[0]) as file:
            self.schema = file.schema_arrow
        self.columns: list[str] = list(self.schema.names)
        if len(set(self.columns)) < len(self.columns):
            raise BadInput(f"{self._files[0]} has two columns of one name: give each its own")

    def is_text(self, column: int) -> bool:
        kind = self.schema.field(column).type
        kinds = self._arrow.types
        if kinds.is_dictionary(kind):
            kind = kind.value_type
        return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_binary(kind))

    def is_number(self, column: int) -> bool:
        kind = self.schema.field(column).type
        kinds = self._arrow.types
        return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind))

    def is_boolean(self, column: int) -> bool:
        return bool(self._arrow.types.is_boolean(self.schema.field(column).type))

    def batches(self, columns: list[int]) -> Iterator[tuple[list[Any], float]]:
        """Arrow arrays of these columns, some rows at a time, and how much of the table was read so far."""
        names = [self.columns[column] for column in dict.fromkeys(columns)]
        for number, path in enumerate(self._files):
            with self._open(path) as file:
                self._check_alike(path, file, names)
                rows, done = max(1, file.metadata.num_rows), 0
                for batch in self._checked_batches(path, file, names):
                    done += batch.num_rows
                    read = (number + done / rows) / len(self._files)
                    yield [batch.column(self.columns[column]) for column in columns], read

    def _check_alike(self, path: Path, file: Any, names: list[str]) -> None:
        """Refuse a file of a folder whose columns are not those of the first."""
        for name in names:
            there = file.schema_arrow
            kind = there.field(name).type if there.names.count(name) == 1 else None
            first = self.schema.field(name).type
            if kind != first:
                raise BadInput(
                    f"{path}, column {name!r} holds {kind or 'nothing'}, but {first} in {self._files[0]}: the files of one table are alike"
                )

    def _checked_batches(self, path: Path, file: Any, names: list[str]) -> Iterator[Any]:
        """Rows of one file, compared with what the file itself says of them."""
        all_facts = read_facts(path, self.schema, names)
        if all_facts is not None and len(all_facts) != file.num_row_groups:
            raise BadInput(f"{path} is damaged: it does not say how many parts it has; write it again")
        for number in range(file.num_row_groups):
            facts = None if all_facts is None else all_facts[number]
            batches = file.iter_batches(_ROWS_AT_ONCE, row_groups=[number], columns=names)
            while (batch := self._next_batch(path, batches)) is not None:
                if facts is not None:
                    with naming(path):
                        facts.check(batch)
                yield batch
            if facts is not None:
                facts.check_all_came()

    def _next_batch(self, path: Path, batches: Iterator[Any]) -> Any:
        with naming(path):
            batch = next(batches, None)
            for column in batch.columns if batch is not None else ():
                # Offsets and codes lead into memory; plain numbers are whatever they are.
                column.validate(full=not self._arrow.types.is_primitive(column.type))
            return batch

    def where(self, column: int) -> str:
        """The name of a column in an error."""
        return f"{self.path}, column {self.columns[column]!r}"

    def ids(
        self, values: Any, column: int, *, named: bool, id_stop: int | None = None, first: int = 0
    ) -> Ids:
        """Strings, or whole numbers below `id_stop` if that is known; `first` is the row of the first."""
        if values.null_count:
            raise BadInput(f"{self.where(column)}: a row has no id")
        if named:
            return self.names(values, self.where(column))
        if not self._arrow.types.is_integer(values.type):
            raise BadInput(f"{self.where(column)} holds {values.type}: ids are whole numbers or strings")
        return as_ids(values.to_numpy(zero_copy_only=False), id_stop, self.where(column), first)

    def names(self, values: Any, where: str) -> Names:
        """Strings, each of UTF-8 without a zero byte."""
        try:
            names = self.words(values)
        except self._arrow.ArrowException as error:
            raise BadInput(f"{where} has a name that is not UTF-8: save it as a string") from error
        if names.size and not names.data[names.starts[0] : names.starts[-1] + names.lengths[-1]].all():
            raise BadInput(f"{where} has a name with a zero byte: leave it out")
        return names

    def words(self, values: Any) -> Names:
        """Strings; nothing is an empty one. Booleans are True and False, as pandas writes them into text."""
        arrow = self._arrow
        if arrow.types.is_boolean(values.type):
            values = arrow.array(
                [None if value is None else str(value) for value in values.to_pylist()], arrow.string()
            )
        text = values.cast(arrow.large_string()).fill_null("")
        _, offsets, data = text.buffers()
        bounds = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
        letters = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        return Names(letters, bounds[:-1].copy(), np.diff(bounds))

    def numbers(self, values: Any) -> NDArray[np.float32]:
        """Numbers; nothing is NaN."""
        # Not safe: whole numbers that float64 rounds are rounded to float32 in any case.
        found = values.cast(self._arrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        return check.float32(found)

    def _open(self, path: Path) -> Any:
        try:
            return self._parquet.ParquetFile(path, page_checksum_verification=True)
        except Exception as error:  # Arrow's own, the system's, names that are no text, no memory
            raise BadInput(f"{path} is not a Parquet file, or is cut off: {one_line(error)}") from error


class ParquetEdges:
    """Edges out of a Parquet table."""

    num_vertices: int | None = None

    def __init__(self, table: ParquetTable, columns: EdgeColumns) -> None:
        self._table = table
        self.path = table.path
        self._columns = columns.positions(table.path, table.columns, len(table.columns))
        src, dst, weight, features, kind = self._columns
        self.end_names = names_of(table.columns, (src, dst))
        self.ignored = other_columns(table.columns, len(table.columns), self._columns.taken)
        self.notes: tuple[str, ...] = ()
        self.weighted = weight is not None
        self.attr_width = len(features)
        self.typed = kind is not None
        self._types_are_words = kind is not None and table.is_text(kind)
        if weight is not None and table.is_text(weight):
            raise BadInput(f"{table.where(weight)} holds no numbers: weights are")
        numeric = [*features, *([] if kind is None or self._types_are_words else [kind])]
        if (wrong := next((each for each in numeric if not table.is_number(each)), None)) is not None:
            held = table.schema.field(wrong).type
            raise BadInput(
                f"{table.where(wrong)} holds {held}: features of edges are columns of one number each"
            )
        self.named = table.is_text(src) or table.is_text(dst)

    def blocks(self, id_stop: int | None) -> Iterator[EdgeBlock]:
        src_column, dst_column, weight, features, kind = self._columns
        values = [*features, *(each for each in (weight, kind) if each is not None)]
        first = 0
        for (src, dst, *more), read in self._table.batches([src_column, dst_column, *values]):
            ends = sharing(
                self._table.ids(src, src_column, named=self.named, id_stop=id_stop, first=first),
                self._table.ids(dst, dst_column, named=self.named, id_stop=id_stop, first=first),
            )
            found = dict(zip(values, more, strict=True))
            weights = None if weight is None else self._finite(found[weight], weight, first)
            attr = None
            if features:
                attr = np.stack([self._finite(found[each], each, first) for each in features], axis=1)
            yield EdgeBlock(
                *ends, weights, read, attr, None if kind is None else self._types(found[kind], kind)
            )
            first += len(src)

    def _finite(self, values: Any, column: int, first: int) -> NDArray[np.float32]:
        what = "weight" if column == self._columns.weight else "feature"
        return as_weights(self._table.numbers(values), self._table.where(column), first, what)

    def _types(self, values: Any, column: int) -> NDArray[np.float32] | Names:
        if values.null_count:
            raise BadInput(f"{self._table.where(column)}: an edge has no type; give it one")
        if self._types_are_words:
            return self._table.names(values, self._table.where(column))
        return self._table.numbers(values)


class ParquetVertices:
    """Vertices out of a Parquet table."""

    def __init__(self, table: ParquetTable, asked: VertexColumns) -> None:
        self.path = table.path
        self._table = table
        numeric = [column for column in range(len(table.columns)) if table.is_number(column)]
        self._columns = asked.positions(table.path, table.columns, len(table.columns), numeric)
        for column in self._columns.features:
            if column not in numeric:
                raise BadInput(f"{table.where(column)} holds no numbers: leave it out")
        label = self._columns.label
        self._labels_are_words = label is not None and (table.is_text(label) or table.is_boolean(label))
        self.ignored = other_columns(table.columns, len(table.columns), self._columns.taken)
        self.notes: tuple[str, ...] = ()
        self.width = len(self._columns.features)
        self.feature_names = names_of(table.columns, self._columns.features)
        self.has_labels = label is not None
        self.has_split = self._columns.has_split
        self.named = table.is_text(self._columns.id)

    def blocks(self) -> Iterator[VertexBlock]:
        ids, label, split, features, masks = self._columns
        splits = [column for column in (split, *masks) if column is not None]
        others = [*(() if label is None else (label,)), *splits]
        done = 0
        for (found, *rest), _ in self._table.batches([ids, *others, *features]):
            labels, words = self._labels(rest.pop(0)) if label is not None else (None, None)
            codes = self._codes([rest.pop(0) for _ in splits], done) if splits else None
            rows = np.empty((len(found), self.width), np.float32)
            for slot, (column, values) in enumerate(zip(features, rest, strict=True)):
                rows[:, slot] = as_weights(
                    self._table.numbers(values), self._table.where(column), done, "feature", FILL_IN
                )
            yield VertexBlock(self._table.ids(found, ids, named=self.named), labels, codes, rows, words)
            done += len(found)

    def _codes(self, columns: list[Any], done: int) -> NDArray[np.uint8]:
        """The split of a block: out of one column, or out of a mask for each part."""
        place, words = partial(self._row, done), map(self._table.words, columns)
        if not self._columns.masks:
            return codes_of(next(words), place)
        return masked_codes([None if each is None else next(words) for each in self._columns.masks], place)

    def _row(self, done: int, row: int) -> str:
        return f"{self.path}, entry {done + row},"

    def _labels(self, column: Any) -> tuple[NDArray[np.float32] | None, Names | None]:
        if self._labels_are_words:
            return None, self._table.words(column)
        return self._table.numbers(column), None


def sharing(src: Ids, dst: Ids) -> tuple[Ids, Ids]:
    """Names of both ends in one buffer."""
    if not isinstance(src, Names) or not isinstance(dst, Names):
        return src, dst
    data = np.concatenate([src.data, dst.data])
    return Names(data, src.starts, src.lengths), Names(data, dst.starts + len(src.data), dst.lengths)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput("reading Parquet needs pyarrow: pip install 'siafu[parquet]'") from error
    return parquet, pyarrow
