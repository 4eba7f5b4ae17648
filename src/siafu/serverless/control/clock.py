"""Clock: time that does not go back, from a clock that may."""

from siafu.serverless.control.ids import Seconds

_SKEW = 1.0
"""Seconds: events of several threads may come a little out of order; a clock that was set back goes back further."""


class Clock:
    """Follows the runtime's clock, and goes on from where it was when that clock is set back."""

    def __init__(self) -> None:
        self.now: Seconds = 0.0
        self._ahead: Seconds | None = None

    def hear(self, shown: Seconds) -> None:
        if self._ahead is None:
            self._ahead = -shown
        heard = shown + self._ahead
        if heard < self.now - _SKEW:
            self._ahead += self.now - heard
        self.now = max(self.now, shown + self._ahead)

    def shown_at(self, time: Seconds) -> Seconds:
        """Time on the runtime's clock at `time`."""
        return time - (self._ahead or 0.0)
