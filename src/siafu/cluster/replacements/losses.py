"""Losses: servers that were lost, epochs lost with them, and the time until the run went on."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from siafu.pipeline.ids import FIRST_LIFE, Address, Epoch
from siafu.runtime.counters.counting import added
from siafu.runtime.happenings import Rewound

MOST_LOSSES = 5
"""The most losses of one server without an epoch in between."""


@dataclass(slots=True)
class LostServer:
    """A server that is being replaced.

    again: why its replacement was lost, too, before all others knew it; None: it was not
    moved: it was handed over, and not lost
    warm:  a warm copy takes its place
    """

    server: Address
    life: int
    since: float
    why: str
    elsewhere: bool
    again: str | None = None
    moved: bool = False
    warm: bool = False

    def told(self, seconds: float) -> str:
        """The event, in words."""
        if self.moved:
            return f"{self.server} moved to another machine in {seconds:.1f} s"
        copy = " by a warm copy" if self.warm else ""
        return f"{self.server} was lost ({self.why}) and replaced{copy} in {seconds:.1f} s"


class Losses:
    """The lives of all servers. Not for several threads at once.

    counters:    losses, for the summary
    began_again: all begin an epoch again, or will
    """

    def __init__(self) -> None:
        self.counters: dict[str, Any] = {}
        self.began_again = False
        self._lives: dict[Address, int] = {}
        self._gone: dict[Address, LostServer] = {}
        self._untold: list[LostServer] = []
        self._in_a_row: Counter[Address] = Counter()
        self._rewound: tuple[Epoch, Epoch] | None = None

    def employ(self, servers: Iterable[Address]) -> dict[Address, int]:
        """Begin with these servers, each in its first life."""
        self._lives = dict.fromkeys(servers, FIRST_LIFE)
        return dict(self._lives)

    def life(self, server: Address) -> int:
        """Number of the current life of a server, or of its replacement that is being started."""
        return self._lives[server]

    def is_gone(self, server: Address) -> bool:
        return server in self._gone

    def move(self, server: Address) -> None:
        """Another takes the place of a server that is there."""
        self.lose(server, self._lives[server], "handed over", elsewhere=True)
        self._gone[server].moved = True
        self._in_a_row[server] -= 1

    def lose(self, server: Address, life: int, why: str, *, elsewhere: bool) -> bool:
        """Note a loss; returns whether it is new: then a replacement is due. The loss of a replacement is noted in `again`."""
        if life != self._lives[server]:
            return False
        if (gone := self._gone.get(server)) is not None:
            gone.again = why
            return False
        self._lives[server] = life + 1
        self._gone[server] = LostServer(server, life + 1, time.monotonic(), why, elsewhere)
        self._untold.append(self._gone[server])
        self._in_a_row[server] += 1
        return True

    def gone(self, server: Address) -> LostServer:
        return self._gone[server]

    def back(self, server: Address) -> str | None:
        """Note that a server was replaced; returns why it was lost again already, or None."""
        gone = self._gone.pop(server, None)
        return None if gone is None else gone.again

    def too_many(self, server: Address) -> bool:
        """Whether a server was lost too often to go on."""
        return self._in_a_row[server] > MOST_LOSSES

    def epoch_ended(self) -> None:
        self._in_a_row.clear()

    def rewind(self, recorded: Epoch, epochs: Epoch, *, again: bool = True) -> None:
        """Note that the run goes back from `recorded` to `epochs`.

        again: all begin the epoch after them again; else they go on within it
        """
        before = self._rewound[0] if self._rewound else recorded
        self._rewound = before, epochs
        self.began_again |= again

    def recovered(self) -> Rewound | None:
        """All servers run again: returns what was lost, or None."""
        if self._rewound is None:
            return None
        before, epochs = self._rewound
        now = time.monotonic()
        told = [each.told(now - each.since) for each in self._untold]
        slowest = max((now - each.since for each in self._untold), default=0.0)
        moved = sum(each.moved for each in self._untold)
        counted = {
            "servers_lost": len(told) - moved,
            "epochs_lost": before - epochs,
            "recovery_seconds": slowest,
        }
        self.counters = added(self.counters, counted | ({"servers_moved": moved} if moved else {}))
        again = f"; epochs {epochs + 1} to {before} are trained again"
        if before == epochs:
            again = "; no epoch is lost"
            if self.began_again:
                again += ": the one that was under way begins again"
        self._rewound, self._untold, self.began_again = None, [], False
        return Rewound(epochs, "; ".join(told) + again)
