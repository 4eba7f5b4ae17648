"""What a cluster costs: two graph servers on Ray, beside two in one process, on the same two cores.

    python bench/cluster.py STORE [EPOCHS]

STORE is a store of a generated graph, such as `siafu generate reddit-small --scale 0.25 -o STORE` writes. Prints the best
epoch of both, their ratio, the bytes that travelled in an epoch beside the rows of the ghosts, and each server's memory.
"""

import json
import resource
import sys
from pathlib import Path

import ray
import torch

import siafu
from siafu.launch import local
from siafu.report.progress import Progress


class Listener(Progress):
    """Keeps what the run says of its servers, and how much memory they take after an epoch."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.resident: dict[int, int] = {}

    def prepared(self, lines: list[str], reasons: list[str]) -> None:
        self.lines = [line for line in lines if "process" in line]

    def epoch_ended(self, metrics: object) -> None:
        for line in self.lines:
            process = int(line.split("process ")[1].split(":")[0])
            _, resident, shared, *_ = map(int, Path(f"/proc/{process}/statm").read_text().split())
            own = (resident - shared) * resource.getpagesize()
            self.resident[process] = max(self.resident.get(process, 0), own)


def main() -> None:
    store, epochs = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10
    graph = siafu.load(str(store))
    cluster = local.up("bench", 2, lambda line: None)
    try:
        found = _measured(graph, epochs, cluster.address)
    finally:
        ray.shutdown()
        local.down(cluster)
    print(json.dumps(found, indent=2))


def _measured(graph: siafu.Graph, epochs: int, address: str | None) -> dict[str, object]:
    found = {}
    for name, cluster in (("one process", None), ("Ray", address)):
        torch.manual_seed(0)
        model = siafu.nn.GCN(graph.num_features, 128, 2, graph.num_classes)
        listener = Listener()
        run = siafu.train(
            graph,
            model,
            epochs=epochs,
            evaluate_every=epochs,
            servers=2,
            partition="stream",
            cluster=cluster,
            progress=listener,
        )
        seconds = [epoch.seconds for epoch in run.history][1:-1]
        found[name] = {
            "best_epoch_seconds": min(seconds),
            "loss": run.history[-1].train_loss,
            "bytes_scattered": run.summary()["bytes_scattered"],
            "servers": [f"{line} (took {size / 1e6:,.0f} MB)" for line, size in _servers(listener)],
        }
    ratio = found["Ray"]["best_epoch_seconds"] / found["one process"]["best_epoch_seconds"]
    return found | {"ratio": ratio}


def _servers(listener: Listener) -> list[tuple[str, int]]:
    return list(zip(listener.lines, listener.resident.values(), strict=True))


if __name__ == "__main__":
    main()
