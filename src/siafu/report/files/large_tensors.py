"""Tables too large to be copied: written to and read from a safetensors file a block at a time.

The file is one that `siafu.report.files.checkpoint` could have written: tensors and a JSON object, with a checksum of the whole.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.storage.files import replacing
from siafu.report.files import checksum

_STATE = "siafu"
_LENGTH = 8  # bytes that say how long the header is
_BLOCK = 16 << 20
_MOST_HEADER = 64 << 20
_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "I64": np.dtype(np.int64),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class StreamedTable:
    """A table that is never in memory as a whole; parts: starts reading its rows, in order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parts: Callable[[], Iterator[NDArray[Any]]]

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=object))


def save_tables(
    path: Path, tables: Mapping[str, NDArray[Any] | StreamedTable], state: dict[str, Any]
) -> None:
    """Write `tables` and `state` to `path`, whole or not at all; nothing is copied but a block at a time."""
    header: dict[str, Any] = {
        "__metadata__": {_STATE: json.dumps(state, allow_nan=False), checksum.KEY: checksum.BLANK}
    }
    begin = 0
    for name, table in tables.items():
        shape, end = list(table.shape), begin + table.nbytes
        header[name] = {"dtype": _NAMES[table.dtype], "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors begin aligned
    head = len(text).to_bytes(_LENGTH, "little") + text
    at = checksum.place(head)
    with replacing(path) as file:
        file.write(head)
        crc = zlib.crc32(head)
        for table in tables.values():
            for block in _blocks(table):
                file.write(block)
                crc = zlib.crc32(block, crc)
        file.seek(at)
        file.write(b"%08x" % crc)


def load_tables(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Tables that `save_tables` wrote, to the bit: mapped into memory, so that pages are read when used, and never written."""
    if not path.is_file():
        raise BadInput(f"{path} is missing: the run was not copied whole; copy it again")
    try:
        with path.open("rb") as file:
            return _read(file, path, path.stat().st_size)
    except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{path} is corrupted ({reason}): copy the run again, or train it again") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): copy the run again") from error


def _read(file: IO[bytes], path: Path, size: int) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    first = file.read(_LENGTH)
    length = int.from_bytes(first, "little")
    if length > min(size - _LENGTH, _MOST_HEADER):
        raise ValueError("it is truncated")
    head = first + file.read(length)
    at = checksum.place(head)
    written = head[at : at + len(checksum.BLANK)]
    crc = zlib.crc32(head[:at] + checksum.BLANK.encode() + head[at + len(checksum.BLANK) :])
    header = json.loads(head[_LENGTH:])
    state = json.loads(header.pop("__metadata__")[_STATE])
    if not isinstance(state, dict):
        raise ValueError("its state is no JSON object")
    places = {}
    end = 0
    for name, entry in header.items():
        places[name], end = _place(entry, end, size - len(head))
    left = end
    while left:
        block = file.read(min(left, _BLOCK))
        if not block:
            raise ValueError("it is truncated")
        crc = zlib.crc32(block, crc)
        left -= len(block)
    if file.read(1) or b"%08x" % crc != written:
        raise ValueError("its checksum is wrong")
    return {name: _mapped(path, len(head), *place) for name, place in places.items()}, state


def _mapped(path: Path, head: int, begin: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "c", head + begin, shape).view(np.ndarray)


def _place(
    entry: dict[str, Any], begin: int, room: int
) -> tuple[tuple[int, tuple[int, ...], np.dtype[Any]], int]:
    """Where a table begins, its shape and type; and where it ends, if the file has as much."""
    shape = entry["shape"]
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"it has a tensor of shape {shape}")
    dtype = _DTYPES[entry["dtype"]]
    end = begin + dtype.itemsize * int(np.prod(shape, dtype=object))
    if entry["data_offsets"] != [begin, end] or end > room:
        raise ValueError("its tensors are not where its header says")
    return (begin, tuple(shape), dtype), end


def _blocks(table: NDArray[Any] | StreamedTable) -> Iterator[memoryview]:
    if isinstance(table, StreamedTable):
        for part in table.parts():
            yield from _blocks(part)
        return
    data = np.ascontiguousarray(table).reshape(-1).view(np.uint8).data
    for start in range(0, len(data), _BLOCK):
        yield data[start : start + _BLOCK]
