"""Whether asynchronous training on Lambdas is as good when many of them go wrong.

    python bench/lambda_faults.py [DATASET] [SEEDS] [EPOCHS]

Trains GCN with each seed on Lambdas that are well, and on Lambdas of which 5 % are killed, 5 % hang, 5 % are run twice,
2 % return garbage and 2 % send it; prints each seed's accuracy on the test rows, the means, and what was done again.
"""

import dataclasses
import inspect
import statistics
import sys
from collections import Counter

import torch

import siafu
from siafu.options import Options
from siafu.report.files.metrics import best_epoch
from siafu.runtime.lambdas import Lambdas
from siafu.serverless.function.faults import FaultPlan
from siafu.serverless.platforms.platform import LocalPlatform
from siafu.training.placement import choose_partition
from siafu.training.trainer import Trainer

_FAULTS = {"kill": 0.05, "hang": 0.05, "duplicate": 0.05, "garbage": 0.02, "garble": 0.02}
_COUNTED = ("invocations", "relaunched", "retried", "duplicates_dropped", "messages_refused")


def main() -> None:
    given = sys.argv[1:]
    name = given[0] if given else "cora"
    seeds = range(int(given[1]) if len(given) > 1 else 5)
    epochs = int(given[2]) if len(given) > 2 else 60
    graph = siafu.load(name)
    means = {}
    for kind in ("well", "faulty"):
        found, counted = [], Counter[str]()
        for seed in seeds:
            faults = FaultPlan(seed, **_FAULTS, window=0.02) if kind == "faulty" else None
            accuracy, used = _train(graph, seed, epochs, faults)
            found.append(accuracy)
            counted.update({each: used[each] for each in _COUNTED})
            print(f"{kind:6} seed {seed}: {100 * accuracy:.2f} %", flush=True)
        means[kind] = statistics.fmean(found)
        print(f"{kind:6} mean: {100 * means[kind]:.2f} %  {dict(counted)}", flush=True)
    print(f"difference: {100 * (means['faulty'] - means['well']):+.2f} points")


def _train(
    graph: siafu.Graph, seed: int, epochs: int, faults: FaultPlan | None
) -> tuple[float, dict[str, int]]:
    torch.manual_seed(seed)
    model = siafu.nn.GCN(graph.num_features, 16, 2, graph.num_classes, dropout=0.5)
    wanted = {"epochs": epochs, "seed": seed, "mode": "async", "servers": 2, "intervals": 4}
    usual = {name: each.default for name, each in inspect.signature(siafu.train).parameters.items()}
    options = Options(**{each.name: (usual | wanted)[each.name] for each in dataclasses.fields(Options)})
    lambdas = Lambdas(4, LocalPlatform(faults=faults), tasks=8, floor=0.3, start=1.0)
    trainer = Trainer(graph, model, options, choose_partition(graph, 2, "auto"), lambdas=lambdas)
    trainer.prepare()
    for _ in trainer.run():
        pass
    best = best_epoch(trainer.history, trainer.objective.metric)
    assert best is not None
    assert best.test_accuracy is not None
    return best.test_accuracy, trainer.counters()["lambda"]


if __name__ == "__main__":
    main()
