"""Quantities: labels that are numbers to come close to."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph.classes import FEW

WIDEST = 4096
"""Columns of quantities that a vertex may have: more is a matrix that was given by mistake."""


def quantities_of(values: NDArray[Any], num_vertices: int) -> NDArray[Any] | None:
    """Floats as `Graph.y` holds quantities, NaN where unknown; None: these are classes or labels.

    Whole numbers from -1 up, of which the highest is below 1,000 or the number of vertices, are classes, as OGB has them with NaN for
    unknown ones; columns of zeros and ones are labels.
    """
    if values.dtype.kind != "f" or values.ndim not in (1, 2) or len(values) != num_vertices:
        return None
    column = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    known = column[~np.isnan(column)]
    if np.isinf(known).any():
        raise BadInput("y has infinite numbers: quantities are finite, NaN where unknown")
    if column.ndim == 2 and len(known) == column.size and np.isin(known, (0, 1)).all():
        return None
    if column.ndim == 1 and (known == np.floor(known)).all():
        low, high = known.min(initial=0), known.max(initial=0)
        if low >= -1 and high < max(FEW, num_vertices):
            return None
    if column.ndim == 2 and column.shape[1] > WIDEST:
        raise BadInput(f"y has {column.shape[1]:,} quantities a vertex: give at most {WIDEST:,} columns")
    return np.ascontiguousarray(column, np.float64 if column.dtype == np.float64 else np.float32)


def unknown_rows(y: NDArray[Any]) -> NDArray[np.bool_]:
    """[V] whether a vertex has no label: of several labels each is known, of several quantities none may be NaN."""
    if y.dtype.kind == "f":
        missing: NDArray[np.bool_] = np.isnan(y) if y.ndim == 1 else np.isnan(y).any(1)
        return missing
    return y < 0 if y.ndim == 1 else np.zeros(len(y), np.bool_)
