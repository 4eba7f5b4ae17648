"""OfferRisk: what losses do to an offer: expected time and dollars, beside those of machines that are never lost."""

from dataclasses import dataclass, replace
from typing import Any

from siafu.base.errors import BadInput
from siafu.cost.instances import Rental
from siafu.planning.offer import Offer
from siafu.planning.spot.replay import SpotTraining, young_daly
from siafu.planning.spot.risk import (
    ASYNC_CHECKPOINT_SECONDS,
    CHECKPOINT_SECONDS,
    DETECTION_SECONDS,
    MOST_RATE,
    Moments,
    Risk,
    Spread,
    assess,
    of_rate,
    of_traces,
)
from siafu.planning.spot.trace import Trace


@dataclass(frozen=True, slots=True)
class LossRate:
    """How often machines are lost: as in traces, or at a rate.

    rate: losses in an hour of one machine
    """

    rate: float
    traces: tuple[Trace, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.rate <= MOST_RATE:
            raise BadInput(
                f"a loss rate of {self.rate:g} an hour: give a number above 0, at most {MOST_RATE:g}"
            )

    @classmethod
    def in_traces(cls, traces: tuple[Trace, ...]) -> "LossRate":
        hours = sum(trace.machine_hours for trace in traces)
        return cls(sum(trace.losses for trace in traces) / hours, traces)

    def moments(self, machines: int) -> Moments:
        return of_traces(self.traces, machines) if self.traces else of_rate(self.rate, machines)

    def __str__(self) -> str:
        source = f", as in {', '.join(trace.name for trace in self.traces)}" if self.traces else ""
        return f"{self.rate:.2g} losses in an hour of one machine{source}"


@dataclass(frozen=True, slots=True)
class OfferRisk:
    """An offer under losses.

    closed:      as it runs: exact epochs that have ended stay; of an asynchronous run, those before its last checkpoint
    checkpoints: if a loss took it back to its last checkpoint, at Young and Daly's interval
    on_demand:   dollars of the same machines, if none may be taken away
    """

    offer: Offer
    losses: LossRate
    closed: Risk
    checkpoints: Risk
    on_demand: float

    @property
    def pays(self) -> bool:
        """Whether machines that may be taken away cost less in the mean."""
        return self.closed.dollars.mean < self.on_demand

    def summary(self) -> dict[str, Any]:
        """The risk as JSON has it."""
        return {
            "rate": self.losses.rate,
            "traces": [trace.name for trace in self.losses.traces],
            "seconds": _spread(self.closed.seconds),
            "usd": _spread(self.closed.dollars),
            "losses": self.closed.mean(lambda each: each.losses),
            "epochs_lost": self.closed.mean(lambda each: each.epochs_lost),
            "longest_pause": self.closed.mean(lambda each: each.longest_pause),
            "throughput": self.closed.throughput,
            "with_checkpoints": {
                "epochs": self.checkpoints.training.checkpoint_epochs,
                "seconds": _spread(self.checkpoints.seconds),
                "usd": _spread(self.checkpoints.dollars),
            },
            "on_demand": {"seconds": self.offer.seconds, "usd": self.on_demand},
        }


def _spread(found: Spread) -> dict[str, float]:
    return {"mean": found.mean, "low": found.low, "high": found.high}


def training_of(offer: Offer) -> SpotTraining:
    """An offer as losses see it. Of several machines the first is on demand."""
    servers = offer.setup.fleet.servers
    epoch = (offer.seconds - offer.start_seconds) / offer.epochs
    every = None
    if offer.setup.mode == "async":
        every = max(1, round(ASYNC_CHECKPOINT_SECONDS / epoch))
    return SpotTraining(
        max(1, servers - 1),
        offer.epochs,
        epoch,
        offer.start_seconds,
        DETECTION_SECONDS,
        every,
        CHECKPOINT_SECONDS if every is not None else 0.0,
    )


def offer_risk(offer: Offer, losses: LossRate, seeds: int) -> OfferRisk:
    """Replay an offer so many times with losses, as it is and with checkpoints."""
    fleet = offer.setup.fleet
    training = training_of(offer)
    saving = replace(training, checkpoint_seconds=CHECKPOINT_SECONDS)
    saving = replace(saving, checkpoint_epochs=young_daly(saving, losses.rate))
    moments = losses.moments(training.machines)
    head = Rental(fleet.rental.instance).usd_h
    hours = offer.seconds / 3600
    prices = {
        "spot_usd_h": fleet.rental.usd_h,
        "other_usd_h": (head if fleet.servers > 1 else 0.0) + offer.usd_lambdas / hours,
    }
    return OfferRisk(
        offer,
        losses,
        assess(training, moments, seeds, **prices),
        assess(saving, moments, seeds, **prices),
        fleet.servers * head * hours + offer.usd_lambdas,
    )
