"""Risks in words and tables."""

import math
from collections.abc import Sequence

from siafu.cost.money import dollars
from siafu.planning.spot.offer_risk import OfferRisk
from siafu.planning.spot.paces import EagerPace
from siafu.planning.spot.risk import WARM_DETECTION_SECONDS, Risk, Spread
from siafu.planning.spot.schemes import WORDS, SchemeName
from siafu.server.layout.layouts import VERTICES

HEADERS = ("", "time", "90 %", "throughput", "dollars", "value", "losses", "epochs lost", "longest pause")


def time(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.2f} h"


def lines(risk: OfferRisk) -> list[str]:
    """A plan's lines about losses."""
    cold, saving = risk.schemes["cold"], risk.schemes["checkpoints"]
    share = risk.best.dollars.mean / risk.on_demand
    verdict = (
        f"it pays: {share:.0%} of the dollars of machines that are never lost"
        if risk.pays
        else f"it does not pay: {share:.0%} of the dollars of machines that are never lost"
    )
    return [
        f"with {risk.losses}: {_expected(cold)}; {cold.mean(lambda each: each.losses):.1f} losses, "
        "epochs that have ended stay",
        *_about_copies(risk),
        f"with checkpoints alone, every {saving.training.checkpoint_epochs} epochs: {_expected(saving)}; "
        f"never lost, on demand: {time(risk.offer.seconds)}, {dollars(risk.on_demand)}",
        verdict,
    ]


def _expected(risk: Risk) -> str:
    spent = risk.dollars
    return (
        f"{time(risk.seconds.mean)} ({_range(risk.seconds)} in 90 %), "
        f"{dollars(spent.mean)} ({dollars(spent.low)} to {dollars(spent.high)})"
    )


def _about_copies(risk: OfferRisk) -> list[str]:
    """Whether redundancy pays, and what it costs if nothing fails."""
    size = f"{risk.paces.copy_bytes / 2**30:.1f} GiB"
    if risk.offer.setup.fleet.servers == 1:
        return []
    if risk.warm is None:
        return [f"--redundancy 1: a machine has no room for a warm copy of {size} beside its server"]
    pays = "it pays" if risk.redundancy_pays else "it does not pay"
    found = [
        f"with --redundancy 1: {_expected(risk.warm)}; {pays}. If nothing fails it costs {size} of memory on every machine, and "
        "no time"
    ]
    return found if risk.paces.eager is None else [*found, _about_eager(risk.warm, risk, risk.paces.eager)]


def _about_eager(warm: Risk, risk: OfferRisk, pace: EagerPace) -> str:
    """Whether eager copies are worth more than warm ones, and how often losses must come for that."""
    worth = "worth more" if risk.eager_pays else "worth less"
    slower = pace.seconds / warm.training.epoch_seconds - 1
    every, relaid = risk.paces.eager_every, "" if risk.offer.layout == VERTICES else " --layout vertices"
    often = f"saves time if a loss comes every {every:.2g} epochs or more often"
    if math.isinf(every):
        often = "saves time always"
    return (
        f"with --redundancy eager{relaid}, copies run {pace.forward:.0%} of the work beforehand; {worth}: "
        f"{_expected(risk.schemes['eager'])}; if nothing fails an epoch takes {slower:.0%} longer; it {often}"
    )


def rows(risk: OfferRisk) -> list[tuple[str, ...]]:
    """A table's rows: on demand, and every way to train on machines that may be lost."""
    offer = risk.offer
    whole = 1 / (offer.seconds * risk.on_demand)
    spot = [_row(_name(name, each), each, whole) for name, each in risk.schemes.items()]
    on_demand = ("on demand", time(offer.seconds), "", "1.00", dollars(risk.on_demand), "1.00", "0", "0", "")
    return [on_demand, *spot]


def _name(name: SchemeName, risk: Risk) -> str:
    return f"spot, {WORDS[name].format(every=risk.training.checkpoint_epochs)}"


def _row(name: str, risk: Risk, whole: float) -> tuple[str, ...]:
    return (
        name,
        time(risk.seconds.mean),
        _range(risk.seconds),
        f"{risk.throughput:.2f}",
        dollars(risk.dollars.mean),
        f"{risk.value / whole:.2f}",
        f"{risk.mean(lambda each: each.losses):.1f}",
        f"{risk.mean(lambda each: each.epochs_lost):.1f}",
        time(risk.mean(lambda each: each.longest_pause)),
    )


def table(title: str, found: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    head = f"| {' | '.join(HEADERS)} |\n|{'---|' * len(HEADERS)}"
    return "\n".join([f"**{title}**", "", head, *(f"| {' | '.join(row)} |" for row in found), ""])


def assumed(risk: OfferRisk) -> str:
    """The figures that replays took."""
    training, paces = risk.schemes["cold"].training, risk.paces
    fewer = ", ".join(
        f"{time(each)} on {place}" if math.isfinite(each) else f"none on {place}"
        for place, each in reversed(list(enumerate(paces.fewer[:-1], 1)))
    )
    return (
        f"{training.epochs} epochs of {time(training.epoch_seconds)} ({fewer} machines); {training.machines} machines may be lost; "
        f"a loss is known after {time(training.detection_seconds)}, with warm copies after {time(WARM_DETECTION_SECONDS)}; a new server "
        f"works after {time(training.start_seconds)}"
    )


def _range(found: Spread) -> str:
    return f"{time(found.low)} to {time(found.high)}"
