"""Times Siafu's own epochs in a process of their own, so that memory is that of one training alone.

    python -m siafu.bench.own_epoch STORE MODEL HIDDEN PRECISION INTERVALS REPEATS

INTERVALS: a number, or "auto". Prints one JSON object: the seconds of each epoch after the first, the peak memory, and of
these epochs together the seconds by kind of task, over all threads.
"""

import json
import sys
from pathlib import Path
from typing import Any

from siafu.base.hardware.machine import peak_rss_bytes
from siafu.base.threads import thread_count
from siafu.bench.network import network
from siafu.graph import Graph, read_store
from siafu.options import Options
from siafu.report.files.metrics import EpochMetrics
from siafu.runtime.lambdas import Lambdas
from siafu.training.placement import choose_partition
from siafu.training.trainer import Trainer


def main() -> None:
    store, model, hidden, precision, intervals, repeats = sys.argv[1:]
    graph = read_store(Path(store), verify=False)
    wanted = None if intervals == "auto" else int(intervals)
    trainer = make_trainer(graph, model, int(hidden), precision, wanted, epochs=int(repeats) + 2)
    print(json.dumps(run(trainer)))


def make_trainer(
    graph: Graph,
    model: str,
    hidden: int,
    precision: str,
    intervals: int | None,
    *,
    epochs: int,
    lambdas: Lambdas | None = None,
) -> Trainer:
    """Trained in mode pipe, and evaluated after the last epoch only.

    lambdas: what computes tensor tasks; None: threads
    """
    options = Options.to_measure(epochs, intervals)
    made = network(graph, model, hidden, precision=precision)
    return Trainer(graph, made, options, choose_partition(graph, 1, "auto"), lambdas=lambdas)


def run(trainer: Trainer) -> dict[str, Any]:
    """Train; the first epoch warms up and the last is evaluated, so neither counts."""
    trainer.prepare()
    epochs = (each for each in trainer.run() if isinstance(each, EpochMetrics))
    seconds, busy = zip(*((each.seconds, trainer.busy_seconds) for each in epochs), strict=True)
    between = {kind: spent - busy[0].get(kind, 0.0) for kind, spent in busy[-2].items()}
    return {
        "seconds": seconds[1:-1],
        "peak_rss_bytes": peak_rss_bytes(),
        "busy_seconds": between,
        "threads": thread_count(),
        "intervals": trainer.plan.interval_counts[0],
    }


if __name__ == "__main__":
    main()
