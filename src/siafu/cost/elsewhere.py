"""The same run elsewhere: its time and cost on a few other machines, and with Lambdas. By arithmetic alone.

What threads spent on gathers goes by memory bandwidth, on tensors by vector units or clock, whichever gains less, and is
divided by the number of threads; while they were idle something else was in the way, which goes by clock alone. Networks
are not in it: `siafu plan` simulates them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from siafu.cost.fleet import Fleet
from siafu.cost.instances import Instance, Processor, Rental
from siafu.cost.lambda_prices import VCPU_MB
from siafu.cost.money import dollars
from siafu.cost.prices import PriceBook
from siafu.cost.ratios import ratios

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Spent:
    """Time and memory of a run.

    seconds: from start to end; threads: of all its machines
    gathers, tensors: seconds of all threads, all that is no gather being tensors
    held_bytes: memory of one machine
    """

    seconds: float
    threads: int
    machines: int
    gathers: float
    tensors: float
    held_bytes: int


def elsewhere(spent: Spent, here: Processor | None, book: PriceBook, skip: str) -> list[dict[str, Any]]:
    """The alternatives of most value, on as many machines, those that would hold its data alone; then spot machines of
    the best, then the run's tensor tasks on Lambdas.

    skip: the type that it ran on
    """
    fitting = [
        each
        for each in book.instances.values()
        if each.accelerator is None and each.name != skip and each.memory_bytes > spent.held_bytes
    ]
    found = [_on(Rental(each), spent, here, book) for each in fitting]
    best = sorted(found, key=lambda each: -each["value"])[:_SHOWN]
    spot = [
        _on(Rental(each, spot=True), spent, here, book)
        for each in fitting
        if each.spot_high_usd_h is not None
    ]
    return [*best, *sorted(spot, key=lambda each: -each["value"])[:1], *_on_lambdas(spent, book)]


def told(alternatives: list[Mapping[str, Any]]) -> str:
    """In a line for people."""
    if not alternatives:
        return "no other machine of the price book would hold this run"
    machines = [
        f"{each['machines']} × {each['instance']}{':spot' if each['spot'] else ''} {each['seconds']:,.3g} s, {dollars(each['usd'])}"
        for each in alternatives
        if each["instance"] is not None
    ]
    lambdas = [
        f"its tensor tasks alone, on Lambdas, at least {dollars(each['usd'])}"
        for each in alternatives
        if each["instance"] is None
    ]
    return f"the same run on: {'; '.join([*machines, *lambdas])} (by specifications; 'siafu plan' simulates)"


def _on(rental: Rental, spent: Spent, here: Processor | None, book: PriceBook) -> dict[str, Any]:
    fleet = Fleet(rental, spent.machines)
    seconds = _seconds(rental.instance, spent, here)
    usd = fleet.usd(seconds, book.billing)
    return {
        "instance": rental.instance.name,
        "spot": rental.spot,
        "machines": spent.machines,
        "seconds": seconds,
        "usd": usd,
        "value": 1 / (seconds * usd),
    }


def _seconds(instance: Instance, spent: Spent, here: Processor | None) -> float:
    """Time of the run there."""
    ratio = ratios(instance.processor, here)
    idle = max(0.0, spent.seconds - (spent.gathers + spent.tensors) / spent.threads)
    busy = spent.gathers / ratio.memory + spent.tensors / min(ratio.products, ratio.pace)
    return idle / ratio.pace + busy / (instance.vcpu * spent.machines)


def _on_lambdas(spent: Spent, book: PriceBook) -> list[dict[str, Any]]:
    prices = [each for each in book.lambdas if each.architecture == "x86_64"]
    if not prices or not spent.tensors:
        return []
    usd = prices[0].usd(spent.tensors * VCPU_MB / 1024, 0)
    return [{"instance": None, "spot": False, "machines": 0, "seconds": None, "usd": usd, "value": None}]
