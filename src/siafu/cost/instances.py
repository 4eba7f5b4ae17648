"""Instances: machines that can be rented, what they are made of, and what they cost by the second."""

import math
from dataclasses import dataclass

from siafu.base.errors import BadInput
from siafu.cost.lambda_prices import Architecture

SECONDS_PER_HOUR = 3600
_BYTES_PER_TRANSFER = 8  # a memory channel is 64 bits wide


@dataclass(frozen=True, slots=True)
class Processor:
    """Public specifications of one socket.

    clock_ghz:       that all cores can hold
    flops_per_cycle: fp32 operations that a core can begin in a cycle: its vector units × their width × 2
    memory_mts:      million transfers a second of one memory channel
    l2_kib:          a core's own second-level cache
    cpu_ids:         how a machine says that it has one: vendor/family/model, or on arm64 implementer/architecture/part
    """

    name: str
    architecture: Architecture
    cores: int
    threads_per_core: int
    clock_ghz: float
    flops_per_cycle: int
    memory_channels: int
    memory_mts: float
    l2_kib: int
    source: str
    cpu_ids: tuple[str, ...] = ()

    @property
    def flops_per_thread(self) -> float:
        """Operations a second that a hardware thread can have at most while its siblings work as hard."""
        return self.clock_ghz * 1e9 * self.flops_per_cycle / self.threads_per_core

    @property
    def memory_bytes_per_thread(self) -> float:
        """Bytes a second that a hardware thread can read at most while all others of the socket do."""
        socket = self.memory_channels * self.memory_mts * 1e6 * _BYTES_PER_TRANSFER
        return socket / (self.cores * self.threads_per_core)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A GPU. Siafu does not compute on it: it is here so that prices can be compared."""

    name: str
    memory_gib: float
    tflops: float
    memory_gbs: float
    source: str


@dataclass(frozen=True, slots=True)
class Instance:
    """A type of machine.

    network_gbps:       what it has at any time; network_burst_gbps: for minutes, while it has credit
    spot_low_usd_h, spot_high_usd_h: the range of what was asked for one that may be taken away; None: not known
    as_of:              the month that the prices are of
    disk_gb:            of the disk that comes with it; disk_read_mb_s, disk_write_mb_s: megabytes a second; None: it has none
    volume_mb_s:        megabytes a second of its link to volumes, at any time; None: not known
    """

    name: str
    processor: Processor
    vcpu: int
    memory_gib: float
    network_gbps: float
    network_burst_gbps: float
    accelerator: Accelerator | None
    on_demand_usd_h: float
    spot_low_usd_h: float | None
    spot_high_usd_h: float | None
    as_of: str
    disk_gb: float | None = None
    disk_read_mb_s: float | None = None
    disk_write_mb_s: float | None = None
    volume_mb_s: float | None = None

    @property
    def architecture(self) -> Architecture:
        return self.processor.architecture

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gib * 2**30)


@dataclass(frozen=True, slots=True)
class Billing:
    """Rules by which time is charged.

    minimum_seconds:   what a machine costs at least
    increment_seconds: time is rounded up to a multiple of this
    """

    minimum_seconds: float
    increment_seconds: float

    def usd(self, usd_h: float, seconds: float) -> float:
        """Dollars of one machine for so many seconds."""
        if seconds < 0:
            raise ValueError(f"{seconds} seconds cannot be")
        whole = math.ceil(seconds / self.increment_seconds) * self.increment_seconds
        return usd_h / SECONDS_PER_HOUR * max(whole, self.minimum_seconds)


@dataclass(frozen=True, slots=True)
class Rental:
    """An instance, on demand or as a spot instance. `str` is what `--instance` takes."""

    instance: Instance
    spot: bool = False

    def __post_init__(self) -> None:
        if self.spot and self.instance.spot_high_usd_h is None:
            raise BadInput(
                f"no spot price of {self.instance.name} is known: leave out :spot, or give one with --prices"
            )

    def __str__(self) -> str:
        return f"{self.instance.name}:spot" if self.spot else self.instance.name

    @property
    def usd_h(self) -> float:
        """Dollars an hour. Of a spot instance, the upper end of its range: a plan should not promise less than is charged."""
        high = self.instance.spot_high_usd_h
        return high if self.spot and high is not None else self.instance.on_demand_usd_h
