"""OwnedDirectory: a directory that is removed when its process ends, even if it is killed.

A process that is killed removes nothing. So each directory has a file in it that its maker holds locked for as long as it
lives, and whoever makes one there next removes those whose file nobody holds.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_OWNER = ".owner"


class OwnedDirectory:
    """A directory for this process alone; `remove` it at the end.

    parent: None: where temporary files are
    """

    def __init__(self, prefix: str = "siafu-", parent: Path | str | None = None) -> None:
        above = Path(parent or tempfile.gettempdir())
        remove_orphans(above, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=above))
        # It gets its name when it is locked: in between it would look like a dead process's.
        fresh = self.path / f"{_OWNER}.new"
        self._lock: int | None = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        fresh.rename(self.path / _OWNER)

    def remove(self) -> None:
        """Remove it with all that is in it; a second time without effect."""
        if self._lock is None:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        self._lock = None

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


def remove_orphans(parent: Path, prefix: str) -> None:
    """Remove this user's directories whose makers are gone. Directories that cannot be read are left alone."""
    with suppress(OSError):
        for entry in os.scandir(parent):
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _remove_if_orphan(Path(entry.path))


def _remove_if_orphan(path: Path) -> None:
    if path.stat().st_uid != os.getuid():
        return
    handle = os.open(path / _OWNER, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(handle)
