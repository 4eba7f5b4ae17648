"""`siafu report`: a run as one HTML file."""

from pathlib import Path

from siafu.base.option import argument, option
from siafu.cli.common import say
from siafu.cli.declared import out_file


def report(
    run: Path = argument("RUN", "The run's directory."),
    out: Path | None = out_file("The file to write.", "--out", unset="RUN/report.html"),
    limits: bool = option(
        True,
        "Measure what this machine does at best, to compare with, if it is of the run's kind.",
        flags=("--limits/--no-limits",),
    ),
) -> None:
    """Show all that is known of a run in one file that needs no network: curves, the pipeline, costs, settings.

    Also while it trains.
    """
    from siafu.base.storage.files import replace_text
    from siafu.report.files.run_record import read_run
    from siafu.report.pages.run_report import run_report

    found = read_run(run)
    best = None
    if limits:
        from siafu.bench.run_limits import run_limits

        best = run_limits(found.facts)
    page = run_report(found, best)
    path = out or run / "report.html"
    replace_text(path, page)
    say(f"{path}: {len(found.history):,} epochs, {len(page) / 1e6:.1f} MB")
