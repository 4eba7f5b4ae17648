"""`siafu compare`: runs side by side."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from siafu.base.errors import BadInput

if TYPE_CHECKING:
    from siafu.report.pages.comparison import Comparison


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN…", help="The runs' directories.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write an HTML file as well, with curves.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what came of several runs side by side, and in which settings they differ."""
    from siafu.base.files import replacing
    from siafu.report.files.run_record import read_run
    from siafu.report.pages.comparison import compare as compared
    from siafu.report.pages.comparison import comparison_page

    if len(runs) < 2:
        raise BadInput(f"{len(runs)} run to compare: name two or more directories")
    records = [read_run(path) for path in runs]
    found = compared(records)
    if out is not None:
        with replacing(out) as file:
            file.write(comparison_page(records).encode())
        print(f"written to {out}", file=sys.stderr)
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

    console = Console(highlight=False)
    table = Table(show_edge=False, box=None, pad_edge=False)
    table.add_column("")
    for name in found.names:
        table.add_column(Text(_printable(name)), overflow="fold")
    for place, (title, rows) in enumerate((("", found.results), ("asked for", found.settings))):
        if place and rows:
            table.add_section()
            table.add_row(Text(title, style="bold"))
        for name, cells in rows:
            table.add_row(Text(name), *(Text(_printable(cell)) for cell in cells))
    console.print(table)


def _printable(text: str) -> str:
    """Without what would move the cursor or change colours: names are other people's."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)
