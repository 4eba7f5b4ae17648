"""OfferRisk: what losses do to an offer: expected time and dollars, beside those of machines that are never lost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from siafu.base.errors import BadInput
from siafu.cost.instances import Rental
from siafu.planning.estimate import Estimates
from siafu.planning.offer import Offer
from siafu.planning.spot.paces import Paces, paces_of
from siafu.planning.spot.risk import MOST_RATE, Moments, Risk, Spread, assess, of_rate, of_traces
from siafu.planning.spot.schemes import SchemeName, schemes
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
        rate = sum(trace.losses for trace in traces) / sum(trace.machine_hours for trace in traces)
        if rate > MOST_RATE:
            raise BadInput(
                f"in the trace {', '.join(trace.name for trace in traces)} a machine is lost {rate:.3g} times an hour: "
                f"take one with at most {MOST_RATE:g}"
            )
        return cls(rate, traces)

    def moments(self, machines: int) -> Moments:
        return of_traces(self.traces, machines) if self.traces else of_rate(self.rate, machines)

    def __str__(self) -> str:
        source = f", as in {', '.join(trace.name for trace in self.traces)}" if self.traces else ""
        return f"{self.rate:.2g} losses in an hour of one machine{source}"


@dataclass(frozen=True, slots=True)
class OfferRisk:
    """An offer under losses.

    paces:     how it goes on with fewer machines
    schemes:   ways to train on machines that may be lost
    on_demand: dollars of the same machines, if none may be taken away
    """

    offer: Offer
    losses: LossRate
    paces: Paces
    schemes: Mapping[SchemeName, Risk]
    on_demand: float

    @property
    def warm(self) -> Risk | None:
        """With warm copies; None: a machine has no room for them."""
        return self.schemes.get("warm")

    @property
    def best(self) -> Risk:
        """The better of what `siafu train` does, with warm copies and without."""
        cold, warm = self.schemes["cold"], self.warm
        return warm if warm is not None and self.redundancy_pays else cold

    @property
    def redundancy_pays(self) -> bool:
        """Whether warm copies are worth more: 1 / (time × dollars)."""
        return self.warm is not None and self.warm.value > self.schemes["cold"].value

    @property
    def eager_pays(self) -> bool:
        """Whether eager copies would be worth more than warm ones."""
        eager = self.schemes.get("eager")
        return eager is not None and self.warm is not None and eager.value > self.warm.value

    @property
    def pays(self) -> bool:
        """Whether machines that may be taken away cost less in the mean."""
        return self.best.dollars.mean < self.on_demand

    def summary(self) -> dict[str, Any]:
        """The risk as JSON has it. What is not said of a scheme is of training without copies."""
        saving = self.schemes["checkpoints"]
        return {
            "rate": self.losses.rate,
            "traces": [trace.name for trace in self.losses.traces],
            **_summary(self.schemes["cold"]),
            "with_checkpoints": {"epochs": saving.training.checkpoint_epochs, **_summary(saving)},
            "on_demand": {"seconds": self.offer.seconds, "usd": self.on_demand},
            "schemes": {name: _summary(risk) for name, risk in self.schemes.items()},
            "redundancy": {
                "pays": self.redundancy_pays,
                "copy_bytes": self.paces.copy_bytes,
                "has_room": self.paces.has_room,
                "eager_pays": self.eager_pays,
            },
        }


def _summary(risk: Risk) -> dict[str, Any]:
    return {
        "seconds": _spread(risk.seconds),
        "usd": _spread(risk.dollars),
        "value": risk.value,
        "throughput": risk.throughput,
        "losses": risk.mean(lambda each: each.losses),
        "epochs_lost": risk.mean(lambda each: each.epochs_lost),
        "longest_pause": risk.mean(lambda each: each.longest_pause),
        "paused": risk.mean(lambda each: each.paused),
        "waited": risk.mean(lambda each: each.waited),
    }


def _spread(found: Spread) -> dict[str, float]:
    return {"mean": found.mean, "low": found.low, "high": found.high}


def offer_risk(offer: Offer, estimates: Estimates, losses: LossRate, seeds: int) -> OfferRisk:
    """Replay an offer so many times with losses, in every way to train on such machines."""
    return replayed(offer, paces_of(offer, estimates), losses, seeds)


def replayed(offer: Offer, paces: Paces, losses: LossRate, seeds: int) -> OfferRisk:
    """The same where it is known how the offer goes on with fewer machines."""
    fleet = offer.setup.fleet
    moments = losses.moments(max(1, fleet.servers - 1))
    found: dict[SchemeName, Risk] = {
        each.name: assess(each.training, moments, seeds, each.prices, offer.seconds)
        for each in schemes(offer, paces, losses.rate)
    }
    usd_h = fleet.servers * Rental(fleet.rental.instance).usd_h
    return OfferRisk(offer, losses, paces, found, usd_h * offer.seconds / 3600 + offer.usd_lambdas)
