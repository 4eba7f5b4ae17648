"""Features whose columns differ much in scale: the widest column decides what is learnt."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.graph.bf16 import widened

_MOST_ROWS = 4096
_FAR_APART = 100.0


def told_scales(x: NDArray[Any] | None, names: Sequence[str] = ()) -> str | None:
    """A line on columns whose largest magnitudes are 100 times apart or more; None: there are none.

    x:     [V, F] features as `Graph.x` has them; some thousand rows are looked at
    names: of the columns; empty: they have numbers
    """
    if x is None or x.shape[1] < 2 or len(x) == 0:
        return None
    rows = np.asarray(x[:: -(-len(x) // _MOST_ROWS)])
    largest = np.abs(widened(rows)).max(axis=0)
    if not largest.any():
        return None
    wide = int(largest.argmax())
    narrow = int(np.where(largest > 0, largest, np.inf).argmin())
    if largest[wide] < _FAR_APART * largest[narrow]:
        return None

    def told(column: int) -> str:
        name = names[column] if names else f"column {column}"
        reach = float(largest[column])
        return f"{name} reaches {reach:,.0f}" if reach >= 100 else f"{name} reaches {reach:.3g}"

    return (
        f"features differ much in scale: {told(wide)}, {told(narrow)}; scale the columns before the import, "
        "in pandas (table - table.mean()) / table.std(), in NumPy (x - x.mean(0)) / x.std(0)"
    )
