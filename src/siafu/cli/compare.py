"""`siafu compare`: runs side by side."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from siafu.base.errors import BadInput
from siafu.base.option import argument
from siafu.cli.common import printable, say
from siafu.cli.declared import json_flag, out_file

if TYPE_CHECKING:
    from siafu.report.pages.comparison import Comparison


def compare(
    runs: list[Path] = argument("RUN RUN…", "The runs' directories."),
    out: Path | None = out_file("Write an HTML file as well, with curves.", "--out"),
    as_json: bool = json_flag(),
) -> None:
    """Show what came of several runs side by side, and in which settings they differ."""
    from siafu.base.files import replace_text
    from siafu.report.files.run_record import read_run
    from siafu.report.pages.comparison import compare as compared
    from siafu.report.pages.comparison import comparison_page

    if len(runs) < 2:
        raise BadInput(f"{len(runs)} run to compare: name two or more directories")
    records = [read_run(path) for path in runs]
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


def _print(found: "Comparison") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_edge=False, box=None, pad_edge=False)
    table.add_column("")
    for name in found.names:
        table.add_column(Text(printable(name)), overflow="fold")
    for place, (title, rows) in enumerate((("", found.results), ("asked for", found.settings))):
        if place and rows:
            table.add_section()
            table.add_row(Text(title, style="bold"))
        for name, cells in rows:
            table.add_row(Text(name), *(Text(printable(cell)) for cell in cells))
    Console(highlight=False).print(table)
