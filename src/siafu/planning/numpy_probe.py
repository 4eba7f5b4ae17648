"""Rates of a Lambda's thread: NumPy alone, in a process of its own, as a Lambda is.

    python -m siafu.planning.numpy_probe SECONDS

prints one JSON object. One such process for each core, all at once, shows what Lambdas of this machine do beside each other.
"""

import json
import sys
import time
from collections.abc import Callable

import numpy as np

from siafu.program.execute.numpy_dropout import drop_rows
from siafu.program.execute.numpy_operations import FUNCTIONS

WIDTHS = (8, 32, 128, 512)
_ROWS, _OTHER_WIDTH = 2048, 128
_LARGE = 1 << 26
_BATCH_SECONDS = 0.003  # short enough to find a quiet moment


def measured(seconds: float) -> dict[str, object]:
    """Rates as `siafu.virtual.costs.CoreSpeed` has them, each measured for so long."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((_ROWS, _OTHER_WIDTH), dtype=np.float32)
    rows = rng.standard_normal((_ROWS, 64), dtype=np.float32)
    ids = np.arange(_ROWS, dtype=np.int64)
    small = np.ones((8, 8), np.float32)
    source, target = np.ones(_LARGE // 4, np.float32), np.empty(_LARGE // 4, np.float32)
    add = FUNCTIONS["add"]
    products = []
    for width in WIDTHS:
        g = rng.standard_normal((_ROWS, width), dtype=np.float32)
        weight = rng.standard_normal((_OTHER_WIDTH, width), dtype=np.float32)
        once = _best(lambda g=g, weight=weight: (x @ weight, g @ weight.T, x.T @ g), seconds)  # type: ignore[misc]
        products.append((width, 3 * 2 * _ROWS * _OTHER_WIDTH * width / once))
    return {
        "products": products,
        "stream": 3 * rows.nbytes / _best(lambda: add(rows, rows), seconds),
        "draws": rows.size / _best(lambda: drop_rows(rows, ids, 0, 1, 0.5, 0), seconds),
        "call_seconds": _best(lambda: add(small, small), seconds),
        "functions": rows.size / _best(lambda: np.exp(rows), seconds),
        "memory": 2 * source.nbytes / _best(lambda: np.copyto(target, source), seconds),
    }


def _best(call: Callable[[], object], seconds: float) -> float:
    """Seconds of one call, of the process alone, the best of those that fit into so long."""
    call()
    began = time.process_time()
    call()
    times = max(1, round(_BATCH_SECONDS / max(time.process_time() - began, 1e-7)))
    found, ends = float("inf"), time.process_time() + seconds
    while time.process_time() < ends:
        began = time.process_time()
        for _ in range(times):
            call()
        found = min(found, (time.process_time() - began) / times)
    return found


if __name__ == "__main__":
    print(json.dumps(measured(float(sys.argv[1]))))
