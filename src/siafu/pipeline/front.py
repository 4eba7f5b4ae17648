"""Front: how far the rows of a scattering stage are there, in the order in which gathers add them."""

from collections.abc import Sequence

from siafu.pipeline.ids import IntervalId

_NEVER = -1


class Front:
    """The rows of one stage on one graph server, as its gathers read them.

    A gather adds its sources one after the other, so that its bits do not depend on when they come: it can begin with
    those before the first that is missing.

    order: the intervals whose rows are read here, in the order in which they are added
    step:  how many more must be there before gathers are told again
    """

    def __init__(self, order: Sequence[IntervalId], parts: int) -> None:
        self._order, self._step = order, max(1, len(order) // parts)
        self._epoch, self._there, self._told = _NEVER, 0, 0

    def advance(self, rows: Sequence[int], epoch: int) -> bool:
        """Rows came, which are of `epoch`. Whether gathers that wait may go on.

        rows: the newest epoch whose rows are there, by interval
        """
        if epoch > self._epoch:
            self._epoch, self._there, self._told = epoch, 0, 0
        while self._there < len(self._order) and rows[self._order[self._there]] >= self._epoch:
            self._there += 1
        if self._there < self._told + self._step:
            return False
        self._told = self._there
        return True

    def missing(self, epoch: int) -> IntervalId | None:
        """The first source whose rows of `epoch` gathers were not told of; None: all or none are there."""
        if epoch != self._epoch or not 0 < self._told < len(self._order):
            return None
        return self._order[self._told]

    def validate(self, rows: Sequence[int]) -> None:
        """Raise AssertionError where the state contradicts itself."""
        assert self._told <= self._there <= len(self._order), f"told of {self._told}, {self._there} are there"
        late = [each for each in self._order[: self._there] if rows[each] < self._epoch]
        assert not late, f"rows of {late} in epoch {self._epoch} are taken to be there"
