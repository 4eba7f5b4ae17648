"""Overlap: two kinds of work that go on beside each other, such as computing and a disk, or edges and a network."""

_NOT_HIDDEN = 0.5
"""Of the shorter. Trainings with tables on disk (docs/performance.md: products' shape, 128 and 256 wide) took 0.50 to 0.56 and 0.39
of it longer than the longer, by the predicted seconds of the disk."""


def overlapped(one: float, other: float) -> float:
    """Seconds of both together."""
    return max(one, other) + _NOT_HIDDEN * min(one, other)
