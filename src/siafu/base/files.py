"""Files that are whole or absent: temporary names, renames, and a clear word when the disk is full."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from siafu.base.errors import BadInput, NoSpace

_NO_ANONYMOUS_FILES = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}  # what a rename says of a place that is not free


def cache_directory() -> Path:
    """Where Siafu keeps what it can make again: `$SIAFU_CACHE`, else the user's cache directory."""
    if asked := os.environ.get("SIAFU_CACHE"):
        return Path(asked).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "siafu"


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turn the system's errors about `where` into one clear line each."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(
                f"no space left on the disk of {where}: nothing was written; free some or choose another place"
            ) from error
        if not _is_of_the_disk(error):
            raise
        cause = (
            error.strerror if error.filename in (None, str(where)) else f"{error.strerror}: {error.filename}"
        )
        raise BadInput(f"cannot write {where} ({cause}): choose a place you may write to") from error


def _is_of_the_disk(error: OSError) -> bool:
    """Whether a file is at fault: libraries raise kinds of OSError of their own, and so does the network."""
    of_the_network = isinstance(error, ConnectionError | TimeoutError)
    return error.errno is not None and type(error).__module__ == "builtins" and not of_the_network


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file to write that takes `path`'s place when the block ends well, and is gone otherwise."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            with suppress(FileNotFoundError):
                Path(name).unlink()
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _give_name(file: IO[bytes], path: Path) -> None:
    # Only with a directory descriptor does Python follow the link that /proc shows instead of copying it.
    descriptors = os.open("/proc/self/fd", os.O_RDONLY)
    try:
        os.link(str(file.fileno()), path, src_dir_fd=descriptors, follow_symlinks=True)
    finally:
        os.close(descriptors)


def scratch_file(directory: Path) -> IO[bytes]:
    """A file without a name on `directory`'s disk: the system frees it however the process ends."""
    return tempfile.TemporaryFile(dir=directory, prefix=".siafu-scratch-")


class NewDirectory:
    """A directory that appears at `path` whole, or not at all.

    Files are opened without a name where the system can (so that even a killed process leaves nothing
    behind), get their names in a temporary directory when `publish` is called, and one rename shows them.

    kind:      what the directory is, in the words of an error
    mark:      the file by which a directory of that kind is known
    overwrite: replace one of that kind, or an empty directory; anything else is never touched
    """

    def __init__(self, path: Path, *, kind: str, mark: str, overwrite: bool = False) -> None:
        self.path = path
        self._kind = kind
        self._mark = mark
        self._overwrite = overwrite
        self._files: dict[str, IO[bytes]] = {}
        self._named: Path | None = None
        with disk_errors(path):
            if os.path.lexists(path):
                self._refuse_to_replace()
            path.parent.mkdir(parents=True, exist_ok=True)

    def open(self, name: str) -> IO[bytes]:
        """A new file `name`, to read and write."""
        with disk_errors(self.path):
            file = self._anonymous() or (self._partial() / name).open("w+b")
        self._files[name] = file
        return file

    def publish(self) -> None:
        """Give every file its name and move the directory into place."""
        with disk_errors(self.path):
            for file in self._files.values():
                file.flush()
                os.fsync(file.fileno())
            # All that takes time is done: a kill from here on has but a moment to leave a partial directory.
            partial = self._partial()
            for name, file in self._files.items():
                if not (partial / name).exists():
                    _give_name(file, partial / name)
                file.close()
            partial.chmod(0o777 & ~_umask())
            self._take_place(partial)
        self._named = None

    def discard(self) -> None:
        """Forget everything that was written. Does nothing after `publish`."""
        for file in self._files.values():
            # Closing writes what is buffered, and fails on a full disk: what is thrown away need not be there.
            with suppress(OSError):
                file.close()
        if self._named is not None:
            shutil.rmtree(self._named, ignore_errors=True)
            self._named = None

    def _take_place(self, partial: Path) -> None:
        try:
            if not os.path.lexists(self.path):
                partial.rename(self.path)
                return
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        # Somebody may have put something there since we looked at the start.
        self._refuse_to_replace()
        old = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.", suffix=".old", dir=self.path.parent))
        self.path.rename(old / "replaced")
        try:
            partial.rename(self.path)
        except OSError:
            with suppress(OSError):
                (old / "replaced").rename(self.path)
            raise
        finally:
            shutil.rmtree(old, ignore_errors=True)

    def _refuse_to_replace(self) -> None:
        if not self._overwrite:
            raise BadInput(
                f"{self.path} exists already: choose another name, or overwrite it (on the command line --overwrite)"
            )
        if (self.path / self._mark).is_file() or (self.path.is_dir() and not any(self.path.iterdir())):
            return
        raise BadInput(
            f"{self.path} is not a {self._kind}, so it is not overwritten: choose another name, or move it away"
        )

    def _anonymous(self) -> IO[bytes] | None:
        if not hasattr(os, "O_TMPFILE") or not Path("/proc/self/fd").exists():
            return None
        try:
            return os.fdopen(os.open(self.path.parent, os.O_TMPFILE | os.O_RDWR, 0o666), "w+b")
        except OSError as error:
            if error.errno in _NO_ANONYMOUS_FILES:
                return None
            raise

    def _partial(self) -> Path:
        if self._named is None:
            name = tempfile.mkdtemp(prefix=f".{self.path.name}.", suffix=".partial", dir=self.path.parent)
            self._named = Path(name)
        return self._named
