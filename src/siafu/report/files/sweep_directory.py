"""The directory of a sweep: it is no run's, and one sweep at a time writes there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from siafu.base.errors import BadInput
from siafu.base.storage.files import disk_errors, refuse_unwritable
from siafu.report.files import run_lock
from siafu.report.files.run_directory import RunDirectory


def refuse_no_place_for_sweep(directory: Path) -> None:
    """Refuse a file, and the directory of a run, which would become neither a run's nor a sweep's."""
    if directory.exists() and not directory.is_dir():
        raise BadInput(f"{directory} is a file: name a directory for the sweep with --out")
    if RunDirectory(directory).exists:
        raise BadInput(f"{directory} holds a run: name another directory for the sweep with --out")
    refuse_unwritable(directory)


@contextmanager
def only_sweep_in(directory: Path) -> Iterator[None]:
    """Make the directory and be the one that sweeps there, as long as the block runs."""
    refuse_no_place_for_sweep(directory)
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _take(file, directory)
        yield
    finally:
        os.close(file)


def _take(file: int, directory: Path) -> None:
    try:
        run_lock.take(file, directory)
    except OSError:
        """A disk on which directories have no locks: each run's own lock is left."""
