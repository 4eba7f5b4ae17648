"""`siafu evaluate`: how good a saved run is."""

import json
from pathlib import Path
from typing import Annotated

import typer

from siafu.cli.common import load_run_and_graph


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's directory.")],
    dataset: Annotated[
        str | None, typer.Argument(metavar="[DATASET]", help="Another graph than it was trained on.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure the accuracy of a saved run on each split of its dataset, or of another."""
    loaded, graph = load_run_and_graph(run, dataset)
    scores = loaded.evaluate(graph)
    metric = loaded.config["graph"]["metric"]
    if as_json:
        found = {f"{split}_{name}": score[name] for split, score in scores.items() for name in score}
        print(json.dumps({"run": str(run), "dataset": graph.name, "metric": metric, **found}))
        return
    print(f"{run} on {graph.name}")
    for split, score in scores.items():
        print(
            f"{split:>5}: {metric.replace('_', '-')} {100 * score['accuracy']:.2f} %, "
            f"loss {score['loss']:.4f}, {score['rows']:,} vertices"
        )
