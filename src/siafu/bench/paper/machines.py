"""The paper's machines in numbers: public specifications, a few constants calibrated on two of its rows, and assumptions.

Calibrated on GCN Amazon (with its tasks' seconds, Figure 10, and what its Lambdas cost):
- what an edge costs a c5n.2xlarge, at two widths: GA takes 3.3 s, ∇GA 0.9 s;
- at which rate its tensor tasks compute and go through rows: AV and ∇AV take 3.7 s together;
- how fast rows come to a V100 and how fast it gathers: GA takes 1.4 s, ∇GA 0.2 s; AV and ∇AV 1.6 s together;
- what travels between servers in a second: SC and ∇SC take 1.0 to 1.6 s;
- how fast a Lambda is: those of an epoch cost 0.6 times as much as the servers.
Calibrated on GAT Amazon: what the attention of an edge costs a CPU, how much more GAT scatters than GCN, and how many Lambdas
a server has, for there they are what everything waits for.
Assumed, the same for all rows: a partition's locality, how servers grow with their threads, two intervals for every Lambda.
Everything else follows: other instances by their processors, memory and network, a Lambda by its share of one.
"""

from dataclasses import dataclass

from siafu.virtual.costs import CoreSpeed, Curve, EdgeCosts, LambdaKind, Machine

GB = 1e9

EDGE_SECONDS = ((256.0, 23e-9), (1200.0, 61e-9))
"""Seconds of an edge on a whole c5n.2xlarge, by the bytes of its row."""

PRODUCTS = 40 * GB
"""FLOP/s of a c5n.2xlarge in matrix products: a tenth of the peak of its four cores."""

TENSOR_BYTES = 3.4 * GB
"""Bytes/s that its tensor tasks read and make, besides products."""

ATTENTIONS = 5.5e6
"""Edges/s whose attention it computes, forth or back."""

SCATTER = 1.2 * GB
"""Bytes/s of rows that a server sends to ghosts and takes from others, at 10 Gbit/s."""

GPU_GATHER, GPU_LOAD, GPU_TENSOR_BYTES = 154 * GB, 9.5 * GB, 2.5 * GB
"""Bytes/s of a V100: gathered from its memory; loaded for a gather; read and made by tensor tasks, which is copying."""

GPU_PRODUCTS, GPU_ATTENTIONS = 10_000 * GB, 400e6

MORE_THREADS = 2 / 3
"""An assumption: what a server does grows with its threads to this power, since they share a memory."""

LAMBDAS = 46
"""Lambdas of each graph server: GAT Amazon paid 1.44 dollars for Lambdas in 853 seconds on 12 servers, which is 45 of 192 MB all the time."""

LAMBDA_NETWORK = 100 * 200e6 / 8
"""Bytes/s of a c5n.2xlarge to and from all of its Lambdas: with 100 of them the paper measured 200 Mbit/s each."""

LAMBDA_SHARE = 0.11
"""Share of a processor thread that a Lambda of 192 MB has."""

LAMBDA_PACE = 4.5
"""Speed of that share in a task, relative to the same share of a graph server's thread."""

_LAMBDA_MB = 192
_VCPUS = 8  # of the machine that everything is calibrated on
_TASK_SECONDS = 2e-5
_ADDING = 5 * GB  # bytes/s of gradients that are added up


@dataclass(frozen=True, slots=True)
class PaperInstance:
    """An instance type of the paper.

    vcpus:   threads
    pace:    of a thread, relative to c5n's (sustained clock)
    network: Gbit/s it can count on
    gpu:     of a V100's memory bandwidth, if it has a GPU
    """

    name: str
    vcpus: int
    usd_hour: float
    network: float
    pace: float = 1.0
    gpu: float = 0.0


INSTANCES = {
    each.name: each
    for each in (
        PaperInstance("c5.2xlarge", 8, 0.34, 10.0),
        PaperInstance("c5n.2xlarge", 8, 0.432, 10.0),
        PaperInstance("c5n.4xlarge", 16, 0.864, 15.0),
        PaperInstance("r5.xlarge", 4, 0.252, 10.0, pace=3.1 / 3.4),
        PaperInstance("r5.2xlarge", 8, 0.504, 10.0, pace=3.1 / 3.4),
        PaperInstance("p2.xlarge", 4, 0.90, 1.25, pace=2.7 / 3.4, gpu=240 / 900),
        PaperInstance("p3.2xlarge", 8, 3.06, 10.0, pace=2.7 / 3.4, gpu=1.0),
    )
}
"""On-demand prices of us-east-1 in 2021. c5n.4xlarge: 15 Gbit/s at all times; the others up to 10 and more."""

_ANY_TABLE = (1.0,)


def machine(name: str) -> Machine:
    """An instance as a graph server of Dorylus; a GPU is one worker that computes everything."""
    instance = INSTANCES[name]
    network = SCATTER * instance.network / 10
    if instance.gpu:
        gather = Curve(((1.0, 1 / (GPU_GATHER * instance.gpu)), (1e5, 1e5 / (GPU_GATHER * instance.gpu))))
        copies = (instance.vcpus / _VCPUS) ** MORE_THREADS * instance.pace / INSTANCES["p3.2xlarge"].pace
        products, attentions = Curve.flat(GPU_PRODUCTS * instance.gpu), GPU_ATTENTIONS * instance.gpu
        core = CoreSpeed(products, GPU_TENSOR_BYTES * copies, 1e12, 0.0, attentions, GPU_LOAD * copies)
        return _machine(1, core, gather, network)
    thread = instance.pace / _VCPUS * (instance.vcpus / _VCPUS) ** (MORE_THREADS - 1)
    return _machine(instance.vcpus, _thread(thread), _edge_curve(1 / thread), network)


def lambda_network(name: str) -> float:
    """Bytes/s that all Lambdas of a server share."""
    return LAMBDA_NETWORK * INSTANCES[name].network / 10


def weight_machine() -> Machine:
    """A weight server: adding up gradients takes it memory, not tensor tasks."""
    core = CoreSpeed(Curve.flat(PRODUCTS / _VCPUS), _ADDING, 1e12, 0.0)
    return _machine(_VCPUS, core, _edge_curve(_VCPUS), 10.0 / 8 * GB)


def lambda_kind() -> LambdaKind:
    """A Lambda as the paper had it: invoked for every task; nothing is kept from one to the next."""
    return LambdaKind(
        memory_mb=_LAMBDA_MB,
        thread=_thread(LAMBDA_SHARE * LAMBDA_PACE / _VCPUS),
        bytes_s=800e6 / 8,
        latency_s=0.5e-3,
        invoke_s=0.02,
        cold_start_s=0.02,  # containers are warm after the first of many epochs
        task_seconds=1e-3,
        prefetch=0,
        tasks_per_invocation=1,
        keeps_constants=False,
        keeps_forward=False,
        server_task_seconds=_TASK_SECONDS,
    )


def _thread(share: float) -> CoreSpeed:
    """A part of a whole c5n.2xlarge."""
    return CoreSpeed(Curve.flat(PRODUCTS * share), TENSOR_BYTES * share, 1e12, 0.0, ATTENTIONS * share)


def _machine(cores: int, core: CoreSpeed, an_edge: Curve, network: float) -> Machine:
    return Machine(
        cores=cores,
        core=core,
        edges=EdgeCosts(_ANY_TABLE, (an_edge,), an_edge),
        attention=(0.0, 0.0),
        task_seconds=_TASK_SECONDS,
        network_bytes_s=network,
        latency_s=0.5e-3,
        memory_bytes=0.0,
        message_seconds=1e-5,
    )


def _edge_curve(factor: float) -> Curve:
    """A power of the row's bytes through the two points that are known."""
    (narrow, less), (wide, more) = EDGE_SECONDS
    far = (wide / narrow) ** 2
    steep = more / less
    return Curve(
        (
            (narrow / far, less / steep**2 * factor),
            (narrow, less * factor),
            (wide, more * factor),
            (wide * far, more * steep**2 * factor),
        )
    )
