"""The paper's rows in virtual time."""

from dataclasses import dataclass
from functools import cache

from siafu.bench.paper.dorylus import dorylus
from siafu.bench.paper.machines import (
    INSTANCES,
    LAMBDAS,
    lambda_kind,
    lambda_network,
    machine,
    weight_machine,
)
from siafu.bench.paper.published import GRAPHS, HIDDEN, Backend
from siafu.pipeline.ids import Mode
from siafu.virtual.virtual import Simulated, simulate

INTERVALS = 2 * LAMBDAS
"""Intervals of a server: twice as many as it has Lambdas, so that each has a task while the next is prepared."""

EPOCHS = 5
"""Epochs that are simulated."""

_SIMULATED = 32  # intervals of a server, each for several; and servers
_SERVERS = 4
_WEIGHT_SERVERS = 8
_LAMBDA_GB_SECOND, _LAMBDA_REQUEST = 0.0000166667, 0.20 / 1e6


@dataclass(frozen=True, slots=True)
class PaperEpoch:
    """An epoch of Dorylus on a cluster: seconds, dollars (graph servers and Lambdas), and the run it is of."""

    seconds: float
    dollars: float
    run: Simulated

    @property
    def value(self) -> float:
        """Relative to that of other runs of as many epochs."""
        return 1 / (self.seconds * self.dollars)


@cache
def epoch(
    model: str,
    graph: str,
    instance: str,
    servers: int,
    backend: Backend,
    mode: Mode = "async",
    staleness: int = 0,
) -> PaperEpoch:
    """One epoch. GPU clusters have p3.2xlarge unless another GPU is named."""
    name = instance if backend != "gpu" or INSTANCES[instance].gpu else "p3.2xlarge"
    shape = GRAPHS[graph]
    serverless = backend == "lambda"
    run = simulate(
        shape,
        dorylus(model, shape, HIDDEN[graph], servers, loads=bool(INSTANCES[name].gpu)),
        machine(name),
        servers=servers,
        intervals=INTERVALS,
        weight_servers=_WEIGHT_SERVERS,
        mode=mode,
        staleness=staleness,
        lambdas=lambda_kind() if serverless else None,
        lambda_count=LAMBDAS if serverless else 0,
        epochs=EPOCHS,
        weight_machine=weight_machine(),
        lambda_network_bytes_s=lambda_network(name),
        early_gathers=False,
        most_servers=_SERVERS,
        most_intervals=_SIMULATED,
    )
    hours = run.seconds_per_epoch / 3600
    dollars = hours * servers * INSTANCES[name].usd_hour
    memory = lambda_kind().memory_mb / 1024
    billed = run.lambda_billed_seconds * memory * _LAMBDA_GB_SECOND
    dollars += (billed + run.lambda_invocations * _LAMBDA_REQUEST) / EPOCHS
    return PaperEpoch(run.seconds_per_epoch, dollars, run)
