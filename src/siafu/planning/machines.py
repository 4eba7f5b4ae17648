"""Machines that we do not have: what was measured here, times what public specifications say of the difference."""

from dataclasses import replace

from siafu.base.hardware.memory import less_reserve
from siafu.cost.instances import Instance, Processor
from siafu.cost.lambda_prices import VCPU_MB
from siafu.cost.prices import PriceBook
from siafu.cost.ratios import Ratios, ratios
from siafu.planning.calibration import Calibration
from siafu.virtual.costs import Curve, EdgeCosts, LambdaKind, Machine

_CACHED_BYTES = 1 << 24  # tables up to this size are taken to stay in a cache
_FOR_VECTORS = 0.75  # of the memory
_BASE_BYTES = 1.0e9  # a process with PyTorch and Numba in it, before it has any data; on the safe side
PROGRAM_BYTES = 350_000_000
"""The same, for servers: `siafu explain gcn cora` began its list with 342 MB, compiled kernels aside."""
_SYSTEM_BYTES = 1_000_000_000  # the system, Ray, a weight server; assumed
_NETWORK_LATENCY_S = 100e-6  # one way between machines of one availability zone; assumed
_BITS = 8

# A Lambda on AWS. Its network was 800 Mbps alone and 200 Mbps where a server has 100 of them (Dorylus, OSDI'21); the rest
# is assumed, on the slow side.
MOST_LAMBDAS = 1000
_MBPS_ALONE, _MBPS_AT_100 = 800.0, 200.0
_LAMBDA_LATENCY_S = 500e-6
_INVOKE_S = 0.02
_AWS_COLD_START_S = 0.3  # besides what was measured here: fetching and unpacking the package


def processor_of(measured: Calibration, book: PriceBook) -> Processor | None:
    """Specifications of the measured machine's processor; None: the price book does not know it."""
    return book.processor(measured.cpu_id)


def machine_of(instance: Instance, measured: Calibration, book: PriceBook) -> Machine:
    """A graph server on an instance."""
    ratio = ratios(instance.processor, processor_of(measured, book))
    here = measured.machine.faster(ratio.pace)
    return replace(
        here,
        cores=instance.vcpu,
        core=replace(
            here.core,
            products=measured.machine.core.products.times(ratio.products),
            memory=measured.machine.core.memory * ratio.memory,
        ),
        edges=_edges(measured.machine.edges, ratio),
        network_bytes_s=instance.network_gbps * 1e9 / _BITS,
        latency_s=_NETWORK_LATENCY_S,
        memory_bytes=float(instance.memory_bytes),
        near_cache=instance.processor.l2_kib * 1024,
    )


def memory_budget(instance: Instance) -> int:
    """Bytes of an instance's memory that graph servers may take, their programs included: `--memory` of a plan's command."""
    return memory_for_servers(instance.memory_bytes)


def memory_for_servers(memory_bytes: int) -> int:
    """Bytes of so much memory that graph servers may take."""
    return less_reserve(max(0, memory_bytes - _SYSTEM_BYTES))


def room_for_vectors(instance: Instance) -> float:
    """Bytes of an instance's memory that entities' vectors may take, which are estimated without their program."""
    return instance.memory_bytes * _FOR_VECTORS - _BASE_BYTES


def aws_lambda(measured: Calibration, count: int, memory_mb: int = VCPU_MB) -> LambdaKind:
    """A Lambda on AWS where a server has so many: our NumPy rates on a share of one vCPU, and AWS's network."""
    share = min(1.0, memory_mb / VCPU_MB)
    local = measured.local_lambda
    return replace(
        local,
        memory_mb=memory_mb,
        thread=local.thread.times(share),
        bytes_s=lambda_bytes_s(count),
        latency_s=_LAMBDA_LATENCY_S,
        invoke_s=_INVOKE_S,
        cold_start_s=_AWS_COLD_START_S + local.cold_start_s / share,
        task_seconds=local.task_seconds / share,
    )


def lambda_bytes_s(count: int) -> float:
    """Bytes/s of each Lambda's network, fewer as there are more Lambdas: a straight line in logarithms between 1 and 100."""
    falling = Curve(((1.0, _MBPS_ALONE), (100.0, _MBPS_AT_100)))
    return falling.at(max(1, count)) * 1e6 / _BITS


def _edges(here: EdgeCosts, ratio: Ratios) -> EdgeCosts:
    return EdgeCosts(
        here.tables,
        tuple(
            curve.times(1 / (ratio.pace if table <= _CACHED_BYTES else ratio.memory))
            for table, curve in zip(here.tables, here.sparse, strict=True)
        ),
        here.dense.times(1 / ratio.pace),
    )
