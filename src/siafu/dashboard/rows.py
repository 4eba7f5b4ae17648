"""Rows: lines of metrics for a browser's charts, thinned out if there are many."""

import json
import math
from pathlib import Path
from typing import Any

from siafu.dashboard.tail import Tail

Row = dict[str, Any]
MOST_ROWS = 4000  # that a chart of a run from its beginning is made of


def parse_row(line: bytes) -> Row | None:
    """Parse one epoch; None: the line is cut off, or is no epoch."""
    try:
        row = json.loads(line, parse_constant=lambda name: None)  # NaN and its kind are no JSON
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    epoch = row.get("epoch")
    return row if isinstance(epoch, int) and not isinstance(epoch, bool) and epoch > 0 else None


class EpochFeed:
    """The epochs of one run, for one reader: all that there are, thinned out if they are many, then each new one."""

    def __init__(self, metrics: Path) -> None:
        self._tail = Tail(metrics)
        self._stride = 1
        self._first_look = True

    def read(self) -> tuple[bool, list[Row], bool]:
        """Whether the rows begin anew; the next of them; whether there are more at once."""
        added = self._tail.read()
        if added.restarted:
            self._stride = _stride(added.size, added.lines)
        rows = [row for row in map(parse_row, added.lines) if row is not None]
        kept = [
            row
            for place, row in enumerate(rows)
            if row["epoch"] % self._stride == 0 or place == len(rows) - 1
        ]
        if not added.more:
            self._stride = 1  # caught up: from now on every epoch is news
        restarted = added.restarted or self._first_look
        self._first_look = False
        return restarted, kept, added.more


def _stride(size: int, lines: list[bytes]) -> int:
    if not lines:
        return 1
    mean = sum(len(line) + 1 for line in lines) / len(lines)
    return max(1, math.ceil(size / mean / MOST_ROWS))
