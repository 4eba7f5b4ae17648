"""Ahead: what an eager copy has of an epoch, and which copies there are."""

from dataclasses import dataclass

from siafu.pipeline.events import CopyStands
from siafu.pipeline.ids import Address, Anchor, IntervalId, Life, ServerId, StageId


@dataclass(frozen=True, slots=True)
class Ahead:
    """Tasks that an eager copy has done of an epoch when it takes its server's place.

    at:   the epoch, and the version of its tasks
    done: how many stages each of its intervals has passed
    rows: whose rows of which stages are in its tables, its own and ghosts
    """

    at: Anchor
    done: dict[IntervalId, int]
    rows: frozenset[tuple[StageId, IntervalId]]


class KnownCopies:
    """The eager copies that a graph server knows of."""

    def __init__(self) -> None:
        self._known: dict[ServerId, tuple[Life, bool]] = {}

    def take(self, event: CopyStands) -> bool:
        """A copy stands, or is gone: whether that is news. Of one life, its end is later than its beginning."""
        news = event.life, not event.there
        if news <= self._known.get(event.copy.index, (Life(0), False)):
            return False
        self._known[event.copy.index] = news
        return True

    def of(self, server: ServerId) -> Address | None:
        """The copy of a server; None: there is none."""
        _, gone = self._known.get(server, (Life(0), True))
        return None if gone else Address("copy", server)
