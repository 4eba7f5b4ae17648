"""Progress of long work, reported to a callback."""

from collections.abc import Callable

ProgressCallback = Callable[[str, int, int], None]
"""Called with a stage's name, how much of it is done, and how much there is (0: unknown)."""


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""
