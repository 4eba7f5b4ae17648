"""A run's metrics as columns, for pandas, Polars and whatever else takes columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.report.files.metrics import EpochMetrics, as_line
from siafu.report.files.metrics import read_metrics as read_epochs
from siafu.report.files.run_directory import RunDirectory
from siafu.report.flat import flat

_LIBRARIES = ("pandas", "polars")


def read_metrics(run: str | Path, to: str | None = None) -> Any:
    """The metrics of a run's directory, one row an epoch, also while it trains: see docs/metrics.md.

    What is a table in a line (`busy_seconds`, `staleness`, `lambdas`) has a column for each of its entries, named with a
    dot: `busy_seconds.train T0`.

    to: "pandas" or "polars", for a data frame; None: a dict of lists, one for each column
    """
    if to is not None and to not in _LIBRARIES:
        raise BadInput(f"to is {to!r}: choose one of {', '.join(_LIBRARIES)}, or leave it out")
    directory = RunDirectory(Path(run))
    directory.config()  # refuses what is no run
    columns = columns_of(read_epochs(directory.metrics_path))
    return columns if to is None else _frame(columns, to)


def columns_of(history: Sequence[EpochMetrics]) -> dict[str, list[Any]]:
    """Columns of equal length; None where an epoch has no such entry."""
    rows = [flat(as_line(epoch)) for epoch in history]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _frame(columns: dict[str, list[Any]], library: str) -> Any:
    from importlib import import_module

    try:
        found: Any = import_module(library)
    except ImportError as error:
        raise BadInput(f"{library} is not installed: pip install {library}, or leave out `to`") from error
    return found.DataFrame(columns)
