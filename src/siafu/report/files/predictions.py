"""Predictions as a table: the vertices' own ids, what the model says, and how sure it is."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.storage.files import replacing

_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Predictions:
    """A row for each vertex.

    ids:           [N] int64, or UTF-8 bytes: the vertices' names in the source
    classes:       [N] int64, or [N, C] booleans where a vertex may have several labels
    probabilities: [N, C] float32; None: not asked for
    class_names:   the name of each class; empty: they are numbers
    """

    ids: NDArray[Any]
    classes: NDArray[Any]
    probabilities: NDArray[np.float32] | None = None
    class_names: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        width = 0 if self.probabilities is None else self.probabilities.shape[1]
        names = self.class_names or range(width)
        return ["id", "prediction", *(f"probability_{name}" for name in (names if width else ()))]

    def write(self, path: Path) -> None:
        """Write a .csv or .parquet file, whole or not at all."""
        check_kind(path)
        if path.suffix.lower() == ".parquet":
            self._write_parquet(path)
            return
        with replacing(path) as file:
            self.write_csv(file)

    def write_csv(self, file: IO[bytes]) -> None:
        """Comma-separated, with a header; several labels of one vertex are separated by spaces."""
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        for block in self._blocks():
            writer.writerows(block)
        text.flush()
        text.detach()

    def _blocks(self) -> Iterator[Iterator[list[Any]]]:
        for start in range(0, len(self.ids), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            columns: list[list[Any]] = [_names(self.ids[rows]), self._written_classes(rows)]
            if self.probabilities is not None:
                columns += [[f"{p:.6g}" for p in column] for column in self.probabilities[rows].T.tolist()]
            yield map(list, zip(*columns, strict=True))

    def _written_classes(self, rows: slice) -> list[Any]:
        chosen = self.classes[rows]
        if chosen.ndim == 1:
            return self._named(chosen)
        return [" ".join(map(str, np.flatnonzero(row))) for row in chosen]

    def _named(self, classes: NDArray[Any]) -> list[Any]:
        names = self.class_names
        return [names[each] for each in classes.tolist()] if names else list(classes.tolist())

    def _write_parquet(self, path: Path) -> None:
        several = self.classes.ndim == 2
        columns: list[Any] = [
            _names(self.ids) if self.ids.dtype.kind == "S" else self.ids,
            [np.flatnonzero(row) for row in self.classes]
            if several
            else (self._named(self.classes) if self.class_names else self.classes),
        ]
        if self.probabilities is not None:
            columns += list(self.probabilities.T)
        _write_table(path, columns, self.columns)


@dataclass(frozen=True, slots=True)
class VertexVectors:
    """Rows of a hidden layer, one for each vertex.

    ids:  [N] int64, or UTF-8 bytes: the vertices' names in the source
    rows: [N, C] floats
    """

    ids: NDArray[Any]
    rows: NDArray[Any]

    @property
    def columns(self) -> list[str]:
        return ["id", *(f"h{column}" for column in range(self.rows.shape[1]))]

    def write(self, path: Path) -> None:
        """Write a .csv or .parquet file, whole or not at all."""
        check_kind(path)
        if path.suffix.lower() == ".csv":
            with replacing(path) as file:
                self.write_csv(file)
            return
        ids = _names(self.ids) if self.ids.dtype.kind == "S" else self.ids
        _write_table(path, [ids, *self.rows.T], self.columns)

    def write_csv(self, file: IO[bytes]) -> None:
        """Comma-separated, with a header, a block of rows at a time; numbers are such that reading gives the same again."""
        file.write((",".join(self.columns) + "\n").encode())
        for start in range(0, len(self.ids), _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            text = io.StringIO(newline="")
            writer = csv.writer(text, lineterminator="\n")
            for name, row in zip(_names(self.ids[some]), self.rows[some], strict=True):
                writer.writerow([name, *map(str, row)])
            file.write(text.getvalue().encode())


def _write_table(path: Path, columns: list[Any], names: list[str]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(
            "writing Parquet needs pyarrow: pip install 'siafu[parquet]', or write a .csv file"
        ) from error
    table = pyarrow.table([pyarrow.array(column) for column in columns], names=names)
    with replacing(path) as file:
        parquet.write_table(table, file)


def check_kind(path: Path) -> None:
    """Refuse a file that is to be neither CSV nor Parquet."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise BadInput(f"cannot tell what to write to {path}: name a file that ends in .csv or .parquet")


def _names(ids: NDArray[Any]) -> list[Any]:
    values = ids.tolist()
    return [name.decode() for name in values] if ids.dtype.kind == "S" else list(values)
