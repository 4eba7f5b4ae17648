"""`siafu datasets`: what `siafu.load` and `siafu train` know by name."""

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

_PIPED_WIDTH = 300  # a line for each dataset, to grep


def datasets(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list, one object a dataset.")] = False,
) -> None:
    """List the datasets that can be loaded by name."""
    from siafu.graph.datasets import listings

    found = listings()
    if as_json:
        print(json.dumps([asdict(listing) for listing in found]))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for title in ("vertices", "edges", "features", "classes"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("here", no_wrap=True)
    table.add_column("from", overflow="fold")
    for listing in found:
        counts = (listing.num_vertices, listing.num_edges, listing.num_features, listing.num_classes)
        numbers = ["" if count is None else f"{count:,}" for count in counts]
        table.add_row(listing.name, *numbers, "yes" if listing.ready else "no", listing.source)
    Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH).print(table)
