"""TimedChoice: which of some ways to do the same work is fastest, found while the work is done. All ways give the same bits."""

import threading
from collections.abc import Hashable, Sequence

from siafu.kernels.advice.trial_budget import TrialBudget

_CLEARLY = 0.97  # of the first way's time: another is taken only where it is faster than this
_TOO_SLOW = 1.5  # times the fastest, on one piece of work: such a way is not tried again


class TimedChoice:
    """Does each piece of work every way in turn, one way a time, until it is known which is fastest.

    The first time that a piece is done is not counted: memory is touched for the first time then. No work is done twice: the price is
    what the slower ways took longer. A trial whose price may exceed what is left of the budget is not made, and trials end when it is spent. The first way stays unless another is clearly
    faster. Any thread may ask and tell.

    ways:  numbers that stand for them; the first is that of the rules
    known: what was found before; None: nothing
    budget: of the trials, which other choices may share; None: its own
    """

    def __init__(
        self, ways: Sequence[int], known: int | None = None, budget: TrialBudget | None = None
    ) -> None:
        self.ways, self._budget = tuple(ways), budget or TrialBudget()
        self._chosen = known if known in self.ways else self.ways[0] if len(self.ways) == 1 else None
        self._open = list(self.ways)
        self._seconds: dict[Hashable, dict[int, float]] = {}
        self._refused: set[Hashable] = set()
        self._lock = threading.Lock()

    @property
    def chosen(self) -> int | None:
        """The way that is taken from now on; None: it is not known yet."""
        return self._chosen

    @property
    def seconds(self) -> dict[int, float]:
        """Of each way, on the pieces that were done every way; nothing where no such piece is."""
        for ways in (self.ways, self._open):
            if whole := [each for each in self._seconds.values() if all(way in each for way in ways)]:
                return {way: sum(each[way] for each in whole) for way in ways}
        return {}

    def way(self, piece: Hashable) -> int:
        """How to do a piece of work now; `told` is to be called after it, unless the way is `chosen`."""
        if self._chosen is not None:
            return self._chosen
        with self._lock:
            taken = self._seconds.get(piece, {})
            found = next((way for way in self._open if way not in taken), self.ways[0])
            if found == self.ways[0] or self._budget.affords(self._excess(found, taken)):
                return found
            self._refused.add(piece)
            return self.ways[0]

    def told(self, piece: Hashable, way: int, seconds: float) -> None:
        """A piece of work took so long."""
        if self._chosen is not None:
            return
        with self._lock:
            if piece not in self._seconds:
                self._seconds[piece] = {}
                return
            taken = self._seconds[piece]
            taken[way] = min(seconds, taken.get(way, seconds))
            self._open = [each for each in self._open if each == self.ways[0] or not self._too_slow(each)]
            if self._spent() or all(map(self._is_done, self._seconds)):
                self._chosen = self._fastest()

    def _is_done(self, piece: Hashable) -> bool:
        return piece in self._refused or all(way in self._seconds[piece] for way in self._open)

    def _excess(self, way: int, taken: dict[int, float]) -> float:
        """Seconds that a way may take longer on a piece: by its pieces so far, or as long as is allowed."""
        first = self.ways[0]
        both = [(each[way], each[first]) for each in self._seconds.values() if way in each and first in each]
        slower = sum(each for each, _ in both) / sum(each for _, each in both) if both else _TOO_SLOW
        return (slower - 1) * taken.get(first, 0.0)

    def _too_slow(self, way: int) -> bool:
        return any(
            way in each and each[way] > _TOO_SLOW * min(each.values()) for each in self._seconds.values()
        )

    def _spent(self) -> bool:
        """Whether slower ways have cost as much as they may."""
        timed = [each for each in self._seconds.values() if each]
        work = sum(min(each.values()) for each in timed)
        cost = sum(sum(each.values()) - len(each) * min(each.values()) for each in timed)
        self._budget.told(id(self), cost, work)
        return self._budget.is_spent

    def _fastest(self) -> int:
        seconds = self.seconds
        if not seconds:
            return self.ways[0]
        best = min(seconds, key=lambda way: seconds[way])
        return best if seconds[best] < _CLEARLY * seconds[self.ways[0]] else self.ways[0]
