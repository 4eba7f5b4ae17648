"""The kernel that reads rows of text: numbers as numbers, names as where they stand."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel

SKIP, INTEGER, NUMBER, WEIGHT, NAME, WORD, END = range(7)
"""What to do with a column. Nothing may stand at END, which comes last. A NUMBER may be empty, which is NaN; a WEIGHT must be finite; a WORD is a NAME that may be empty."""

FINE, NOT_INTEGER, TOO_LARGE, NOT_NUMBER, NOT_FINITE, MISSING, OUT_OF_RANGE = range(7)
OPEN_QUOTE, AFTER_QUOTE, STRAY_RETURN, NOT_TEXT, TOO_MANY = range(7, 12)
"""Faults of a field."""

WHITESPACE = -1
"""The delimiter that stands for any run of spaces and tabs; no byte equals it."""

_MOST = 2**63 - 1
_MOST_POWER = 9999  # far beyond any number that is neither 0 nor infinite

Bytes = NDArray[np.uint8]


@kernel
def _is_blank(byte: int) -> bool:
    return byte == 32 or byte == 9 or byte == 13


@kernel
def _field_end(data: Bytes, at: int, delimiter: int) -> int:
    """The end of the unquoted field that begins at `at`: a delimiter or the line's end."""
    while data[at] != 10:
        if data[at] == delimiter or (delimiter == WHITESPACE and _is_blank(data[at])):
            break
        at += 1
    return at


@kernel
def _unquote(data: Bytes, at: int) -> tuple[int, int]:
    """Undo CSV quoting, in place, of the field whose opening quote is at `at`.

    Where the text inside ends, and where the field does; -1 if no quote closes it in its line.
    """
    at += 1
    into = at
    while data[at] != 10:
        if data[at] == 34:
            if data[at + 1] != 34:
                return into, at + 1
            at += 1
        data[into] = data[at]
        into += 1
        at += 1
    return into, -1


@kernel
def _only_blanks(data: Bytes, lo: int, hi: int) -> bool:
    while lo < hi and _is_blank(data[lo]):
        lo += 1
    return lo == hi


@kernel
def _parse_integer(data: Bytes, lo: int, hi: int) -> tuple[int, int]:
    """A whole number, and what is wrong with it; one that is TOO_LARGE is given as the largest there is."""
    negative = lo < hi and data[lo] == 45
    if lo < hi and (data[lo] == 45 or data[lo] == 43):
        lo += 1
    if lo == hi:
        return 0, NOT_INTEGER
    value = 0
    wrong = FINE
    for i in range(lo, hi):
        digit = int(data[i]) - 48
        if digit < 0 or digit > 9:
            return 0, NOT_INTEGER
        if i - lo >= 18 and value > (_MOST - digit) // 10:  # 18 digits always fit
            wrong = TOO_LARGE
        value = _MOST if wrong == TOO_LARGE else value * 10 + digit
    return (-value if negative else value), wrong


@kernel
def _is_word(data: Bytes, lo: int, hi: int, word: Any) -> bool:
    if hi - lo != len(word):
        return False
    same = True
    for i in range(len(word)):
        same = same and (data[lo + i] | 32) == word[i]
    return same


_NAN = np.frombuffer(b"nan", np.uint8)
_NA = np.frombuffer(b"na", np.uint8)
_TRUE = np.frombuffer(b"true", np.uint8)
_FALSE = np.frombuffer(b"false", np.uint8)
_INF = np.frombuffer(b"inf", np.uint8)


@kernel
def _ends_thousands(data: Bytes, first: int, at: int, hi: int) -> bool:
    """Whether the point at `at` stands between thousands: digits before it, and groups of three behind it."""
    before = at - 1
    while before >= first and data[before] != 46:
        before -= 1
    digits = at - 1 - before
    group = at + 1
    while group < hi and 48 <= data[group] <= 57:
        group += 1
    return (digits == 3 or (before < first and 1 <= digits <= 3)) and group == at + 4


@kernel
def _parse_number(data: Bytes, lo: int, hi: int, mark: int) -> tuple[float, bool]:
    """A decimal number with this decimal mark, a point or a comma; beside a comma, points stand between thousands.

    Nothing at all, `nan` and `NA` are NaN, `true` and `false` 1 and 0.
    """
    if lo == hi or _is_word(data, lo, hi, _NAN) or _is_word(data, lo, hi, _NA):
        return np.nan, True
    if _is_word(data, lo, hi, _TRUE):
        return 1.0, True
    if _is_word(data, lo, hi, _FALSE):
        return 0.0, True
    sign = 1.0
    if data[lo] == 45 or data[lo] == 43:
        sign = -1.0 if data[lo] == 45 else 1.0
        lo += 1
    if _is_word(data, lo, hi, _INF):
        return sign * np.inf, True
    mantissa = 0.0
    exponent = 0
    digits = 0
    fraction = False
    first = lo
    while lo < hi:
        if data[lo] == mark and not fraction:
            fraction = True
        elif data[lo] == 46 and not fraction and _ends_thousands(data, first, lo, hi):
            pass
        elif 48 <= data[lo] <= 57:
            mantissa = mantissa * 10.0 + (data[lo] - 48)
            exponent -= fraction
            digits += 1
        else:
            break
        lo += 1
    if digits == 0:
        return 0.0, False
    if lo < hi:
        if (data[lo] | 32) != 101:
            return 0.0, False
        power, wrong = _parse_integer(data, lo + 1, hi)
        if wrong == NOT_INTEGER:
            return 0.0, False
        exponent += min(max(power, -_MOST_POWER), _MOST_POWER)
    if mantissa == 0.0:
        return sign * 0.0, True
    # Dividing by a power that is exact rounds once; multiplying by its inverse would round twice.
    if exponent < 0:
        return sign * (mantissa / 10.0 ** (-exponent)), True
    return sign * (mantissa * 10.0**exponent), True


@kernel
def parse_rows(
    data: Bytes,
    delimiter: int,
    mark: int,
    kinds: NDArray[np.int64],
    slots: NDArray[np.int64],
    id_stop: int,
    integers: NDArray[np.int64],
    numbers: NDArray[np.float32],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    error: NDArray[np.int64],
) -> int:
    """Read whole lines; how many rows they have. Blank lines and those that begin with # or % are no rows.

    data:      the text, which ends with a newline. Quoted names are unquoted in place
    mark:      the decimal mark of numbers, a point or a comma
    kinds:     [columns] what to do with each; columns after them are not looked at
    slots:     [columns] which of its kind's outputs a column goes to
    id_stop:   integers must be below it, and not negative; -1: any will do
    integers:  [slots, rows]; numbers: [rows, slots]; starts, lengths: [slots, rows] of names
    error:     [5] what is wrong, and where: the field's kind of error, its start and end, the column, the newlines before
    """
    at = 0
    row = 0
    lines = 0
    columns = len(kinds)
    needed = columns - (kinds[columns - 1] == END)
    while at < len(data):
        while _is_blank(data[at]) and data[at] != delimiter:
            at += 1
        column = 0
        if data[at] == 10 or data[at] == 35 or data[at] == 37:
            column = columns + 1  # no row: only the rest of the line is skipped
        while column < columns:
            while _is_blank(data[at]) and data[at] != delimiter:
                at += 1
            if delimiter == WHITESPACE and data[at] == 10:
                break
            lo = at
            if data[at] == 34:
                hi, end = _unquote(data, at)
                lo += 1
                if end < 0:
                    error[0], error[1], error[2], error[3], error[4] = OPEN_QUOTE, lo, hi, column, lines
                    return row
                close = end
                end = _field_end(data, close, delimiter)
                if not _only_blanks(data, close, end):
                    error[0], error[1], error[2], error[3], error[4] = AFTER_QUOTE, close, end, column, lines
                    return row
            else:
                end = _field_end(data, at, delimiter)
                hi = end
                while hi > lo and _is_blank(data[hi - 1]):
                    hi -= 1
            kind = kinds[column]
            slot = slots[column]
            wrong = FINE
            if kind == INTEGER:
                value, wrong = _parse_integer(data, lo, hi)
                integers[slot, row] = value
                if wrong == FINE and id_stop >= 0 and (value < 0 or value >= id_stop):
                    wrong = OUT_OF_RANGE
            elif kind in (NUMBER, WEIGHT):
                number, fine = _parse_number(data, lo, hi, mark)
                numbers[row, slot] = number
                if not fine:
                    wrong = NOT_NUMBER
                elif kind == WEIGHT and not np.isfinite(numbers[row, slot]):
                    wrong = NOT_FINITE
            elif kind in (NAME, WORD):
                starts[slot, row] = lo
                lengths[slot, row] = hi - lo
                if hi == lo and kind == NAME:
                    wrong = MISSING
            elif kind == END and hi > lo:
                wrong = TOO_MANY
            if wrong != FINE:
                error[0], error[1], error[2], error[3], error[4] = wrong, lo, hi, column, lines
                return row
            column += 1
            at = end
            if data[at] == 10:
                break
            at += 1
        if column < needed:
            error[0], error[1], error[2], error[3], error[4] = MISSING, at, at, column, lines
            return row
        row += column <= columns
        while data[at] != 10:
            at += 1
        at += 1
        lines += 1
    return row
