"""Messages that some function made for the edges of some rows: their ends, their reduction, and the way back.

Edges are those of the rows that `picked[first:last]` names, or of first:last where it is None, row after row; what is
listed for them here stands in that order.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.kernels.chunks import row_at

_ROUNDING = 64  # units in the last place that two makings of one message may be apart


def edge_ends(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    weights: NDArray[Any] | None,
    picked: NDArray[Any] | None,
    first: int,
    last: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any] | None]:
    """For each edge its column, its row, and its weight."""
    count = int(_count_edges(indptr, picked, first, last))
    columns, rows = np.empty(count, np.int64), np.empty(count, np.int64)
    listed = None if weights is None else np.empty(count, weights.dtype)
    _list_ends(indptr, indices, weights, picked, first, last, columns, rows, listed)
    return columns, rows, listed


@kernel
def _count_edges(indptr: Any, picked: Any, first: int, last: int) -> int:
    count = 0
    for k in range(first, last):
        i = row_at(picked, k)
        count += indptr[i + 1] - indptr[i]
    return count


@kernel
def _list_ends(
    indptr: Any,
    indices: Any,
    weights: Any,
    picked: Any,
    first: int,
    last: int,
    columns: Any,
    rows: Any,
    listed: Any,
) -> None:
    at = 0
    for k in range(first, last):
        i = row_at(picked, k)
        for e in range(indptr[i], indptr[i + 1]):
            columns[at] = indices[e]
            rows[at] = i
            if weights is not None:
                listed[at] = weights[e]
            at += 1


@kernel
def rows_within(indptr: Any, picked: Any, first: int, last: int, edges: int) -> int:
    """The end of the longest run of rows from `first` on that has at most `edges` edges; of at least one row."""
    end, count = first, 0
    while end < last:
        i = row_at(picked, end)
        count += indptr[i + 1] - indptr[i]
        if count > edges and end > first:
            break
        end += 1
    return end


@kernel
def add_messages(
    indptr: Any, picked: Any, first: int, last: int, messages: Any, weights: Any, scale: Any, out: Any
) -> None:
    """out[i] = scale[i] · the sum of row i's messages, each times its weight; None stands for 1."""
    columns = messages.shape[1]
    at = 0
    for k in range(first, last):
        i = row_at(picked, k)
        for c in range(columns):
            out[i, c] = 0
        for _ in range(indptr[i], indptr[i + 1]):
            for c in range(columns):
                if weights is None:
                    out[i, c] += messages[at, c]
                else:
                    out[i, c] += weights[at] * messages[at, c]
            at += 1
        if scale is not None:
            for c in range(columns):
                out[i, c] *= scale[i]


@kernel
def greatest_messages(
    indptr: Any, picked: Any, first: int, last: int, messages: Any, out: Any, ties: Any
) -> None:
    """out[i] = the greatest of row i's messages in each column, 0 without edges; ties[i] = how many reach it.

    A message reaches it if `_nearness` says so: whoever makes the messages again must find as many.
    """
    columns = messages.shape[1]
    begin = 0
    for k in range(first, last):
        i = row_at(picked, k)
        end = begin + indptr[i + 1] - indptr[i]
        for c in range(columns):
            out[i, c] = messages[begin, c] if begin < end else 0
            ties[i, c] = 0
        for at in range(begin + 1, end):
            for c in range(columns):
                value = messages[at, c]
                # What is not a number wins and stays: a divergence must be seen.
                if value > out[i, c] or value != value:
                    out[i, c] = value
        near = _nearness(out, i, columns)
        for at in range(begin, end):
            for c in range(columns):
                if messages[at, c] >= out[i, c] - near:
                    ties[i, c] += 1
        begin = end


@kernel
def share_out(messages: Any, ends: Any, maxima: Any, shares: Any, out: Any) -> None:
    """out[e] = shares[i] in the columns where message e reaches maxima[i], else 0; i is ends[e]."""
    columns = messages.shape[1]
    last, near = -1, 0.0
    for at in range(len(messages)):
        i = ends[at]
        if i != last:
            last, near = i, _nearness(maxima, i, columns)
        for c in range(columns):
            out[at, c] = shares[i, c] if messages[at, c] >= maxima[i, c] - near else 0


@kernel
def _nearness(maxima: Any, i: int, columns: int) -> float:
    """Distance from the maximum within which a message of row i counts as reaching it.

    A product of matrices is rounded differently in another batch, so a message made again need not be the same to
    the last bit. Its error goes with the size of the numbers it was summed from, as the row's greatest shows it.
    """
    size = 0.0
    for c in range(columns):
        size = max(size, abs(maxima[i, c]))
    return size * _ROUNDING * np.finfo(maxima.dtype).eps  # type: ignore[no-any-return]


@kernel
def add_to_rows(values: Any, rows: Any, out: Any) -> None:
    """out[rows[e]] += values[e]."""
    for e in range(len(rows)):
        for c in range(values.shape[1]):
            out[rows[e], c] += values[e, c]
