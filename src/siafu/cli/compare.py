"""`siafu compare`: runs side by side."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from siafu.base.errors import BadInput
from siafu.base.option import argument
from siafu.cli.common import printable, say
from siafu.cli.declared import json_flag, out_file

if TYPE_CHECKING:
    from rich.table import Table

    from siafu.report.files.run_record import RunRecord
    from siafu.report.pages.comparison import Comparison

_GAP = 2  # columns between two cells
_NAME_WIDTH = 20  # of a run's name, which may be folded where there is less room


def compare(
    runs: list[Path] = argument("RUN…", "The runs' directories, or one that holds runs: a sweep's, or runs."),
    out: Path | None = out_file("Write an HTML file as well, with curves.", "--out"),
    as_json: bool = json_flag(),
) -> None:
    """Show what came of several runs side by side, and in which settings they differ."""
    from siafu.base.storage.files import replace_text
    from siafu.report.pages.comparison import compare as compared
    from siafu.report.pages.comparison import comparison_page

    records = [record for path in runs for record in _records_at(path)]
    if len(records) < 2:
        raise BadInput(
            f"{len(records)} run{'s' * (len(records) != 1)} to compare: name two or more, or a directory that holds them"
        )
    found = compared(records)
    if out is not None:
        replace_text(out, comparison_page(records))
        say(f"written to {out}")
    if as_json:
        tables = {"results": found.results, "settings": found.settings}
        told = {
            name: {row: dict(zip(found.names, cells, strict=True)) for row, cells in each}
            for name, each in tables.items()
        }
        print(json.dumps(told))
    else:
        _print(found)


def _records_at(path: Path) -> "list[RunRecord]":
    """The run at a path, or all runs in a directory that is none; files, such as a sweep's table, are left out."""
    from siafu.report.files.run_directory import RunDirectory
    from siafu.report.files.run_record import read_run

    if path.is_file():
        say(f"left out {printable(str(path))}: it is a file")
        return []
    inside = sorted(path.iterdir()) if path.is_dir() and not RunDirectory(path).exists else []
    held = [each for each in inside if RunDirectory(each).exists]
    if not held:
        return [read_run(path)]
    records = []
    for each in held:
        try:
            records.append(read_run(each))
        except BadInput as error:
            say(f"left out: {printable(str(error))}")
    return records


def _print(found: "Comparison") -> None:
    """Tables of as many runs as fit side by side, one under the other."""
    from rich.console import Console

    console = Console(highlight=False)
    for place, runs in enumerate(_side_by_side(found, console.width)):
        if place:
            console.print()
        console.print(_table(found, runs))


def _side_by_side(found: "Comparison", width: int) -> Iterator[slice]:
    """Runs, some at a time, whose cells fit into a width beside the names of the rows; at least one."""
    rows = [*found.results, *found.settings]
    titles = max((len(name) for name, _ in rows), default=0)
    first, taken = 0, titles
    for run, name in enumerate(found.names):
        cells = max((len(cells[run]) for _, cells in rows), default=0)
        wanted = _GAP + max(cells, min(len(name), _NAME_WIDTH))
        if run > first and taken + wanted > width:
            yield slice(first, run)
            first, taken = run, titles
        taken += wanted
    yield slice(first, len(found.names))


def _table(found: "Comparison", runs: slice) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(show_edge=False, box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in found.names[runs]:
        table.add_column(Text(printable(name)), overflow="fold")
    for place, (title, rows) in enumerate((("", found.results), ("asked for", found.settings))):
        if place and rows:
            table.add_section()
            table.add_row(Text(title, style="bold"))
        for name, cells in rows:
            table.add_row(Text(name), *(Text(printable(cell)) for cell in cells[runs]))
    return table
