"""How long work tells of itself without knowing who listens."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with a stage's name, how much of it is done, and how much there is (0: unknown)."""


def silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""
