"""Losses: how bad it is that negatives score as they do beside the positive, and the gradients.

Each takes the scores of b positives and of n negatives for each, turns the negatives' scores into gradients in place, and
gives the positives' gradients and the sum of the losses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from siafu.base.jit import fast_kernel
from siafu.embedding.steps.float_bits import bits_as_float

FILTERED = -1e30
"""The score of a negative that is no negative: its gradient is 0."""


@dataclass(frozen=True, slots=True)
class RankingLoss:
    """A loss over positives and negatives.

    run: (positives [b], negatives [b, n], margin, temperature, gradients of the positives [b]) to the sum of losses
    """

    name: str
    formula: str
    run: Callable[[Any, Any, float, float, Any], float]

    def __call__(
        self, positives: Any, negatives: Any, margin: float, temperature: float, gradients: Any
    ) -> float:
        kind = positives.dtype.type
        return float(self.run(positives, negatives, kind(margin), kind(temperature), gradients))


def _exp(x: Any) -> Any:
    """e to the power of x, for x of at most 0."""
    return np.exp(x)


@overload(_exp)  # type: ignore[untyped-decorator]
def _exp_compiled(x: Any) -> Any:
    if x != types.float32:

        def exact(x: Any) -> Any:
            return np.exp(x)

        return exact
    # Cephes' expf: LLVM makes vectors of it, which it cannot of a call to the C library. Error: below 2 units in the last place.
    one, half, lowest = np.float32(1), np.float32(0.5), np.float32(-87)
    log2e, high, low = np.float32(1.44269504088896341), np.float32(0.693359375), np.float32(-2.12194440e-4)
    c0, c1, c2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
    c3, c4, c5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
    bias, shift = np.int32(127), np.int32(23)

    def exp(x: Any) -> Any:
        x = lowest if x < lowest else x
        n = np.floor(x * log2e + half)
        x = x - n * high - n * low
        y = ((((c0 * x + c1) * x + c2) * x + c3) * x + c4) * x + c5
        return (y * x * x + x + one) * bits_as_float((np.int32(n) + bias) << shift)

    return exp


@fast_kernel
def _highest(row: Any, least: Any) -> Any:
    """The highest of a row and `least`, in four strands that do not wait for each other."""
    quarter = row.shape[0] // 4
    a = b = c = d = least
    for j in range(quarter):
        a = max(a, row[j])
        b = max(b, row[quarter + j])
        c = max(c, row[2 * quarter + j])
        d = max(d, row[3 * quarter + j])
    for j in range(4 * quarter, row.shape[0]):
        a = max(a, row[j])
    return max(max(a, b), max(c, d))


@fast_kernel
def _softmax(positives: Any, negatives: Any, margin: Any, temperature: Any, gradients: Any) -> float:
    one = positives.dtype.type(1)
    total = 0.0
    for i in range(negatives.shape[0]):
        row, positive = negatives[i], positives[i] - margin
        top = _highest(row, positive)
        weight = positives.dtype.type(0)
        for j in range(row.shape[0]):
            e = _exp(row[j] - top)
            row[j] = e
            weight += e
        mine = _exp(positive - top)
        scale = one / (weight + mine)
        for j in range(row.shape[0]):
            row[j] *= scale
        gradients[i] = -weight * scale
        total += np.log(np.float64(weight + mine)) + np.float64(top) - np.float64(positive)
    return total


@fast_kernel
def _log_one_plus(e: Any) -> Any:
    """log(1 + e) for e from 0 to 1, to eight digits: the series of the inverse hyperbolic tangent, which makes vectors."""
    kind = type(e)
    s = e / (kind(2) + e)
    z = s * s
    series = kind(1 / 13)
    series = series * z + kind(1 / 11)
    series = series * z + kind(1 / 9)
    series = series * z + kind(1 / 7)
    series = series * z + kind(1 / 5)
    series = series * z + kind(1 / 3)
    return kind(2) * s * (series * z + kind(1))


@fast_kernel
def _logistic(positives: Any, negatives: Any, margin: Any, temperature: Any, gradients: Any) -> float:
    kind = positives.dtype.type
    one, zero = kind(1), kind(0)
    n = negatives.shape[1]
    weights = np.full(n, one / kind(n), negatives.dtype)
    total = 0.0
    for i in range(negatives.shape[0]):
        row = negatives[i]
        if temperature > zero:
            _self_adversarial(row, temperature, weights)
        lost = zero
        for j in range(n):
            x = row[j] + margin
            e = _exp(-abs(x))
            share = one / (one + e)
            lost += weights[j] * (max(x, zero) + _log_one_plus(e))
            row[j] = weights[j] * (share if x >= zero else e * share)
        x = -positives[i] - margin
        e = _exp(-abs(x))
        share = one / (one + e)
        total += lost + max(x, zero) + _log_one_plus(e)
        gradients[i] = -(share if x >= zero else e * share)
    return total


@fast_kernel
def _self_adversarial(row: Any, temperature: Any, weights: Any) -> None:
    """The softmax of the negatives' scores: hard negatives count more. No gradient flows through it."""
    top = _highest(row, row[0])
    total = row.dtype.type(0)
    for j in range(row.shape[0]):
        e = _exp(temperature * (row[j] - top))
        weights[j] = e
        total += e
    for j in range(row.shape[0]):
        weights[j] /= total


@fast_kernel
def _margin(positives: Any, negatives: Any, margin: Any, temperature: Any, gradients: Any) -> float:
    kind = positives.dtype.type
    zero, share = kind(0), kind(1) / kind(negatives.shape[1])
    total = 0.0
    for i in range(negatives.shape[0]):
        row = negatives[i]
        lost, active = zero, zero
        for j in range(row.shape[0]):
            x = margin - positives[i] + row[j]
            g = share if x > zero else zero
            lost += g * x
            active += g
            row[j] = g
        gradients[i] = -active
        total += lost
    return total


SOFTMAX = RankingLoss("softmax", "−log(e^(f − γ) / (e^(f − γ) + Σ e^f′))", _softmax)
LOGISTIC = RankingLoss("logistic", "log(1 + e^−(f + γ)) + mean log(1 + e^(f′ + γ))", _logistic)
MARGIN = RankingLoss("margin", "mean max(0, γ − f + f′)", _margin)

LOSSES = {loss.name: loss for loss in (SOFTMAX, LOGISTIC, MARGIN)}
