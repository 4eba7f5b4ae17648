"""Queries: what an entity becomes under a relation, before it is compared with candidates; and the gradients.

All take rows of a batch: `a` the known entity's, `r` the relation's, `q` the query. The tail of (h, r, ?) is asked for by
`q(h, r)`; the head of (?, r, t) by the inverse, `q'(t, r)`, so that both compare with the missing entity's row. BatchRows of
complex numbers have their real parts first, then the imaginary ones.
"""

from typing import Any

import numpy as np

from siafu.base.jit import kernel
from siafu.embedding.steps.angles import sine_and_cosine

BatchRows = Any  # [b, width] float32 or float64


@kernel
def same(a: BatchRows, r: BatchRows, inverse: bool, q: BatchRows) -> None:
    """q = a."""
    q[:] = a


@kernel
def same_back(
    a: BatchRows, r: BatchRows, q: BatchRows, dq: BatchRows, inverse: bool, da: BatchRows, dr: BatchRows
) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            da[i, j] += dq[i, j]


@kernel
def product(a: BatchRows, r: BatchRows, inverse: bool, q: BatchRows) -> None:
    """q = a * r, which is its own inverse's."""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            q[i, j] = a[i, j] * r[i, j]


@kernel
def product_back(
    a: BatchRows, r: BatchRows, q: BatchRows, dq: BatchRows, inverse: bool, da: BatchRows, dr: BatchRows
) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            da[i, j] += dq[i, j] * r[i, j]
            dr[i, j] += dq[i, j] * a[i, j]


@kernel
def complex_product(a: BatchRows, r: BatchRows, inverse: bool, q: BatchRows) -> None:
    """q = a * r in complex numbers; the inverse has r's conjugate."""
    half = a.shape[1] // 2
    sign = r.dtype.type(-1.0 if inverse else 1.0)
    for i in range(a.shape[0]):
        for j in range(half):
            x, y, u, v = a[i, j], a[i, j + half], r[i, j], sign * r[i, j + half]
            q[i, j] = x * u - y * v
            q[i, j + half] = x * v + y * u


@kernel
def complex_product_back(
    a: BatchRows, r: BatchRows, q: BatchRows, dq: BatchRows, inverse: bool, da: BatchRows, dr: BatchRows
) -> None:
    half = a.shape[1] // 2
    sign = r.dtype.type(-1.0 if inverse else 1.0)
    for i in range(a.shape[0]):
        for j in range(half):
            x, y, u, v = a[i, j], a[i, j + half], r[i, j], sign * r[i, j + half]
            gx, gy = dq[i, j], dq[i, j + half]
            da[i, j] += gx * u + gy * v
            da[i, j + half] += gy * u - gx * v
            dr[i, j] += gx * x + gy * y
            dr[i, j + half] += sign * (gy * x - gx * y)


@kernel
def translation(a: BatchRows, r: BatchRows, inverse: bool, q: BatchRows) -> None:
    """q = a + r; the inverse is a - r."""
    sign = r.dtype.type(-1.0 if inverse else 1.0)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            q[i, j] = a[i, j] + sign * r[i, j]


@kernel
def translation_back(
    a: BatchRows, r: BatchRows, q: BatchRows, dq: BatchRows, inverse: bool, da: BatchRows, dr: BatchRows
) -> None:
    sign = r.dtype.type(-1.0 if inverse else 1.0)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            da[i, j] += dq[i, j]
            dr[i, j] += sign * dq[i, j]


@kernel
def rotation(a: BatchRows, r: BatchRows, inverse: bool, q: BatchRows) -> None:
    """q = a, each complex number turned by the relation's angle; the inverse turns back. r: [b, width / 2] angles."""
    half = a.shape[1] // 2
    sign = r.dtype.type(-1.0 if inverse else 1.0)
    for i in range(a.shape[0]):
        for j in range(half):
            sine, cosine = sine_and_cosine(r[i, j])
            x, y, u, v = a[i, j], a[i, j + half], cosine, sign * sine
            q[i, j] = x * u - y * v
            q[i, j + half] = x * v + y * u


@kernel
def rotation_back(
    a: BatchRows, r: BatchRows, q: BatchRows, dq: BatchRows, inverse: bool, da: BatchRows, dr: BatchRows
) -> None:
    half = a.shape[1] // 2
    sign = r.dtype.type(-1.0 if inverse else 1.0)
    cosines, sines = np.empty(half, r.dtype), np.empty(half, r.dtype)
    for i in range(a.shape[0]):
        # A loop for each result: of many arrays in one loop, LLVM cannot tell which overlap, and makes no vectors.
        for j in range(half):
            sine, cosine = sine_and_cosine(r[i, j])
            cosines[j], sines[j] = cosine, sign * sine
        for j in range(half):
            gx, gy = dq[i, j], dq[i, j + half]
            da[i, j] += gx * cosines[j] + gy * sines[j]
            da[i, j + half] += gy * cosines[j] - gx * sines[j]
        for j in range(half):
            dr[i, j] += sign * (dq[i, j + half] * q[i, j] - dq[i, j] * q[i, j + half])
