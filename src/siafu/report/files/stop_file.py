"""A request to stop that is left in a run's directory, for a training that no signal reaches from here."""

import os
from pathlib import Path

from siafu.base.storage.files import disk_errors

NAME = "stop"


class StopFile:
    """RUN/stop: while it is there, the training in RUN stops as if SIGTERM had come.

    Who trains looks for it at the end of each epoch, and removes it when a session begins and when it ends: a request
    that came too late stops no later session. What is in it does not matter.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    @property
    def there(self) -> bool:
        return os.path.lexists(self._path)

    def ask(self) -> None:
        """Leave a request, if there is none."""
        if self.there:
            return
        with disk_errors(self._path):
            # A link put there by somebody else is neither followed nor written to.
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            os.close(os.open(self._path, flags, 0o666))

    def clear(self) -> None:
        """Nobody asks any more."""
        self._path.unlink(missing_ok=True)
