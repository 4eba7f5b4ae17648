"""`siafu predict`: what a saved run says of each vertex."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siafu.base.errors import BadInput
from siafu.base.option import argument, option
from siafu.cli.common import load_run_and_graph, say
from siafu.cli.declared import memory_option, out_file, scratch_option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siafu.graph import Graph


def predict(
    run: Path = argument("RUN", "The run's directory."),
    dataset: str | None = argument("[DATASET]", "Another graph than it was trained on.", None),
    output: Path | None = out_file("A .csv or .parquet file.", unset="CSV to stdout"),
    rows: str = option("all", "Which vertices.", choices=("all", "train", "val", "test")),
    probabilities: bool = option(False, "Add a column for each class's probability."),
    memory: str | None = memory_option(),
    scratch: Path | None = scratch_option(),
) -> None:
    """Write what a saved run predicts for each vertex, by the ids the vertices had in their source."""
    import numpy as np

    from siafu.report.files.predictions import Predictions, check_kind

    if output is not None:
        check_kind(output)
    loaded, graph = load_run_and_graph(run, dataset)

    import torch  # not before the run is known to be there

    chosen = _chosen(graph, rows)
    wanted = None if isinstance(chosen, slice) else torch.from_numpy(chosen)
    objective = loaded.objective
    logits = loaded.logits(graph, rows=wanted, memory=memory, scratch=scratch, told=say)[chosen]
    found = Predictions(
        np.arange(graph.num_vertices)[chosen] if graph.ids is None else graph.ids[chosen],
        objective.answers(logits).numpy(),
        objective.probabilities(logits).numpy() if probabilities else None,
        loaded.class_names,
    )
    if output is None:
        found.write_csv(sys.stdout.buffer)
        return
    found.write(output)
    say(f"wrote {len(found.ids):,} predictions to {output}")


def _chosen(graph: "Graph", rows: str) -> "NDArray[Any] | slice":
    if rows == "all":
        return slice(None)
    split: NDArray[Any] | None = getattr(graph, rows)
    if split is None:
        raise BadInput(f"graph {graph.name!r} has no {rows} split: choose --rows all")
    return split
