"""Files that are whole or absent: temporary names, renames, and a clear error when the disk is full."""

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from siafu.base.errors import BadInput, NoSpace

_NO_ANONYMOUS_FILES = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
_MOST_LINKS = 40  # as the kernel follows
_IN_MEMORY = 16 << 20


def cache_directory() -> Path:
    """The directory for files that Siafu can make again: `$SIAFU_CACHE`, else the user's cache directory."""
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
        if error.errno == errno.EFBIG:
            raise NoSpace(
                f"{where} is larger than a file may be here: nothing was written; raise your limit (ulimit -f) or choose another place"
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


def refuse_unwritable(directory: Path) -> None:
    """Refuse a directory that is not there and cannot be made, before any work is done for it."""
    above = next((each for each in directory.absolute().parents if each.exists()), None)
    if above is not None and not directory.exists():
        with disk_errors(directory):
            Path(tempfile.mkdtemp(prefix=".siafu.", dir=above)).rmdir()


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file to write. It takes `path`'s place if the block ends without an error, else it is removed.

    A link stays, and its target is replaced. A device, a pipe or /dev/stdout is written to when the block ends without an
    error.
    """
    with disk_errors(path):
        if _is_written_through(path):
            with _written_at_the_end(path) as file:
                yield file
        else:
            with _replacing_file(Path(os.path.realpath(path))) as file:
                yield file


def replace_text(path: Path, text: str) -> None:
    """Write a file of text, whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def _replacing_file(path: Path) -> Iterator[IO[bytes]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = _mode_of(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise


@contextmanager
def _written_at_the_end(path: Path) -> Iterator[IO[bytes]]:
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as held:
        yield held
        held.seek(0)
        own = _own_descriptor(path)
        # Opening /dev/stdout anew would start at the beginning of a file that others have written to.
        with path.open("wb") if own is None else os.fdopen(os.dup(own), "wb") as file:
            shutil.copyfileobj(held, file)


def _is_written_through(path: Path) -> bool:
    if _own_descriptor(path) is not None:
        return True
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return not stat.S_ISREG(kind)


def _own_descriptor(path: Path) -> int | None:
    """Descriptor of the open file that `path` stands for, as /dev/stdout does for 1; None: for none."""
    place = path
    for _ in range(_MOST_LINKS):
        place = Path(os.path.realpath(place.parent)) / place.name
        if re.fullmatch(rf"/proc/{os.getpid()}(/task/[0-9]+)?/fd/[0-9]+", str(place)):
            return int(place.name)
        if not place.is_symlink():
            return None
        place = place.parent / place.readlink()
    return None


def _mode_of(path: Path) -> int:
    """The permissions of the file to be replaced, or those that a new one gets."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return 0o666 & ~umask()


def umask() -> int:
    """The umask of this process."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def give_name(file: IO[bytes], path: Path) -> None:
    """Make a file that has no name appear at `path`."""
    # Only with a directory descriptor does Python follow the link that /proc shows instead of copying it.
    descriptors = os.open("/proc/self/fd", os.O_RDONLY)
    try:
        os.link(str(file.fileno()), path, src_dir_fd=descriptors, follow_symlinks=True)
    finally:
        os.close(descriptors)


def write_at(file: IO[bytes], data: bytes | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`, however little the system takes at once. Threads may do so at the same time."""
    left = memoryview(data)
    while left:
        written = os.pwrite(file.fileno(), left, offset)
        left, offset = left[written:], offset + written


def anonymous_file(directory: Path) -> IO[bytes] | None:
    """Open a file without a name, to which `give_name` can give one; None: this file system has no such files."""
    if not hasattr(os, "O_TMPFILE") or not Path("/proc/self/fd").exists():
        return None
    try:
        return os.fdopen(os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o666), "w+b")
    except OSError as error:
        if error.errno in _NO_ANONYMOUS_FILES:
            return None
        raise


def scratch_file(directory: Path) -> IO[bytes]:
    """Open a file without a name on `directory`'s disk; the system frees it when the process ends, even if killed."""
    return tempfile.TemporaryFile(dir=directory, prefix=".siafu-scratch-")
