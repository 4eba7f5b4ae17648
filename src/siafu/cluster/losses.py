"""Losses: which servers are gone, what was lost with them, and how long it took to go on."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from siafu.pipeline.ids import Address, Epoch
from siafu.runtime.happenings import Rewound

MOST_LOSSES = 5
"""Of one server, without an epoch in between."""

_FIRST_LIFE = 1


@dataclass(slots=True)
class Gone:
    """A server that is being replaced.

    again: why the one that takes its place was lost, too, while it was made known to the others
    """

    server: Address
    life: int
    since: float
    why: str
    elsewhere: bool
    again: str | None = None


class Losses:
    """The lives of all servers. Not for several threads at once.

    counters: what the summary says of losses
    """

    def __init__(self) -> None:
        self.counters: dict[str, Any] = {}
        self._lives: dict[Address, int] = {}
        self._gone: dict[Address, Gone] = {}
        self._untold: list[Gone] = []
        self._in_a_row: Counter[Address] = Counter()
        self._rewound: tuple[Epoch, Epoch] | None = None

    def employ(self, servers: Iterable[Address]) -> dict[Address, int]:
        """These are there now, each in its first life."""
        self._lives = dict.fromkeys(servers, _FIRST_LIFE)
        return dict(self._lives)

    def life(self, server: Address) -> int:
        """The life of who is there, or is about to be."""
        return self._lives[server]

    def is_gone(self, server: Address) -> bool:
        return server in self._gone

    def lose(self, server: Address, life: int, why: str, *, elsewhere: bool) -> bool:
        """Whether that is news: it has another life ahead then. One that is about to come back is noted."""
        if life != self._lives[server]:
            return False
        if (gone := self._gone.get(server)) is not None:
            gone.again = why
            return False
        self._lives[server] = life + 1
        self._gone[server] = Gone(server, life + 1, time.monotonic(), why, elsewhere)
        self._untold.append(self._gone[server])
        self._in_a_row[server] += 1
        return True

    def gone(self, server: Address) -> Gone:
        return self._gone[server]

    def back(self, server: Address) -> str | None:
        """It was replaced. Why it was lost again already; None: it was not."""
        gone = self._gone.pop(server, None)
        return None if gone is None else gone.again

    def too_many(self, server: Address) -> bool:
        """Whether it is no use to go on."""
        return self._in_a_row[server] > MOST_LOSSES

    def epoch_ended(self) -> None:
        self._in_a_row.clear()

    def rewind(self, recorded: Epoch, epochs: Epoch) -> None:
        """The run goes back from `recorded` to `epochs`."""
        before = self._rewound[0] if self._rewound else recorded
        self._rewound = before, epochs

    def recovered(self) -> Rewound | None:
        """All servers are there and go on: what was lost; None: nothing was."""
        if self._rewound is None:
            return None
        before, epochs = self._rewound
        now = time.monotonic()
        told = [
            f"{each.server} was lost ({each.why}) and replaced in {now - each.since:.1f} s"
            for each in self._untold
        ]
        slowest = max((now - each.since for each in self._untold), default=0.0)
        self.counters = {
            "servers_lost": self.counters.get("servers_lost", 0) + len(told),
            "epochs_lost": self.counters.get("epochs_lost", 0) + before - epochs,
            "recovery_seconds": max(self.counters.get("recovery_seconds", 0.0), slowest),
        }
        again = "" if before == epochs else f"; epochs {epochs + 1} to {before} are trained again"
        self._rewound, self._untold = None, []
        return Rewound(epochs, "; ".join(told) + again)
