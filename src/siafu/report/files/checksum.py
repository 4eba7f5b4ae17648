"""Checksums of a run's files: a file of text or with a head of text holds its own, as a JSON string of eight digits.

The CRC-32 is that of the whole file with zeros in place of the digits, so that a changed bit is found wherever it is.
"""

import re
import zlib

KEY = "crc32"
BLANK = "00000000"

_SEAL = re.compile(rb'"crc32": ?"([0-9a-f]{8})"')


def sealed(content: bytes, head: int | None = None) -> bytes:
    """The same bytes with the checksum where `BLANK` stands as the value of `KEY`.

    head: how many bytes at the start may hold it; None: all
    """
    start, end = _digits(content, head) or (0, 0)
    if content[start:end] != BLANK.encode():
        raise ValueError("there is no place, or more than one, for a checksum")
    return content[:start] + _checksum(content, start, end) + content[end:]


def is_sealed(content: bytes, head: int | None = None) -> bool:
    """Whether the bytes hold a checksum, right or wrong."""
    return _digits(content, head) is not None


def is_whole(content: bytes, head: int | None = None) -> bool:
    """Whether the bytes hold a checksum, and are those that it was made of."""
    digits = _digits(content, head)
    return digits is not None and content[slice(*digits)] == _checksum(content, *digits)


def place(head: bytes) -> int:
    """Position of the checksum's digits in the head of a file."""
    digits = _digits(head, None)
    if digits is None:
        raise ValueError("there is no place, or more than one, for a checksum")
    return digits[0]


def _digits(content: bytes, head: int | None) -> tuple[int, int] | None:
    found = list(_SEAL.finditer(content, 0, len(content) if head is None else head))
    return found[0].span(1) if len(found) == 1 else None


def _checksum(content: bytes, start: int, end: int) -> bytes:
    around = memoryview(content)
    crc = zlib.crc32(around[end:], zlib.crc32(BLANK.encode(), zlib.crc32(around[:start])))
    return b"%08x" % crc
