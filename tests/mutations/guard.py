"""One reading of damaged files: an answer or a refusal of one line, soon, and in little memory."""

import faulthandler
import os
import resource
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from siafu.base.errors import BadInput

T = TypeVar("T")

SECONDS = 60
BASE_BYTES = 48 << 20  # what reading takes however small the file is: blocks of text, tables of names seen
_LONGEST_REFUSAL = 2000
_MOST_MORE = 4 << 30  # address space that libraries without Python's accounts may take


def seeds(count: int) -> range:
    """Seeds 0 up to `count`, or, with $SIAFU_MUTATIONS=N, N times as many."""
    return range(count * int(os.environ.get("SIAFU_MUTATIONS", "1")))


def outcome(read: Callable[[], T], num_bytes: int) -> T | BadInput:
    """What `read` gives, or how it refuses; any other error is the test's failure.

    num_bytes: of the files it reads
    """
    with _in_time(), _limited_address_space():
        tracemalloc.start()
        try:
            found: T | BadInput = read()
        except BadInput as refusal:
            check_refusal(refusal)
            found = refusal
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert peak <= BASE_BYTES + 2 * num_bytes, f"{peak:,} bytes were allocated to read {num_bytes:,}"
    return found


def check_refusal(refusal: BadInput) -> None:
    message = str(refusal)
    assert message.strip()
    assert message.isprintable(), ascii(message)
    assert len(message) <= _LONGEST_REFUSAL, f"{len(message)} characters"


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@contextmanager
def _in_time() -> Iterator[None]:
    faulthandler.dump_traceback_later(SECONDS, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def _limited_address_space() -> Iterator[None]:
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + _MOST_MORE, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
