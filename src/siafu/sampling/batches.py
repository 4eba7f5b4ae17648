"""Batches of an epoch: the training vertices in an order of their own in every epoch."""

import numpy as np
from numpy.typing import NDArray

_ORDER = 21  # key of the random numbers, among those that other rooms draw


def epoch_batches(vertices: NDArray[np.int64], size: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """The vertices in batches of `size`, the last perhaps smaller: each in one, in an order that seed and epoch decide."""
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, _ORDER, epoch])))
    order = vertices[random.permutation(len(vertices))]
    return [order[first : first + size] for first in range(0, len(order), size)]
