"""Draws: what the dropout of a run is drawn from."""

from functools import partial

import torch
from torch import Tensor

from siafu.nn.dropout import site_key
from siafu.server.fused_gathers import Draw


class Draws:
    """Keys and seeds by epoch, the same on every server."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._last_key = -1, torch.tensor([seed, -1], dtype=torch.int64)

    def key(self, epoch: int) -> Tensor:
        """Of tensor programs: [seed, epoch]."""
        key = self._last_key
        if key[0] != epoch:
            # Made once an epoch: a tensor takes longer to make than most of a small task.
            key = self._last_key = epoch, torch.tensor([self._seed, epoch], dtype=torch.int64)
        return key[1]

    def of(self, epoch: int) -> Draw:
        """All of an epoch's."""
        return Draw(self.key(epoch), partial(self.seed, epoch))

    def seed(self, epoch: int, site: int) -> int:
        """Of one dropout of a model, by its number."""
        return int(site_key(self._seed, epoch, site))
