"""Virtual time: a run of the pipeline's own machines with modelled durations: how long it would take, and why."""

from collections.abc import Mapping
from dataclasses import dataclass

from siafu.pipeline.ids import Mode
from siafu.runtime.simulated.costs import LambdaKind, Machine
from siafu.runtime.simulated.graph_shape import GraphShape
from siafu.runtime.simulated.workload import ModelShape, Workload


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulated run came to; sums are over all servers and all of its epochs.

    seconds_per_epoch: the median after the first
    epoch_seconds:     of each epoch
    seconds_total:     of all
    busy_seconds:      by resource: "cores" and "cores T0", "cores G1", … (core seconds), "lambdas" (seconds of all of
                       them, computing), "lambda network", "server network" (seconds at full rate), "weights"
    utilisation:       share of the cores' time that they were busy
    lambda_invocations, lambda_tasks: how many
    lambda_billed_seconds: from the start of every invocation to its end, waiting included
    bytes_to_lambdas, bytes_from_lambdas, bytes_scattered, bytes_weights: that travelled
    max_staleness:     the furthest that an interval was ahead of the slowest when it entered an epoch
    versions_peak:     versions of the weights that a weight server held at once
    servers, intervals: that were asked for
    simulated_servers, simulated_intervals: of which so many were simulated, each standing for as many alike
    events:            that were handled
    """

    seconds_per_epoch: float
    epoch_seconds: tuple[float, ...]
    seconds_total: float
    busy_seconds: Mapping[str, float]
    utilisation: float
    lambda_invocations: int
    lambda_tasks: int
    lambda_billed_seconds: float
    bytes_to_lambdas: float
    bytes_from_lambdas: float
    bytes_scattered: float
    bytes_weights: float
    max_staleness: int
    versions_peak: int
    servers: int
    intervals: int
    simulated_servers: int
    simulated_intervals: int
    events: int


def simulate(
    shape: GraphShape,
    model: ModelShape | Workload,
    machine: Machine,
    *,
    servers: int = 1,
    intervals: int | None = None,
    weight_servers: int = 1,
    mode: Mode = "pipe",
    staleness: int = 0,
    lambdas: LambdaKind | None = None,
    lambda_count: int = 0,
    epochs: int = 5,
    most_servers: int = 4,
    most_intervals: int = 64,
) -> Simulated:
    """Run `epochs` epochs of training in virtual time.

    intervals:      of each server; None: as `siafu train` chooses, and with Lambdas at least one each
    lambda_count:   of each graph server; 0: tensor tasks run on the servers' cores
    most_servers, most_intervals: how many to simulate at most, of a server; where there are more, those that are
                    simulated stand for the others, which are like them
    """
    raise NotImplementedError
