"""Schemes: ways to train on machines that may be lost: with checkpoints, with closed epochs, with copies of the servers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from siafu.cost.instances import Rental
from siafu.planning.offer import Offer
from siafu.planning.spot.paces import Paces
from siafu.planning.spot.replay import SpotTraining, young_daly
from siafu.planning.spot.risk import (
    CHECKPOINT_SECONDS,
    DETECTION_SECONDS,
    WARM_DETECTION_SECONDS,
    SpotPrices,
)

SchemeName = Literal["checkpoints", "checkpoints on fewer", "cold", "warm", "eager", "standby"]

WORDS: dict[SchemeName, str] = {
    "checkpoints": "checkpoints every {every}, stands still while a machine is missing",
    "checkpoints on fewer": "checkpoints every {every}, goes on with fewer machines",
    "cold": "closed epochs (--redundancy 0)",
    "warm": "warm copies (--redundancy 1)",
    "eager": "eager copies (--redundancy eager --layout vertices)",
    "standby": "warm copies, and Lambdas for missing machines (a model, not built)",
}


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to train, and its prices."""

    name: SchemeName
    training: SpotTraining
    prices: SpotPrices


def schemes(offer: Offer, paces: Paces, rate: float) -> Iterator[Scheme]:
    """All ways that there are for an offer: eager copies if their rows fit, Lambdas where they are faster.

    Of several machines the first is on demand, and is never lost.

    rate: losses in an hour of one machine, which decides how often checkpoints are made
    """
    prices = _prices(offer)
    cold = _closed(offer, paces)
    fixed = replace(cold, paces=(), checkpoint_seconds=CHECKPOINT_SECONDS)
    fixed = replace(fixed, checkpoint_epochs=young_daly(fixed, rate))
    yield Scheme("checkpoints", fixed, prices)
    yield Scheme("checkpoints on fewer", replace(fixed, paces=cold.paces), prices)
    yield Scheme("cold", cold, prices)
    if not paces.has_room:
        return
    warm = replace(cold, warm=True, detection_seconds=WARM_DETECTION_SECONDS)
    yield Scheme("warm", warm, prices)
    if paces.eager is not None:
        seconds = paces.eager.seconds
        slower = tuple(max(each, seconds) for each in warm.paces)
        eager = replace(warm, epoch_seconds=seconds, paces=slower, spared=paces.eager.forward)
        yield Scheme("eager", eager, prices)
    if any(paces.standby):
        yield _with_lambdas(warm, paces, prices)


def _closed(offer: Offer, paces: Paces) -> SpotTraining:
    """An offer as it runs: epochs that have ended stay."""
    servers = offer.setup.fleet.servers
    epoch = (offer.seconds - offer.start_seconds) / offer.epochs
    return SpotTraining(
        max(1, servers - 1),
        offer.epochs,
        epoch,
        offer.start_seconds,
        DETECTION_SECONDS,
        None,
        0.0,
        paces=paces.fewer if servers > 1 else (math.inf, epoch),
    )


def _prices(offer: Offer) -> SpotPrices:
    fleet = offer.setup.fleet
    head = Rental(fleet.rental.instance).usd_h if fleet.servers > 1 else 0.0
    return SpotPrices(fleet.rental.usd_h, head + offer.usd_lambdas / (offer.seconds / 3600))


def _with_lambdas(warm: SpotTraining, paces: Paces, prices: SpotPrices) -> Scheme:
    faster = [
        (each, 0.0) if standby is None else (standby.seconds, standby.usd / standby.seconds * 3600)
        for each, standby in zip(paces.fewer, paces.standby, strict=True)
    ]
    training = replace(warm, paces=tuple(seconds for seconds, _ in faster))
    return Scheme("standby", training, replace(prices, standby=tuple(usd for _, usd in faster)))
