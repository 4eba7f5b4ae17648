"""SpotWatch: notices that a cloud will take a spot machine back.

Asks the machine's metadata service every few seconds. Where none answers, the watch ends at once.
"""

import threading
from collections.abc import Callable
from http.client import HTTPException

from siafu.cluster.stations.metadata import Metadata, SpotNotice, services

EVERY_SECONDS = 5.0  # as AWS recommends
_UNREACHABLE = (OSError, HTTPException, ValueError, AttributeError)


class SpotWatch:
    """Calls `noticed` once, in a thread of its own, when there is a notice.

    every: seconds between requests
    """

    def __init__(self, noticed: Callable[[SpotNotice], None], *, every: float = EVERY_SECONDS) -> None:
        self._noticed, self._every = noticed, every
        self._services = services()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="siafu-spot", daemon=True)

    def start(self) -> None:
        """Begin to watch, where a service may be asked. Returns at once."""
        if self._services:
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def wait(self, seconds: float) -> bool:
        """Whether the watch is over within so many seconds: noticed, stopped, or never begun."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        found = next((each for each in self._services if _answers(each)), None)
        while found is not None and not self._stopping.is_set():
            if (notice := _look(found)) is not None:
                self._noticed(notice)
                return
            self._stopping.wait(self._every)


def _answers(service: Metadata) -> bool:
    try:
        service.find()
    except _UNREACHABLE:
        return False
    return True


def _look(service: Metadata) -> SpotNotice | None:
    """The notice, if there is one; a service that does not answer is asked again later."""
    try:
        return service.notice()
    except _UNREACHABLE:
        return None
