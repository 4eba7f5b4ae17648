"""Sockets for processes of one machine and one user: in a directory that nobody else may enter.

Nothing is encrypted there, which saves most of what a message costs; who may open the directory could read the
process's memory as well.
"""

import tempfile
from contextlib import suppress
from pathlib import Path

_LONGEST = 90  # characters of a socket's path, by what the system allows less some


class NearDirectory:
    """A directory for sockets, made with rights for its owner alone; `remove` it at the end."""

    def __init__(self) -> None:
        path = Path(tempfile.mkdtemp(prefix="siafu-"))
        if len(str(path)) > _LONGEST:
            path.rmdir()
            path = Path(tempfile.mkdtemp(prefix="siafu-", dir="/tmp"))
        self._path = path

    def address(self, name: str) -> str:
        """Of a socket."""
        return f"ipc://{self._path / name}"

    def remove(self) -> None:
        for path in [*self._path.glob("*"), self._path]:
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()


def is_near(address: str) -> bool:
    return address.startswith("ipc://")
