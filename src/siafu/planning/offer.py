"""Offer: one way to train, and what it would take and cost."""

from dataclasses import asdict, dataclass
from typing import Any

from siafu.cost.fleet import Fleet
from siafu.pipeline.ids import Mode


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """One way to train.

    lambda_count: of each graph server; 0: tensor tasks run on its own cores
    """

    fleet: Fleet
    mode: Mode = "pipe"
    lambda_count: int = 0

    def __str__(self) -> str:
        lambdas = f" + {self.fleet.servers * self.lambda_count} Lambdas" if self.lambda_count else ""
        return f"{self.fleet}{lambdas}, {self.mode}"


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
    server_bytes:  memory that a graph server's data takes
    utilisation:   share of the cores' time that they are busy
    lambda_gb_seconds, lambda_requests: of the whole training
    usd_servers, usd_lambdas: what machines and Lambdas cost, requests included
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

    @property
    def usd(self) -> float:
        return self.usd_servers + self.usd_lambdas

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
