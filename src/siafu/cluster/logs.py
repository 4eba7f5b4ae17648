"""Logs: lines of servers in the run's directory, one file a server."""

import time
from contextlib import suppress
from pathlib import Path

from siafu.pipeline.ids import Address


class Logs:
    """One file a server, to which lines are added.

    directory: None: lines are dropped
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def write(self, server: Address, text: str) -> None:
        """Add a line, with the time. A full disk is ignored here: the next checkpoint reports it."""
        if self._directory is None:
            return
        stamp = time.strftime("%H:%M:%S")
        with suppress(OSError):
            self._directory.mkdir(parents=True, exist_ok=True)
            with (self._directory / f"{server.role}-{server.index}.log").open("a") as file:
                file.write(f"{stamp} {text}\n")
