"""`siafu predict`: what a saved run says of each vertex."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siafu.base.errors import BadInput
from siafu.base.option import argument, option
from siafu.base.words import counted
from siafu.cli.common import load_run_and_graph, say
from siafu.cli.declared import memory_option, out_file, scratch_option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siafu.graph import Graph
    from siafu.report.files.predictions import Predictions, VertexVectors
    from siafu.training.run import Run


def predict(
    run: Path = argument("RUN", "The run's directory."),
    dataset: str | None = argument("[DATASET]", "Another graph than it was trained on.", None),
    output: Path | None = out_file(
        "A .csv or .parquet file; its directory is made if need be.", unset="CSV to stdout"
    ),
    rows: str = option("all", "Which vertices.", choices=("all", "train", "val", "test")),
    probabilities: bool = option(False, "Add a column for each class's probability."),
    hidden: str | None = option(
        None,
        "Write a hidden layer's rows instead: its number from 1 up, or a module's name.",
        unset="the model's predictions",
        metavar="K|NAME",
    ),
    memory: str | None = memory_option(),
    scratch: Path | None = scratch_option(),
) -> None:
    """Write what a saved run predicts for each vertex, or the rows of a hidden layer, by the ids the vertices had in their source."""
    import numpy as np

    from siafu.report.files.predictions import Predictions, VertexVectors, check_kind

    if output is not None:
        check_kind(output)
    loaded, graph = load_run_and_graph(run, dataset)

    import torch  # not before the run is known to be there

    chosen = _chosen(graph, rows)
    ids = np.arange(graph.num_vertices)[chosen] if graph.ids is None else graph.ids[chosen]
    if hidden is not None:
        if probabilities:
            raise BadInput("--hidden writes a layer's rows, which have no probabilities: leave one out")
        layer = int(hidden) - 1 if hidden.isdecimal() else hidden
        found = loaded.rows(graph, _checked(loaded, layer), memory=memory, scratch=scratch, told=say)
        _write(VertexVectors(ids, found[chosen].flatten(1).numpy()), output, "rows")
        return
    wanted = None if isinstance(chosen, slice) else torch.from_numpy(chosen)
    objective = loaded.objective
    logits = loaded.logits(graph, rows=wanted, memory=memory, scratch=scratch, told=say)[chosen]
    answers = Predictions(
        ids,
        objective.answers(logits).numpy(),
        objective.probabilities(logits).numpy() if probabilities else None,
        loaded.class_names,
    )
    _write(answers, output, "predictions")


def _write(found: "Predictions | VertexVectors", output: Path | None, what: str) -> None:
    if output is None:
        found.write_csv(sys.stdout.buffer)
        return
    found.write(output)
    say(f"wrote {len(found.ids):,} {what} to {output}")


def _checked(run: "Run", layer: int | str) -> int | str:
    """A hidden layer, counted from 0, or a module's name; the last layer is no hidden one."""
    count = len(getattr(run.model, "convs", ()))
    if isinstance(layer, int) and count and not 0 <= layer < count - 1:
        raise BadInput(
            f"--hidden is {layer + 1}, and the model has {counted(count - 1, 'hidden layer')}: give a number from 1 up to that, or a module's name"
        )
    return layer


def _chosen(graph: "Graph", rows: str) -> "NDArray[Any] | slice":
    if rows == "all":
        return slice(None)
    split: NDArray[Any] | None = getattr(graph, rows)
    if split is None:
        raise BadInput(f"graph {graph.name!r} has no {rows} split: choose --rows all")
    return split
