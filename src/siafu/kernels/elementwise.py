"""Passes over rows that do at once what a tensor program's operations would do in several, with the same bits."""

from typing import Any

import numpy as np

from siafu.base.jit import kernel
from siafu.kernels.llvm.emit import LANES


@kernel
def head_sums(rows: Any, weights: Any, out: Any) -> None:
    """out[i, h] = Σ rows · weights over the columns of head h, in their order; rows [n, heads · columns], weights of one row."""
    heads = out.shape[1]
    columns = rows.shape[1] // heads
    for i in range(np.uint64(len(out))):
        for h in range(np.uint64(heads)):
            first = h * np.uint64(columns)
            total = rows[i, first] * weights[first]
            if columns == LANES:
                for k in range(np.uint64(1), np.uint64(LANES)):
                    total += rows[i, first + k] * weights[first + k]
            else:
                for k in range(np.uint64(1), np.uint64(columns)):
                    total += rows[i, first + k] * weights[first + k]
            out[i, h] = total


@kernel
def head_products(factors: Any, rows: Any, out: Any) -> None:
    """out = rows, each head's columns times its factor; factors [n, heads]."""
    heads = factors.shape[1]
    columns = out.shape[1] // heads
    for i in range(np.uint64(len(out))):
        for h in range(np.uint64(heads)):
            factor, first = factors[i, h], h * np.uint64(columns)
            if columns == LANES:  # a loop of known length is one vector
                for k in range(np.uint64(LANES)):
                    out[i, first + k] = factor * rows[i, first + k]
            else:
                for k in range(np.uint64(columns)):
                    out[i, first + k] = factor * rows[i, first + k]


@kernel
def add_head_products(
    base: Any, left: Any, left_weights: Any, right: Any, right_weights: Any, out: Any
) -> None:
    """out = base + (left · left_weights + right · right_weights); left, right: [n, heads], weights of one row."""
    heads = left.shape[1]
    columns = out.shape[1] // heads
    for i in range(np.uint64(len(out))):
        for h in range(np.uint64(heads)):
            a, b, first = left[i, h], right[i, h], h * np.uint64(columns)
            if columns == LANES:
                for k in range(np.uint64(LANES)):
                    c = first + k
                    out[i, c] = base[i, c] + (a * left_weights[c] + b * right_weights[c])
            else:
                for k in range(np.uint64(columns)):
                    c = first + k
                    out[i, c] = base[i, c] + (a * left_weights[c] + b * right_weights[c])
