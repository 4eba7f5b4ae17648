"""Offer: one way to train, and what it would take and cost."""

from dataclasses import asdict, dataclass
from typing import Any

from siafu.cost.disks import Disk
from siafu.cost.fleet import Fleet
from siafu.pipeline.ids import Mode


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """One way to train.

    lambda_count: of each graph server; 0: tensor tasks run on its own cores
    disk:         of each machine, for tables that do not fit memory; None: all are in memory
    """

    fleet: Fleet
    mode: Mode = "pipe"
    lambda_count: int = 0
    disk: Disk | None = None

    def __str__(self) -> str:
        lambdas = f" + {self.fleet.servers * self.lambda_count} Lambdas" if self.lambda_count else ""
        disk = f" with {self.disk.name}" if self.disk is not None else ""
        return f"{self.fleet}{disk}{lambdas}, {self.mode}"


@dataclass(frozen=True, slots=True)
class Bound:
    """Least time and cost of a setup, before it is simulated."""

    seconds: float
    usd: float

    @property
    def value(self) -> float:
        """The most that it can be worth."""
        return 1 / (self.seconds * self.usd)


@dataclass(frozen=True, slots=True)
class Offer:
    """A setup that was simulated.

    epochs:        that it needs: more than was asked for where they are asynchronous
    start_seconds: until the first epoch: processes start, the model is compiled, every server reads its part of the graph
    seconds:       from the start to the end, evaluations included
    server_bytes:  memory of a graph server at its peak, by the list of its arrays; copy_bytes: of a warm copy of it
    memory_bytes:  that it may take
    scratch_bytes: of its tables on disk
    measures:      how it spares memory; nothing where all fits as it is
    spared_seconds: by which an epoch takes longer for that
    utilisation:   share of the cores' time that they are busy
    lambda_gb_seconds, lambda_requests: of the whole training
    usd_servers, usd_lambdas, usd_disks: what machines, Lambdas with their requests, and rented volumes cost
    layout:        of gathers, as `siafu train` takes it
    """

    setup: TrainingSetup
    seconds_per_epoch: float
    epochs: int
    start_seconds: float
    seconds: float
    server_bytes: float
    utilisation: float
    lambda_gb_seconds: float
    lambda_requests: int
    usd_servers: float
    usd_lambdas: float
    layout: str = "vertices"
    memory_bytes: int = 0
    copy_bytes: float = 0.0
    scratch_bytes: int = 0
    measures: tuple[str, ...] = ()
    spared_seconds: float = 0.0
    usd_disks: float = 0.0

    @property
    def usd(self) -> float:
        return self.usd_servers + self.usd_lambdas + self.usd_disks

    @property
    def spares(self) -> bool:
        """Whether it fits by sparing memory: then its command must say how much it may take."""
        return bool(self.measures) or self.scratch_bytes > 0

    @property
    def value(self) -> float:
        """V = 1 / (T · C), by which Dorylus compares: twice as fast at the same price is worth twice as much."""
        return 1 / (self.seconds * self.usd)

    def dominates(self, seconds: float, usd: float) -> bool:
        """Whether it is at least as fast and as cheap."""
        return self.seconds <= seconds and self.usd <= usd

    def summary(self) -> dict[str, Any]:
        """The offer as JSON has it."""
        found = asdict(self)
        del found["setup"]
        fleet = self.setup.fleet
        return {
            "instance": fleet.rental.instance.name,
            "spot": fleet.rental.spot,
            "servers": fleet.servers,
            "mode": self.setup.mode,
            "lambdas": fleet.servers * self.setup.lambda_count,
            "disk": None if self.setup.disk is None else self.setup.disk.name,
            **found,
            "usd": self.usd,
            "usd_h": fleet.usd_h,
            "value": self.value,
        }


def pareto(offers: list[Offer]) -> list[Offer]:
    """Offers to which no other is both faster and cheaper, the fastest first."""
    front: list[Offer] = []
    for offer in sorted(offers, key=lambda each: (each.seconds, each.usd)):
        if not front or offer.usd < front[-1].usd:
            front.append(offer)
    return front
