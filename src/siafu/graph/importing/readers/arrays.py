"""NumPy arrays in files, read a piece at a time: `.npy` files, and the members of `.npz` archives."""

import copy
import math
import os
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line

_SKIP_BYTES = 1 << 20
_MOST_BYTES = 1 << 60  # of an array: NumPy counts its bytes in 64 bits
_MOST_RATIO = 1100  # that deflate can pack


class ArrayFile:
    """One array of a file: its type and shape are known at once, its values are read on demand.

    member:    the array's name in an `.npz` archive; None where `path` is an `.npy` file
    by_column: whether the file holds one column after the other, in Fortran's order
    """

    def __init__(self, path: Path, member: str | None = None) -> None:
        self.path = path
        self._member = member
        self.where = str(path) if member is None else f"{path}[{member}]"
        with self._open() as file:
            self.shape, self.by_column, self.dtype = self._header(file)
            self._check_size(file)
        if self.dtype.hasobject:
            raise BadInput(f"{self.where} holds Python objects, which only pickle reads: save it as numbers")

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers by their type."""
        return self.dtype.kind in "iu"

    @property
    def is_number(self) -> bool:
        return self.dtype.kind in "biuf"

    def flat(self) -> "ArrayFile":
        """The same values as one long row."""
        self._check_rows()
        view = copy.copy(self)
        view.shape = (math.prod(self.shape),)
        return view

    def turned(self) -> "ArrayFile":
        """The transpose, whose rows are this array's columns."""
        view = copy.copy(self)
        view.shape, view.by_column = self.shape[::-1], not self.by_column
        return view

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[1:]

    def cursor(self, start: int = 0) -> "ArrayCursor":
        """Begin reading at row `start`."""
        self._check_rows()
        return ArrayCursor(self, start)

    def blocks(self, most_bytes: int) -> Iterator[NDArray[Any]]:
        """All rows in order, about `most_bytes` at a time."""
        rows = max(1, most_bytes // max(1, self.row_bytes))
        with self.cursor() as cursor:
            for start in range(0, len(self), rows):
                yield cursor.take(min(rows, len(self) - start))

    def read(self) -> NDArray[Any]:
        """The whole array: for those that are known to be small."""
        with self.cursor() as cursor:
            values = cursor.take(len(self))
        return values if self.shape else values.reshape(())

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.row_shape)

    def _check_rows(self) -> None:
        if self.by_column and len([length for length in self.shape if length > 1]) > 1:
            raise BadInput(
                f"{self.where} is stored column by column: save it with np.ascontiguousarray, so that rows can be read"
            )

    def _open(self) -> "_Stream":
        return _Stream(self.path, self._member)

    def _header(self, file: "_Stream") -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about headers that Python 2 wrote
                version = npy.read_magic(file)
                read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, fortran, dtype = read(file)
        except BadInput:
            raise
        except Exception as error:  # a header is a Python literal, which can be wrong in any way
            raise BadInput(f"{self.where} is not a NumPy array: {one_line(error)}") from error
        filled = math.prod(max(1, length) for length in shape) * dtype.itemsize
        if not filled <= _MOST_BYTES or dtype.itemsize == 0 or any(length < 0 for length in shape):
            raise BadInput(
                f"{self.where} is damaged: its header says shape {one_line(shape)} of {one_line(dtype)}; save it again"
            )
        return tuple(map(int, shape)), bool(fortran), dtype

    def _check_size(self, file: "_Stream") -> None:
        """Refuse a header that does not fit the size of the data, before anything is allocated."""
        declared = math.prod(self.shape) * self.dtype.itemsize
        follows = file.size - file.tell()
        if declared == follows or self.dtype.hasobject:
            return
        which = "is cut off: it has fewer" if declared > follows else "has more"
        raise BadInput(
            f"{self.where} {which} values than its header says ({follows:,} bytes instead of {declared:,}): copy or save it again"
        )


class ArrayCursor:
    """Reads an array's rows one after the other."""

    def __init__(self, array: ArrayFile, start: int) -> None:
        self.where = array.where
        self._array = array
        self._file = array._open()
        array._header(self._file)
        self._file.skip(start * array.row_bytes)

    def take(self, rows: int) -> NDArray[Any]:
        """The next rows."""
        out = np.empty((rows, *self._array.row_shape), self._array.dtype)
        data = out.reshape(-1).view(np.uint8).data
        while len(data):
            part = self._file.read(len(data))
            if not part:
                raise BadInput(f"{self._array.where} is cut off: it has fewer values than its header says")
            data[: len(part)] = part
            data = data[len(part) :]
        return out

    def __enter__(self) -> "ArrayCursor":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def members(path: Path) -> set[str]:
    """The names of the arrays in an `.npz` archive."""
    with _archive(path) as archive:
        names = archive.namelist()
        for entry in archive.infolist():
            try:
                # An array that the directory misnames would be one that is not there.
                archive.open(entry).close()
            except Exception as error:  # misnamed, misplaced, encrypted, packed in a way that is not known
                raise BadInput(f"{path} is damaged: {one_line(error)}; copy or save it again") from error
    if len(set(names)) < len(names):
        raise BadInput(f"{path} holds two arrays of one name: save it again")
    return {name.removesuffix(".npy") for name in names}


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except FileNotFoundError as error:
        raise BadInput(f"no file {path}: check the name") from error
    except Exception as error:  # a directory of members can be wrong in any way
        raise BadInput(f"{path} is not an .npz archive, or is cut off: {one_line(error)}") from error


class _Stream:
    """The bytes of an `.npy` file, or of an archive's member."""

    def __init__(self, path: Path, member: str | None) -> None:
        self._path = path
        self._archive = None if member is None else _archive(path)
        try:
            self._file: IO[bytes] = (
                path.open("rb") if self._archive is None else self._archive.open(f"{member}.npy")
            )
        except FileNotFoundError as error:
            raise BadInput(f"no file {path}: check the name") from error
        except KeyError as error:
            raise BadInput(f"{path} has no array {member!r}") from error
        except IsADirectoryError as error:
            raise BadInput(f"{path} is a folder: give a file") from error
        except Exception as error:  # encrypted, packed in a way that is not known, misplaced, and so on
            raise BadInput(f"cannot read {path}: {one_line(error)}") from error
        self.size = self._declared(member)

    def _declared(self, member: str | None) -> int:
        """Bytes of the file, or of the archive's member as its directory says."""
        if self._archive is None:
            return os.fstat(self._file.fileno()).st_size
        entry = self._archive.getinfo(f"{member}.npy")
        room = self._path.stat().st_size
        if entry.compress_size > room or entry.file_size > _MOST_RATIO * room:
            raise BadInput(
                f"{self._path}[{member}] is damaged: {entry.file_size:,} bytes cannot be packed in this file; copy it again"
            )
        return entry.file_size

    def tell(self) -> int:
        return self._file.tell()

    def read(self, count: int = -1) -> bytes:
        try:
            # An archive's member comes through a buffer of its own: large pieces would only be copied again.
            return self._file.read(min(count, _SKIP_BYTES) if self._archive and count >= 0 else count)
        except Exception as error:  # each way of packing has errors of its own
            raise BadInput(f"{self._path} is damaged: {one_line(error)}; copy it again") from error

    def skip(self, count: int) -> None:
        if self._archive is None:
            self._file.seek(count, 1)
            return
        while count and (part := self.read(min(count, _SKIP_BYTES))):
            count -= len(part)

    def close(self) -> None:
        self._file.close()
        if self._archive is not None:
            self._archive.close()

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
