"""Losses: how bad it is that negatives score as they do beside the positive, and the gradients.

Each takes the scores of b positives and of n negatives for each, turns the negatives' scores into gradients in place, and
gives the positives' gradients and the sum of the losses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from siafu.base.jit import fast_kernel
from siafu.embedding.steps.float_bits import widen
from siafu.embedding.steps.score_numbers import exp, highest, room, rounded

FILTERED = -1e30
"""The score of a negative that is no negative: its gradient is 0."""


@dataclass(frozen=True, slots=True)
class RankingLoss:
    """A loss over positives and negatives.

    run: (positives [b], negatives [b, n], margin, temperature, gradients of the positives [b]) to the sum of losses;
         negatives may be bfloat16 (see `float_bits`), which is computed with in float32
    """

    name: str
    formula: str
    run: Callable[[Any, Any, float, float, Any], float]

    def __call__(
        self, positives: Any, negatives: Any, margin: float, temperature: float, gradients: Any
    ) -> float:
        kind = positives.dtype.type
        return float(self.run(positives, negatives, kind(margin), kind(temperature), gradients))


@fast_kernel
def _softmax(positives: Any, negatives: Any, margin: Any, temperature: Any, gradients: Any) -> float:
    one = positives.dtype.type(1)
    wide = np.empty(negatives.shape[1], positives.dtype)
    total = 0.0
    for i in range(negatives.shape[0]):
        row, positive = negatives[i], positives[i] - margin
        weights = room(row, wide)
        top = highest(row, positive)
        weight = positives.dtype.type(0)
        for j in range(row.shape[0]):
            e = exp(widen(row[j]) - top, row[j])
            weights[j] = e
            weight += e
        mine = exp(positive - top, positive)
        scale = one / (weight + mine)
        for j in range(row.shape[0]):
            row[j] = rounded(weights[j] * scale, row[j])
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
    weights = np.full(n, one / kind(n), positives.dtype)
    total = 0.0
    for i in range(negatives.shape[0]):
        row = negatives[i]
        if temperature > zero:
            _self_adversarial(row, temperature, weights)
        lost = zero
        for j in range(n):
            x = widen(row[j]) + margin
            e = exp(-abs(x), row[j])
            share = one / (one + e)
            lost += weights[j] * (max(x, zero) + _log_one_plus(e))
            row[j] = rounded(weights[j] * (share if x >= zero else e * share), row[j])
        x = -positives[i] - margin
        e = exp(-abs(x), x)
        share = one / (one + e)
        total += lost + max(x, zero) + _log_one_plus(e)
        gradients[i] = -(share if x >= zero else e * share)
    return total


@fast_kernel
def _self_adversarial(row: Any, temperature: Any, weights: Any) -> None:
    """The softmax of the negatives' scores: hard negatives count more. No gradient flows through it."""
    top = highest(row, widen(row[0]))
    total = weights.dtype.type(0)
    for j in range(row.shape[0]):
        e = exp(temperature * (widen(row[j]) - top), row[j])
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
            x = margin - positives[i] + widen(row[j])
            g = share if x > zero else zero
            lost += g * x
            active += g
            row[j] = rounded(g, row[j])
        gradients[i] = -active
        total += lost
    return total


SOFTMAX = RankingLoss("softmax", "−log(e^(f − γ) / (e^(f − γ) + Σ e^f′))", _softmax)
LOGISTIC = RankingLoss("logistic", "log(1 + e^−(f + γ)) + mean log(1 + e^(f′ + γ))", _logistic)
MARGIN = RankingLoss("margin", "mean max(0, γ − f + f′)", _margin)

LOSSES = {loss.name: loss for loss in (SOFTMAX, LOGISTIC, MARGIN)}
