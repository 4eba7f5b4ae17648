"""Metrics of ranks: how many of a user's held-out items are among the best k, and how far up."""

import numpy as np
from numpy.typing import NDArray


def hits_of(
    best: NDArray[np.int64], users: NDArray[np.int64], known: NDArray[np.int64], items: int
) -> NDArray[np.bool_]:
    """[n, k] whether each of the best items of each user is one of the pairs.

    known: pairs as user · items + item, ascending
    """
    keys = users[:, None] * items + best
    if len(known) == 0:
        return np.zeros(best.shape, np.bool_)
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    found: NDArray[np.bool_] = known[place] == keys
    return found


def recall_at(hits: NDArray[np.bool_], wanted: NDArray[np.int64]) -> NDArray[np.float64]:
    """[n] of each user's held-out items, the share that is among the best k."""
    found: NDArray[np.float64] = hits.sum(1) / wanted
    return found


def ndcg_at(hits: NDArray[np.bool_], wanted: NDArray[np.int64]) -> NDArray[np.float64]:
    """[n] gain discounted by the logarithm of the place, over the highest there can be (Järvelin and Kekäläinen 2002)."""
    discounts = 1 / np.log2(np.arange(2, hits.shape[1] + 2))
    ideal = np.cumsum(discounts)[np.minimum(wanted, hits.shape[1]) - 1]
    found: NDArray[np.float64] = hits @ discounts / ideal
    return found
