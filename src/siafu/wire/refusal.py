"""Refusal: an invalid message of a peer, and counts of them."""

import logging
from collections import Counter
from typing import Literal

from siafu.base.errors import SiafuError

RefusalReason = Literal[
    "handshake",  # no key, a wrong one, or bytes that are not ZeroMQ's
    "key",  # a key that this run did not hand out, or took back
    "frames",  # too few, too many or too large
    "header",  # not one of ours
    "version",  # another protocol
    "field",  # missing, unknown, of the wrong type or out of range
    "tensor",  # name, type, shape or size do not fit each other
    "unexpected",  # well formed, but nothing that this peer may say now
]

_LOG = logging.getLogger(__name__)


class Refusal(SiafuError):
    """A message that is refused. `reason` is one of a few words; the text says what is wrong with it."""

    def __init__(self, reason: RefusalReason, what: str) -> None:
        super().__init__(what)
        self.reason = reason


class Refusals:
    """Counts of refused messages. Of each reason only the first is logged: a flood must not fill a disk.

    at: the socket that received them, as the log names it
    """

    def __init__(self, at: str) -> None:
        self.counts: Counter[RefusalReason] = Counter()
        self._at = at

    def add(self, reason: RefusalReason, what: str) -> None:
        self.counts[reason] += 1
        if self.counts[reason] == 1:
            _LOG.warning("%s: refused: %s (further ones of this kind are only counted)", self._at, what)

    def total(self) -> int:
        return self.counts.total()
