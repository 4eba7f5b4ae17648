"""`siafu predict`: what a saved run says of each vertex."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.cli.common import load_run_and_graph

if TYPE_CHECKING:
    from siafu.graph import Graph

_SPLITS = ("train", "val", "test")


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's directory.")],
    dataset: Annotated[
        str | None, typer.Argument(metavar="[DATASET]", help="Another graph than it was trained on.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .csv or .parquet file. [default: CSV to stdout]")
    ] = None,
    rows: Annotated[str, typer.Option(help="Which vertices: all, train, val or test.")] = "all",
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add a column for each class's probability.")
    ] = False,
) -> None:
    """Write what a saved run predicts for each vertex, by the ids the vertices had in their source."""
    if rows not in ("all", *_SPLITS):
        raise BadInput(f"--rows is {rows!r}: choose all, {', '.join(_SPLITS)}")
    if output is not None and output.suffix.lower() not in (".csv", ".parquet"):
        raise BadInput(f"cannot tell what to write to {output}: name a file that ends in .csv or .parquet")
    loaded, graph = load_run_and_graph(run, dataset)
    chosen = _chosen(graph, rows)
    from siafu.report.files.predictions import Predictions
    from siafu.report.score import classes
    from siafu.report.score import probabilities as probabilities_of

    logits = loaded.logits(graph)[chosen]
    found = Predictions(
        np.arange(graph.num_vertices)[chosen] if graph.ids is None else graph.ids[chosen],
        classes(logits, multi_label=loaded.multi_label).numpy(),
        probabilities_of(logits, multi_label=loaded.multi_label).numpy() if probabilities else None,
    )
    if output is None:
        found.write_csv(sys.stdout.buffer)
        return
    found.write(output)
    print(f"wrote {len(found.ids):,} predictions to {output}", file=sys.stderr)


def _chosen(graph: "Graph", rows: str) -> NDArray[Any] | slice:
    if rows == "all":
        return slice(None)
    split: NDArray[Any] | None = getattr(graph, rows)
    if split is None:
        raise BadInput(f"graph {graph.name!r} has no {rows} split: choose --rows all")
    return split
