"""Sockets for processes of one machine and one user: in a directory that nobody else may enter.

Nothing is encrypted there, which saves most of what a message costs; who may open the directory could read the
process's memory as well.
"""

from siafu.base.storage.owned import OwnedDirectory

_LONGEST = 90  # characters of a socket's path, by what the system allows less some


class NearDirectory:
    """A directory for sockets, made with rights for its owner alone; `remove` it at the end."""

    def __init__(self) -> None:
        self._directory = OwnedDirectory()
        if len(str(self._directory.path)) > _LONGEST:
            self._directory.remove()
            self._directory = OwnedDirectory(parent="/tmp")

    def address(self, name: str) -> str:
        """Address of a socket in the directory."""
        return f"ipc://{self._directory.path / name}"

    def remove(self) -> None:
        self._directory.remove()


def is_near(address: str) -> bool:
    return address.startswith("ipc://")
