"""Bench of spot machines: a training under real preemption traces and under rates of losses, in virtual time."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from siafu.base.errors import BadInput
from siafu.cost.fleet import Fleet
from siafu.cost.instances import Rental
from siafu.cost.prices import price_book
from siafu.planning.calibration import calibration
from siafu.planning.estimate import Estimates
from siafu.planning.offer import Offer, TrainingSetup
from siafu.planning.request import Request
from siafu.planning.shapes import model_shape, shape_of
from siafu.planning.spot.offer_risk import LossRate, OfferRisk, replayed
from siafu.planning.spot.paces import paces_of
from siafu.planning.spot.risk_words import assumed, rows, table
from siafu.planning.spot.trace import Trace

_MOST_SERVERS = 1000


@dataclass(frozen=True, slots=True)
class SpotSetting:
    """The training that is replayed.

    instance: type of the machines
    """

    dataset: str = "products"
    model: str = "sage"
    hidden: int = 128
    layers: int = 3
    servers: int = 4
    epochs: int = 2000
    instance: str = "c5n.2xlarge"

    def offer(self) -> tuple[Offer, Estimates]:
        """An epoch by the pipeline's own machines in virtual time, and the machines' prices; and what says so."""
        if not 2 <= self.servers <= _MOST_SERVERS:
            raise BadInput(
                f"{self.servers} servers: give 2 to {_MOST_SERVERS}; the first is on demand, as the cluster's head"
            )
        book, (measured, _) = price_book(), calibration()
        name, shape = shape_of(self.dataset)
        sizes = model_shape(self.model, hidden=self.hidden, layers=self.layers)
        request = Request(name, shape, sizes, self.epochs, spot=True, lambdas=False)
        fleet = Fleet(Rental(book.instance(self.instance), spot=True), self.servers)
        estimates = Estimates(request, measured, book)
        return estimates.offer(TrainingSetup(fleet)), estimates


def measure(
    setting: SpotSetting, traces: Sequence[Trace], rates: Sequence[float], seeds: int
) -> Iterator[OfferRisk]:
    """The training under each trace, and then under each rate, so many times each."""
    losses = [*(LossRate.in_traces((trace,)) for trace in traces), *map(LossRate, rates)]
    for each in losses:
        each.moments(setting.servers - 1)  # refuses traces of fewer machines, before anything takes long
    offer, estimates = setting.offer()
    paces = paces_of(offer, estimates)
    for each in losses:
        yield replayed(offer, paces, each, seeds)


def report(found: Sequence[OfferRisk], setting: SpotSetting, seeds: int) -> str:
    """Tables in Markdown."""
    first = found[0]
    said = f"{setting.dataset}, {setting.model} of {setting.layers} layers, {setting.hidden} wide, on {first.offer.setup}"
    tables = [table(str(each.losses), rows(each)) for each in found]
    return "\n".join([f"{said}: {assumed(first)}. {seeds} replays each.", "", *tables])


def as_json(found: Sequence[OfferRisk]) -> str:
    return json.dumps([each.summary() for each in found])
