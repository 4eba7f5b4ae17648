"""Shelf: the current runs in a directory."""

import asyncio
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from siafu.dashboard.run_state import RunState, RunWatch

_DEPTH = 3  # RUNS/run, RUNS/run/seed-0, and a directory to group them by
_MOST_RUNS = 2000
_LOOK_SECONDS = 1.0  # of reading: the newest runs first; what remains is read at the next look
_MOST_DIRECTORIES = 50_000


@dataclass(frozen=True, slots=True)
class View:
    """Runs found by one look.

    runs: by id
    all:  whether these are all; there may be more than we show
    """

    runs: Mapping[str, RunState]
    all: bool = True


class Shelf:
    """Looks at the runs in `directory`, for any number of readers: what one look found serves all for `fresh_seconds`.

    Links are not followed: what is not in the directory is neither read nor written to.
    """

    def __init__(self, directory: Path, fresh_seconds: float = 0.5) -> None:
        self.directory = directory
        self._fresh_seconds = fresh_seconds
        self._watches: dict[str, RunWatch] = {}
        self._view = View({})
        self._looked = -1.0
        self._looking = asyncio.Lock()

    async def view(self) -> View:
        """The runs as they are now, or were a moment ago."""
        async with self._looking:
            if self._looked < 0 or time.monotonic() - self._looked > self._fresh_seconds:
                self._view = await asyncio.to_thread(self._look)
                self._looked = time.monotonic()
            return self._view

    def forget_view(self) -> None:
        """Make the next `view` look again, because something was changed."""
        self._looked = -1.0

    def path(self, run_id: str) -> Path | None:
        """Path of a run that was there at the last look. Ids are looked up, never made into paths."""
        watch = self._watches.get(run_id)
        return None if watch is None else watch.path

    def _look(self) -> View:
        found = sorted(_find(self.directory), key=lambda run: run.started, reverse=True)
        shown = found[:_MOST_RUNS]
        # What has gone is forgotten, and what is new is read from its beginning.
        self._watches = {
            run.id: self._watches.get(run.id) or RunWatch(run.path, run.id, run.name) for run in shown
        }
        until = time.monotonic() + _LOOK_SECONDS
        states = {run_id: watch.look(until) for run_id, watch in self._watches.items()}
        return View(states, all=len(found) == len(shown))


@dataclass(frozen=True, slots=True)
class _Found:
    id: str
    name: str
    path: Path
    started: float


def _find(directory: Path) -> Iterator[_Found]:
    """Every run in `directory`, which may be one itself."""
    left = _MOST_DIRECTORIES
    todo = [(directory, 0)]
    while todo and left > 0:
        path, depth = todo.pop()
        left -= 1
        try:
            with os.scandir(path) as entries:
                inner = list(entries)
        except OSError:
            continue  # gone, or not for us to read
        for entry in inner:
            with suppress(OSError):  # gone meanwhile
                if entry.name == "config.json" and entry.is_file(follow_symlinks=False):
                    yield _found(directory, path, entry.stat(follow_symlinks=False).st_mtime)
                elif depth < _DEPTH and entry.name[0] != "." and entry.is_dir(follow_symlinks=False):
                    todo.append((Path(entry.path), depth + 1))


def _found(directory: Path, path: Path, started: float) -> _Found:
    relative = os.fsencode(path.relative_to(directory))
    name = os.fsencode(directory.resolve().name) if path == directory else relative
    run_id = hashlib.blake2b(relative, digest_size=8).hexdigest()
    return _Found(run_id, name.decode("utf-8", "backslashreplace"), path, started)
