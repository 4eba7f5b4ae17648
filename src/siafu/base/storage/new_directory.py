"""Directories that appear whole or not at all, and that replace only directories of their own kind."""

import errno
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from siafu.base.errors import BadInput
from siafu.base.storage.exchange import exchange
from siafu.base.storage.files import anonymous_file, disk_errors, give_name, umask

_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}  # what a rename says of a place that is not free
_TRIES = 10


@dataclass(frozen=True, slots=True)
class DirectoryKind:
    """A kind of directory that Siafu writes, and how to recognise one.

    name:     in the words of an error
    manifest: its file of JSON, whose "format" and "version" say what it is
    version:  the latest that this Siafu knows all files of
    owns:     whether a file is one that Siafu writes there, by its path within the directory
    """

    name: str
    manifest: str
    format: str
    version: int
    owns: Callable[[str], bool]

    def is_one(self, path: Path) -> bool:
        """Whether the directory's manifest is of this kind, whatever else is there."""
        manifest = _read_object(path / self.manifest)
        version = manifest.get("version")
        return manifest.get("format") == self.format and type(version) is int and 1 <= version <= self.version

    def strangers(self, path: Path) -> Iterator[str]:
        """Files in the directory that Siafu did not write."""
        return (name for name in _files_in(path) if not self.owns(name))

    def remove(self, path: Path) -> None:
        """Remove what Siafu wrote there, and the directory if nothing else is left."""
        for name in _files_in(path):
            if self.owns(name):
                with suppress(OSError):
                    (path / name).unlink()
        for folder, _, _ in os.walk(path, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()


def recover(path: Path, kind: DirectoryKind) -> None:
    """Put back the directory that an overwrite had moved aside when it was killed. Does nothing otherwise."""
    if not os.path.lexists(path) and kind.is_one(_aside(path)):
        with suppress(OSError):  # another process may have done it
            _aside(path).rename(path)


class NewDirectory:
    """A directory that appears at `path` whole, or not at all.

    Files are opened without a name where the system can (so that even a killed process leaves nothing
    behind), get their names in a temporary directory when `publish` is called, and one rename shows them.

    overwrite: replace a directory of that kind that holds nothing else, or an empty one; anything else is never touched
    """

    def __init__(self, path: Path, *, kind: DirectoryKind, overwrite: bool = False) -> None:
        self.path = path
        self._kind = kind
        self._overwrite = overwrite
        self._files: dict[str, IO[bytes]] = {}
        self._named: Path | None = None
        with disk_errors(path):
            if path.is_symlink() and path.exists():
                self.path = path.resolve()  # what a link points to is replaced; the link stays
            recover(self.path, kind)
            if os.path.lexists(self.path):
                self._refuse_to_replace()
            self.path.parent.mkdir(parents=True, exist_ok=True)

    def open(self, name: str) -> IO[bytes]:
        """A new file `name`, to read and write."""
        if not self._kind.owns(name):
            raise ValueError(f"a {self._kind.name} has no file {name!r}: it could not be replaced later")
        with disk_errors(self.path):
            file = anonymous_file(self.path.parent) or (self._partial() / name).open("w+b")
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
                    give_name(file, partial / name)
                file.close()
            partial.chmod(0o777 & ~umask())
            self._take_place(partial)
        self._named = None

    def __enter__(self) -> "NewDirectory":
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def discard(self) -> None:
        """Forget everything that was written. Does nothing after `publish`."""
        for file in self._files.values():
            # Closing writes what is buffered, and fails on a full disk: what is thrown away need not be there.
            with suppress(OSError):
                file.close()
        if self._named is not None:
            # After an exchange it holds what was replaced: there too only our own files go.
            self._kind.remove(self._named)
            self._named = None

    def _take_place(self, partial: Path) -> None:
        # More than one try: others may take the place, or leave it, between two looks.
        for _ in range(_TRIES):
            if self._took_free_place(partial):
                return
            self._refuse_to_replace()
            with suppress(FileNotFoundError):
                if exchange(partial, self.path):
                    self._kind.remove(partial)
                    return
                if self._took_place_in_two_steps(partial):
                    return
        raise BadInput(f"{self.path} is being written by others: wait for them, or choose another name")

    def _took_free_place(self, partial: Path) -> bool:
        try:
            if os.path.lexists(self.path):
                return False
            partial.rename(self.path)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise
        return True

    def _took_place_in_two_steps(self, partial: Path) -> bool:
        """Move the old directory aside, then the new one in. After a kill in between, the next reader puts the old one back."""
        aside = _aside(self.path)
        self._make_room(aside)
        try:
            self.path.rename(aside)
            partial.rename(self.path)
        except OSError as error:
            if error.errno in _TAKEN:  # a reader has put the old back
                return False
            raise
        finally:
            recover(self.path, self._kind)
            if os.path.lexists(self.path):
                self._kind.remove(aside)
        return True

    def _make_room(self, aside: Path) -> None:
        """Remove the old directory that a killed overwrite left behind."""
        if self._may_go(aside):
            self._kind.remove(aside)
        if os.path.lexists(aside):
            raise BadInput(f"{aside} is in the way of replacing {self.path}: move it away")

    def _refuse_to_replace(self) -> None:
        if not self._overwrite:
            raise BadInput(
                f"{self.path} exists already: choose another name, or replace it with overwrite=True (--overwrite)"
            )
        if not self._may_go(self.path):
            raise BadInput(
                f"{self.path} is not a {self._kind.name}, so it is not overwritten: choose another name, or move it away"
            )
        stranger = min(self._kind.strangers(self.path), default=None)
        if stranger is not None:
            raise BadInput(
                f"{self.path} holds {stranger}, which is not of the {self._kind.name}, so it is not overwritten: "
                "move that away, or choose another name"
            )

    def _may_go(self, path: Path) -> bool:
        return self._kind.is_one(path) or (
            path.is_dir() and not path.is_symlink() and not any(path.iterdir())
        )

    def _partial(self) -> Path:
        if self._named is None:
            name = tempfile.mkdtemp(prefix=f".{self.path.name}.", suffix=".partial", dir=self.path.parent)
            self._named = Path(name)
        return self._named


def _aside(path: Path) -> Path:
    return path.parent / f".{path.name}.replaced"


def _files_in(path: Path) -> Iterator[str]:
    """Paths within `path` of everything that is not a directory; links are not followed."""
    for folder, folders, files in os.walk(path):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from ((Path(folder) / name).relative_to(path).as_posix() for name in (*files, *links))


def _read_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
