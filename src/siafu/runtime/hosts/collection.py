"""Collection: the reports of all servers, asked for together and waited for."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from siafu.pipeline.ids import Address, Version
from siafu.runtime.counters.counting import added
from siafu.runtime.hosts.weight_host import STATE, WEIGHT
from siafu.runtime.letter import Letter


class Collection:
    """Reports that have come so far.

    number:  of the request, which the reports must have
    version: of the weights that weight servers were asked for
    then:    called when all reports have come
    """

    def __init__(self, number: int, version: Version, then: Callable[["Collection"], None]) -> None:
        self.number, self.version, self.then = number, version, then
        self.weights: dict[str, Tensor] = {}
        self.optimizer: dict[str, Tensor] = {}
        self.counters: dict[str, Any] = {}
        self.answered: set[Address] = set()

    def take(self, sender: Address, counters: Mapping[str, Any], letter: Letter) -> None:
        """Add a server's report."""
        self.answered.add(sender)
        self.counters = added(self.counters, counters)
        self.weights |= letter.owned(WEIGHT)
        self.optimizer |= letter.owned(STATE)
