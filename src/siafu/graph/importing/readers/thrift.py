"""Thrift's compact protocol, as Parquet files describe themselves in it: structs as dictionaries by field number."""

import struct
from typing import Any

Struct = dict[int, Any]

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_DEEPEST = 32
_LONGEST_VARINT = 10


def parse_struct(data: bytes) -> Struct:
    """The struct that `data` holds. Whatever is wrong with it is a ValueError."""
    try:
        return _Reader(data).struct(0)
    except (IndexError, struct.error) as error:
        raise ValueError("its description is cut off") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int) -> Struct:
        if depth > _DEEPEST:
            raise ValueError("its description is nested too deeply")
        found: Struct = {}
        field = 0
        while (head := self._byte()) & 15 != _STOP:
            field = field + (head >> 4) if head >> 4 else self._signed()
            found[field] = self._value(head & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in (_I16, _I32, _I64):
            return self._signed()
        if kind == _BINARY:
            return self._take(self._varint())
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind == _DOUBLE:
            return struct.unpack("<d", self._take(8))[0]
        if kind == _BYTE:
            return self._byte()
        if kind == _MAP:
            return self._map(depth)
        raise ValueError(f"its description has a field of kind {kind}")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        return [self._element(head & 15, depth) for _ in range(count)]

    def _map(self, depth: int) -> list[tuple[Any, Any]]:
        count = self._varint()
        kinds = self._byte() if count else 0
        return [(self._element(kinds >> 4, depth), self._element(kinds & 15, depth)) for _ in range(count)]

    def _element(self, kind: int, depth: int) -> Any:
        # In lists a truth takes a byte of its own; so every element takes one, and none can be endless.
        return self._byte() == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth + 1)

    def _signed(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = 0
        for place in range(_LONGEST_VARINT):
            byte = self._byte()
            number |= (byte & 127) << (7 * place)
            if byte < 128:
                return number
        raise ValueError("its description has a number without end")

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise ValueError("its description is cut off")
        self._at += count
        return taken
