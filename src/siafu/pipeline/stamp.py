"""Stamp: from whom and for whom a letter is. Fences: whether it still counts."""

from collections.abc import Iterable
from dataclasses import dataclass

from siafu.pipeline.events import Begin, Event
from siafu.pipeline.ids import FIRST_LIFE, Address, Incarnation, Life


@dataclass(frozen=True, slots=True)
class Stamp:
    """Both ends of a letter; it lies beside the event.

    incarnation: the sender's
    life:        the sender's: which of those that were at its address, one after the other
    to_life:     the receiver's, as the sender knows it
    """

    incarnation: Incarnation
    sender: Address
    life: Life
    to_life: Life


class Fences:
    """What one machine knows of incarnations and lives.

    An event is void if it is of another incarnation, from an earlier life of its sender, or meant for another life of
    this machine. The driver asks before the machine hears an event, and nowhere else is that asked.

    voided: events that were void
    """

    def __init__(self, me: Address, life: Life = FIRST_LIFE) -> None:
        self.incarnation = Incarnation(-1)
        self.voided = 0
        self._me, self._life = me, life
        self._lives: dict[Address, Life] = {}
        self._stamps: dict[Address, Stamp] = {}

    def begin(self, incarnation: Incarnation, lives: Iterable[tuple[Address, Life]]) -> None:
        """Begin an incarnation, in which the others are in these lives. Those that are not named are in their first."""
        self.incarnation = incarnation
        self._lives = dict(lives)
        self._stamps = {}

    def raise_to(self, server: Address, life: Life) -> bool:
        """Hear earlier lives of a server no more; whether that is news."""
        if life <= self.life(server):
            return False
        self._lives[server] = life
        self._stamps.pop(server, None)
        return True

    def life(self, server: Address) -> Life:
        """The life of a server, as far as it is known here."""
        return self._life if server == self._me else self._lives.get(server, FIRST_LIFE)

    @property
    def lives(self) -> tuple[tuple[Address, Life], ...]:
        """All that are not in their first life."""
        return tuple((server, life) for server, life in self._lives.items() if life != FIRST_LIFE)

    def stamp(self, to: Address) -> Stamp:
        """For a letter from here, or for an event of this machine's own tasks."""
        found = self._stamps.get(to)
        if found is None:
            found = self._stamps[to] = Stamp(self.incarnation, self._me, self._life, self.life(to))
        return found

    def is_void(self, stamp: Stamp, event: Event) -> bool:
        """Whether an event must not reach the machine."""
        if stamp.to_life != self._life:
            return True
        if isinstance(event, Begin):
            return stamp.incarnation <= self.incarnation
        return stamp.incarnation != self.incarnation or stamp.life < self.life(stamp.sender)
