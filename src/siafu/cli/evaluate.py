"""`siafu evaluate`: how good a saved run is."""

from pathlib import Path

from siafu.base.option import argument
from siafu.cli.common import load_run_and_graph, say, show
from siafu.cli.declared import json_flag, memory_option, scratch_option


def evaluate(
    run: Path = argument("RUN", "The run's directory."),
    dataset: str | None = argument("[DATASET]", "Another graph than it was trained on.", None),
    memory: str | None = memory_option(),
    scratch: Path | None = scratch_option(),
    as_json: bool = json_flag(),
) -> None:
    """Measure the accuracy of a saved run on each split of its dataset, or of another."""
    loaded, graph = load_run_and_graph(run, dataset)

    from siafu.graph.class_counts import ClassCounts
    from siafu.objective.metric import ACCURACY

    scores = loaded.evaluate(graph, memory=memory, scratch=scratch, told=say)
    metric = loaded.objective.metric
    found = {f"{split}_{name}": score[name] for split, score in scores.items() for name in score}
    lines = [f"{run} on {graph.name}"]
    counts = ClassCounts.of(graph) if metric.name == ACCURACY.name else None
    for split, score in scores.items():
        told = f"{metric.words} {metric.told(score['accuracy'])}"
        most = None if counts is None else counts.majority(split)
        rows = f"{score['rows']:,} vertices{'' if most is None else f', {most}'}"
        lines.append(f"{split:>5}: {told}, loss {score['loss']:.4f}, {rows}")
    show({"run": str(run), "dataset": graph.name, "metric": metric.name, **found}, lines, as_json=as_json)
