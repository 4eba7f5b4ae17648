"""The order in which an epoch takes the training triples."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from siafu.embedding.steps.negatives import generator

_WINDOW = 1 << 22  # triples that are shuffled as one: stores hold them in an order that looks random already
_ORDER = 3  # key of the random numbers


def epoch_batches(count: int, size: int, seed: int, epoch: int) -> Iterator[NDArray[np.int64]]:
    """Positions of each batch's triples: windows in random order, shuffled within."""
    windows = -(-count // _WINDOW)
    for window in generator(seed, _ORDER, epoch).permutation(windows):
        first, last = int(window) * _WINDOW, min((int(window) + 1) * _WINDOW, count)
        order = first + generator(seed, _ORDER, epoch, int(window)).permutation(last - first)
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]
