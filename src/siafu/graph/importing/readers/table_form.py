"""The form of a table of text, seen in its first rows: its delimiter, whether it has a header, its decimal mark."""

import re
from collections.abc import Sequence

from siafu.base.errors import BadInput
from siafu.graph.importing.readers.columns import KNOWN

Texts = list[str]

_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " ", "whitespace": " "}
_WITH_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+),\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+")
_MAYBE_THOUSANDS = re.compile(r"[+-]?\d{1,3},\d{3}")
_FIGURES = re.compile(r"[+-]?\d[\d.,:/+\-TZ %€$]*")
"""Numbers of any country, dates and times."""


def delimiter_of(asked: str | None, lines: Sequence[str]) -> str:
    """The delimiter that is asked for, or else the one that cuts all lines into equally many fields."""
    if asked is not None:
        found = _DELIMITERS.get(asked.lower(), asked)
        if len(found) != 1 or ord(found) > 127:
            raise BadInput(f"delimiter {asked!r} is not one character, nor tab, comma, semicolon or space")
        return found
    there = [mark for mark in "\t,;|" if lines and mark in lines[0]]
    # A comma may be a decimal comma, and a semicolon a mark within a field: such cut lines into unequal parts, or fewer.
    counts = {mark: {len(split_fields(line, mark)) for line in lines} for mark in there}
    even = [mark for mark in there if len(counts[mark]) == 1]
    if "\t" in there or not even:
        return there[0] if there else " "
    return max(even, key=lambda mark: max(counts[mark]))


def split_fields(line: str, delimiter: str) -> Texts:
    """A line's fields, as the kernel sees them."""
    if delimiter == " ":
        return [field.strip('"') for field in line.split()]
    fields, field, quoted = [], "", False
    for character in line:
        if character == '"':
            quoted = not quoted
        elif character == delimiter and not quoted:
            fields.append(field.strip())
            field = ""
        else:
            field += character
    return [*fields, field.strip()]


def looks_like_header(rows: Sequence[Texts]) -> bool:
    """Whether the first row names columns: words above numbers or dates, or names that people use."""
    if any(is_number(name) for name in rows[0]):
        return False
    known = sum(name.lower() in KNOWN for name in rows[0])
    if known >= min(2, len(rows[0])) or any(map(is_number, rows[1] if len(rows) > 1 else [])):
        return True
    return any(_is_word_above_figures(rows, column) for column in range(len(rows[0])))


def _is_word_above_figures(rows: Sequence[Texts], column: int) -> bool:
    below = [row[column] for row in rows[1:] if len(row) > column and row[column]]
    return bool(below) and not _FIGURES.fullmatch(rows[0][column]) and all(map(_FIGURES.fullmatch, below))


def has_decimal_commas(delimiter: str, rows: Sequence[Texts]) -> bool:
    """Whether numbers have decimal commas, as Excel writes them where the delimiter is a semicolon.

    One number must need it: 1,015 alone may be a thousand and fifteen. None may contradict it, as 7.5 does.
    """
    if delimiter != ";":
        return False
    fields = [field for row in rows for field in row]
    needed = any(_WITH_COMMA.fullmatch(each) and not _MAYBE_THOUSANDS.fullmatch(each) for each in fields)
    return needed and not any(
        is_number(each) and "." in each and not _THOUSANDS.fullmatch(each) for each in fields
    )


def is_integer(field: str) -> bool:
    return field.lstrip("+-").isdecimal()


def is_number(field: str, decimal_commas: bool = False) -> bool:
    if decimal_commas and (_WITH_COMMA.fullmatch(field) or _THOUSANDS.fullmatch(field)):
        return True
    try:
        float(field)
    except ValueError:
        return False
    return not (decimal_commas and "." in field)
