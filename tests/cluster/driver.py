"""A driver in a process of its own, to be killed: `python -m tests.cluster.driver STORE OUT`."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import siafu
from siafu.cluster.on_ray import ray_crew
from siafu.nn import GNN
from siafu.report.files.metrics import EpochMetrics
from siafu.report.progress import Progress
from siafu.runtime.lambdas import Lambdas
from tests.cluster.cases import SETTINGS, case
from tests.cluster.fork_crew import ForkCrew

ALONE_AFTER = 3.0
LAYOUT: dict[str, Any] = {
    "servers": 2,
    "intervals": 3,
    "weight_servers": 2,
    "partition": "hash",
    "mode": "sync",
    "cluster": "processes",
    **SETTINGS,
}


class Crews:
    """Stands where Ray's crew does, and makes crews of forked processes. It keeps them."""

    def __init__(self, name: str, **options: Any) -> None:
        self.name, self.options = name, options
        self.made: list[ForkCrew] = []

    def __call__(
        self,
        address: str,
        plan: Any,
        model: GNN,
        lambdas: Lambdas | None,
        memory: str | None,
        advised: bool,
    ) -> ForkCrew:
        assert memory is None
        self.made.append(ForkCrew(self.name, plan, lambdas=lambdas, **self.options))
        return self.made[-1]

    def processes(self) -> list[int]:
        """Of all servers that ever were."""
        return [server.process.pid or 0 for crew in self.made for server in crew.all_ever]


class TellProcesses(Progress):
    """Says which processes there are, when the first epoch is over."""

    def __init__(self, crews: Crews) -> None:
        self._crews = crews

    def epoch_ended(self, metrics: EpochMetrics) -> None:
        if metrics.epoch == 1:
            print(json.dumps(self._crews.processes()), flush=True)


def main() -> None:
    store, out = map(Path, sys.argv[1:])
    os.environ["SIAFU_TEST_CASES"] = "gcn"
    crews = Crews("gcn", alone_after=ALONE_AFTER)
    ray_crew.RayCrew = crews  # type: ignore[misc, assignment]
    siafu.train(
        siafu.load(str(store)),
        case("gcn").model,
        epochs=10**6,
        out=out,
        checkpoint_every=0,
        progress=TellProcesses(crews),
        **LAYOUT,
    )


if __name__ == "__main__":
    main()
