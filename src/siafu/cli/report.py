"""`siafu report`: a run as one HTML file."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's directory.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file to write. [default: RUN/report.html]")
    ] = None,
    limits: Annotated[
        bool,
        typer.Option(
            help="Measure what this machine does at best, to compare with, if it is of the run's kind."
        ),
    ] = True,
) -> None:
    """Show all that is known of a run in one file that needs no network: curves, the pipeline, costs, settings.

    Also while it trains.
    """
    from siafu.base.files import replacing
    from siafu.report.files.run_record import read_run
    from siafu.report.pages.run_report import run_report

    found = read_run(run)
    best = None
    if limits:
        from siafu.bench.run_limits import run_limits

        best = run_limits(found.facts)
    page = run_report(found, best)
    path = out or run / "report.html"
    with replacing(path) as file:
        file.write(page.encode())
    print(f"{path}: {len(found.history):,} epochs, {len(page) / 1e6:.1f} MB", file=sys.stderr)
