"""Predicted against measured: epochs in virtual time, with this machine's calibration, and the same epochs trained."""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace

import numpy as np

from siafu.bench.own_epoch import make_trainer
from siafu.bench.results import generated, markdown
from siafu.graph import Graph
from siafu.graph.datasets import load
from siafu.planning.calibration import Calibration
from siafu.report.files.metrics import EpochMetrics
from siafu.runtime.lambdas import Lambdas
from siafu.serverless.platforms.environment import Limits
from siafu.serverless.platforms.platform import LocalPlatform
from siafu.virtual.costs import LambdaKind
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.virtual import Simulated, simulate
from siafu.virtual.workload import ModelShape

GENERATED = {"amazon-x0.01": ("amazon", 0.01), "reddit-small-x0.25": ("reddit-small", 0.25)}
GRAPHS = ("cora", "pubmed", *GENERATED)
MODELS = {"gcn": 128, "gat": 64}
"""Models, and how wide their hidden layer is."""

_LIKELY_SECONDS = 6.0  # that a training's epochs take together
_EPOCHS = 4  # in virtual time
_FEWEST, _MOST = 4, 40  # epochs that count

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Far:
    """Local Lambdas that are made to seem far away."""

    count: int = 4
    latency_ms: float = 20.0
    mbps: float = 400.0

    def lambdas(self) -> Lambdas:
        return Lambdas(self.count, LocalPlatform(Limits(latency_ms=self.latency_ms, mbps=self.mbps)))

    def kind(self, near: LambdaKind) -> LambdaKind:
        """A Lambda of this machine with a network between."""
        return replace(
            near,
            latency_s=near.latency_s + self.latency_ms / 1000,
            bytes_s=min(near.bytes_s, self.mbps * 1e6 / 8),
            prefetch=self.lambdas().places - 1,
        )

    def __str__(self) -> str:
        return f"{self.count} Lambda{'s' * (self.count > 1)}, {self.latency_ms:g} ms, {self.mbps:g} Mbit/s"


@dataclass(frozen=True, slots=True)
class Prediction:
    """One training, predicted and measured.

    where:     what computes its tensor tasks
    predicted: seconds of an epoch in virtual time
    measured:  seconds of each epoch that counts
    predicted_cores, measured_cores: core seconds of an epoch of this process: what other processes take is not in
               them, nor what Lambdas do
    """

    graph: str
    model: str
    where: str
    intervals: int
    predicted: float
    measured: list[float]
    predicted_cores: float
    measured_cores: float

    @property
    def median(self) -> float:
        return statistics.median(self.measured)

    @property
    def ratio(self) -> float:
        return self.predicted / self.median


def predict(
    found: Calibration, graphs: Sequence[str], far: Far, told: Told = lambda _: None
) -> list[Prediction]:
    """Every model on every graph, on threads and on Lambdas."""
    predictions = []
    for name in graphs:
        with generated(*GENERATED[name]) if name in GENERATED else nullcontext(_split(load(name))) as graph:
            for model, hidden in MODELS.items():
                for where in (None, far):
                    one = _one(found, name, graph, model, hidden, where)
                    told(
                        f"{name}, {model}, {one.where}: {one.predicted:.4f} s predicted, {one.median:.4f} s measured"
                    )
                    predictions.append(one)
    return predictions


def _one(found: Calibration, name: str, graph: Graph, model: str, hidden: int, far: Far | None) -> Prediction:
    intervals = None if far is None else 4 * far.count
    predicted = _simulated(found, graph, model, hidden, intervals, far)
    epochs = round(min(_MOST, max(_FEWEST, _LIKELY_SECONDS / predicted.seconds_per_epoch)))
    lambdas = None if far is None else far.lambdas()
    # The first epoch warms up and the last is evaluated: neither counts.
    trainer = make_trainer(graph, model, hidden, "fp32", intervals, epochs=epochs + 2, lambdas=lambdas)
    trainer.prepare()
    epochs_run = (each for each in trainer.run() if isinstance(each, EpochMetrics))
    seconds, used = zip(*((each.seconds, time.process_time()) for each in epochs_run), strict=True)
    busy = predicted.busy_seconds
    own_cores = busy["cores"] - busy.get("cores lambda", 0.0)  # Lambdas are other processes
    return Prediction(
        name,
        model,
        "threads" if far is None else str(far),
        predicted.intervals,
        predicted.seconds_per_epoch,
        list(seconds[1:-1]),
        own_cores / _EPOCHS,
        (used[-2] - used[0]) / (len(used) - 2),
    )


def _simulated(
    found: Calibration, graph: Graph, model: str, hidden: int, intervals: int | None, far: Far | None
) -> Simulated:
    return simulate(
        GraphShape.of(graph),
        ModelShape(model, hidden=hidden, dropout=0.0),
        found.machine,
        intervals=intervals,
        lambdas=None if far is None else far.kind(found.local_lambda),
        lambda_count=0 if far is None else far.count,
        lambdas_on_cores=True,
        epochs=_EPOCHS,
    )


def _split(graph: Graph) -> Graph:
    """With a training split: six of ten vertices that have a label, where the graph has none."""
    if graph.train is not None:
        return graph
    draw = np.random.default_rng(0).random(graph.num_vertices)
    return Graph.from_csr(
        graph.indptr,
        graph.indices,
        edge_weight=graph.edge_weight,
        x=graph.x,
        y=graph.y,
        train=draw < 0.6,
        val=(draw >= 0.6) & (draw < 0.8),
        test=draw >= 0.8,
        num_classes=graph.num_classes,
        name=graph.name,
    )


def table(predictions: Sequence[Prediction]) -> str:
    """A table in Markdown, and how many predictions are close."""
    rows = []
    for each in predictions:
        what = [each.graph, each.model, each.where, f"{each.intervals}"]
        seconds = [f"{one:.4f}" for one in (each.predicted, each.median, min(each.measured))]
        rows.append(
            [*what, *seconds, f"{each.ratio:.2f}", f"{each.predicted_cores / each.measured_cores:.2f}"]
        )
    within = sum(abs(each.ratio - 1) <= 0.2 for each in predictions)
    return f"{markdown(_HEAD, rows)}\n\n{within} of {len(predictions)} within 20 % of the median."


_HEAD = ["graph", "model", "tensor tasks on", "intervals", "predicted s", "measured s, median", "best"]
_HEAD += ["predicted : measured", "core s, predicted : measured"]


def as_json(found: Calibration, predictions: Sequence[Prediction]) -> str:
    """One line: everything that was measured and predicted."""
    rows = [asdict(each) | {"median": each.median, "ratio": each.ratio} for each in predictions]
    return json.dumps({"bench": "predict", "calibration": str(found), "predictions": rows})
