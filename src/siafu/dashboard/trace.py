"""A run's trace, for a browser."""

import json
import stat
from pathlib import Path

from siafu.report.pages.trace_view import trace_view

_MOST_BYTES = 64 << 20  # of a sampled trace, and a little more; `siafu report` takes larger ones


def drawn_trace(path: Path) -> str | None:
    """Some epochs of the trace at `path`, as JSON; None: there is no trace, or it is too large or damaged."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            return None
        view = trace_view(path)
        return None if view is None else json.dumps(view, allow_nan=False)
    except (OSError, ValueError):
        return None
