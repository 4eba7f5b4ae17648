"""Risks in words and tables."""

from collections.abc import Sequence

from siafu.cost.money import dollars
from siafu.planning.spot.offer_risk import OfferRisk
from siafu.planning.spot.replay import SpotTraining
from siafu.planning.spot.risk import Risk, Spread

HEADERS = ("", "time", "90 %", "throughput", "dollars", "value", "losses", "epochs lost", "longest pause")


def time(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.2f} h"


def lines(risk: OfferRisk) -> list[str]:
    """A plan's lines about losses."""
    closed, saving = risk.closed, risk.checkpoints
    kept = "epochs that have ended stay"
    if risk.offer.setup.mode == "async":
        kept = f"back to the last checkpoint, every {closed.training.checkpoint_epochs} epochs"
    share = closed.dollars.mean / risk.on_demand
    verdict = (
        f"it pays: {share:.0%} of the dollars of machines that are never lost"
        if risk.pays
        else f"it does not pay: {share:.0%} of the dollars of machines that are never lost"
    )
    return [
        f"with {risk.losses}: {time(closed.seconds.mean)} ({_range(closed.seconds)} in 90 %), "
        f"{dollars(closed.dollars.mean)} ({dollars(closed.dollars.low)} to {dollars(closed.dollars.high)}); "
        f"{closed.mean(lambda each: each.losses):.1f} losses, {kept}",
        f"with checkpoints alone, every {saving.training.checkpoint_epochs} epochs: {time(saving.seconds.mean)}, "
        f"{dollars(saving.dollars.mean)}; never lost, on demand: {time(risk.offer.seconds)}, {dollars(risk.on_demand)}",
        verdict,
    ]


def rows(risk: OfferRisk) -> list[tuple[str, ...]]:
    """A table's rows: on demand, with checkpoints, and with epochs that close."""
    offer = risk.offer
    whole = 1 / (offer.seconds * risk.on_demand)
    checkpoints = f"spot, checkpoints every {risk.checkpoints.training.checkpoint_epochs}"
    return [
        ("on demand", time(offer.seconds), "", "1.00", dollars(risk.on_demand), "1.00", "0", "0", ""),
        _row(checkpoints, risk.checkpoints, whole),
        _row("spot, closed epochs", risk.closed, whole),
    ]


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


def assumed(training: SpotTraining) -> str:
    """The figures that a replay took."""
    return (
        f"{training.epochs} epochs of {time(training.epoch_seconds)}, {training.machines} machines that may be lost; a loss is known after "
        f"{time(training.detection_seconds)}, a new server works after {time(training.start_seconds)}"
    )


def _range(found: Spread) -> str:
    return f"{time(found.low)} to {time(found.high)}"
