"""Virtual time: a run of the pipeline's own machines with modelled durations: how long it would take, and why."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from siafu.base.errors import BadInput
from siafu.graph.partition import auto_interval_count, gather_parts
from siafu.pipeline.ids import Mode
from siafu.pipeline.setup import Setup
from siafu.virtual.costs import LambdaKind, Machine
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.server_sample import ServerSample
from siafu.virtual.stage_costs import StageCosts
from siafu.virtual.virtual_run import VirtualRun
from siafu.virtual.workload import ModelShape, Workload, workload_of
from siafu.weights.policy import policy as policy_named


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulated run came to; sums are over all servers and all of its epochs.

    seconds_per_epoch: the mean after the first
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
    policy: str = "stash",
    lambdas_on_cores: bool = False,
    weight_machine: Machine | None = None,
    lambda_network_bytes_s: float | None = None,
    early_gathers: bool = True,
    most_servers: int = 4,
    most_intervals: int = 64,
    machines: int | None = None,
    eager: bool = False,
) -> Simulated:
    """Run `epochs` epochs of training in virtual time.

    intervals:      of each server; None: as `siafu train` chooses, and with Lambdas at least one each
    lambda_count:   of each graph server; 0: tensor tasks run on the servers' cores
    lambdas_on_cores: Lambdas are processes on their server's own cores, as `--lambdas local` has it
    weight_machine: of the weight servers; None: they are like the graph servers
    lambda_network_bytes_s: what all Lambdas of a server share; None: the server's network, with its other traffic
    early_gathers:  gathers of pipe begin with the rows that are there, where rows travel
    most_servers, most_intervals: how many servers, and intervals of a server, to simulate at most; where there are more,
                    those that are simulated stand for the others, which are like them
    machines:       that graph servers share, as after a loss, where all servers are simulated; None: each has its own
    eager:          an eager copy of each graph server runs its forward tasks on another's machine, where all servers are
                    simulated and epochs are exact
    """
    if (
        min(servers, weight_servers, epochs - 1, 1 if intervals is None else intervals) < 1
        or lambda_count < 0
        or staleness < 0
    ):
        raise BadInput(
            f"{servers} servers, {intervals} intervals, {weight_servers} weight servers, {epochs} epochs: simulate at "
            "least 1, 1, 1 and 2"
        )
    workload = model if isinstance(model, Workload) else workload_of(model, shape)
    kind = lambdas if lambda_count else None
    count = intervals or _intervals(shape, machine, servers, lambda_count if kind else 0)
    sample = ServerSample.of(
        servers,
        count,
        weight_servers,
        lambda_count if kind else 0,
        most_servers=most_servers,
        most_intervals=most_intervals,
    )
    if machines is not None and not 1 <= machines <= sample.simulated_servers == servers:
        raise BadInput(
            f"{servers} servers on {machines} machines: give 1 to {servers}, and simulate all of the servers"
        )
    if eager and sample.simulated_servers != servers:
        raise BadInput(f"eager copies of {servers} servers: simulate all of the servers")
    setup = Setup(
        workload.training,
        workload.evaluation,
        sample.layout(),
        sample.simulated_weight_servers,
        mode,
        policy_named(policy),
        staleness,
        gather_parts=gather_parts(int(shape.edges / (servers * count)))
        if early_gathers and mode == "pipe" and (servers > 1 or kind)
        else 0,
    )
    run = VirtualRun(
        setup,
        StageCosts(workload, shape, machine, sample),
        epochs,
        kind,
        weight_machine=weight_machine or machine,
        lambda_network_bytes_s=lambda_network_bytes_s,
        near=servers == 1,
        lambdas_on_cores=lambdas_on_cores,
        machines=machines,
        eager=eager,
    )
    run.run()
    return _outcome(run, sample, machine)


def _intervals(shape: GraphShape, machine: Machine, servers: int, lambdas: int) -> int:
    """As `siafu.server.plan` chooses for threads; with Lambdas, as many as keep all of them busy."""
    found = auto_interval_count(
        int(shape.vertices / servers),
        int(shape.edges / servers),
        threads=machine.cores,
        numbers=shape.features,
    )
    return max(found, lambdas)


def _outcome(run: VirtualRun, sample: ServerSample, machine: Machine) -> Simulated:
    ends = [0.0, *run.ended]
    scale = sample.servers_each
    busy = {f"cores {kind}": seconds * scale for kind, seconds in sorted(run.busy.items())}
    cores = sum(run.busy.values())
    busy |= {
        "cores": cores * scale,
        # Links that servers share count once; in their order, so that the sum has the same bits in every run.
        "server network": sum(each.busy for each in dict.fromkeys([*run.links.out, *run.links.come_in]))
        * scale,
        "weights": sum(each.busy for each in (*run.links.weight_in, *run.links.weight_out)),
        "lambdas": sum(each.computing for each in run.fleets) * scale,
    }
    leads: Counter[int] = sum((each.counts.staleness for each in run.graph_machines), Counter())
    return Simulated(
        seconds_per_epoch=(ends[-1] - ends[1]) / (len(ends) - 2),
        epoch_seconds=tuple(after - before for before, after in pairwise(ends)),
        seconds_total=ends[-1],
        busy_seconds=busy,
        utilisation=cores / (ends[-1] * machine.cores * len(set(run.cores))) if ends[-1] else 0.0,
        lambda_invocations=round(sum(each.invocations * each.each * scale for each in run.fleets)),
        lambda_tasks=round(sum(each.tasks * sample.intervals_each * scale for each in run.fleets)),
        lambda_billed_seconds=sum(each.billed * each.each * scale for each in run.fleets),
        bytes_to_lambdas=sum((each.bytes_in + each.bytes_weights) * scale for each in run.fleets),
        bytes_from_lambdas=sum(each.bytes_out * scale for each in run.fleets),
        bytes_scattered=run.post.scattered * scale,
        bytes_weights=run.post.weights,
        max_staleness=max(leads, default=0),
        versions_peak=max(each.counts.versions_peak for each in run.weight_machines),
        servers=sample.servers,
        intervals=sample.intervals,
        simulated_servers=sample.simulated_servers,
        simulated_intervals=sample.simulated_intervals,
        events=run.events,
    )
