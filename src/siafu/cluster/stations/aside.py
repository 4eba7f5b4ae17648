"""Work that gives way to what else runs on its machine."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from siafu.runtime.one_thread import use_one_thread

T = TypeVar("T")

_NICE = 10  # about a tenth of a core where others want it, too: enough to be done in time


def give_way() -> None:
    """Lower the priority of the calling thread, for as long as it lives."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def run_aside(work: Callable[[], T]) -> T:
    """Run something in a thread of low priority, and wait for it; an error of it is raised here.

    Linux has priorities of single threads, and one that was lowered cannot be raised again: so the thread is its own.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        use_one_thread()
        give_way()
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="siafu-aside", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
