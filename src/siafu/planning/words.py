"""A plan in words: a table, the reason for the choice, what Lambdas would do, and the commands that do it."""

import shlex
from collections.abc import Iterator

from siafu.cost.money import dollars
from siafu.planning.offer import Offer
from siafu.planning.planner import Plan
from siafu.planning.server_fits import SCRATCH
from siafu.report.progress import duration
from siafu.virtual.workload import ATTENTION

HEADERS = (
    "machines",
    "Lambdas",
    "mode",
    "layout",
    "memory",
    "disk",
    "an epoch",
    "in all",
    "dollars",
    "value",
)
SHOWN = 10


def row(offer: Offer) -> tuple[str, ...]:
    """An offer as a line of a table, under `HEADERS`."""
    fleet = offer.setup.fleet
    share, disk = offer.server_bytes / fleet.rental.instance.memory_bytes, offer.setup.disk
    return (
        str(fleet),
        str(fleet.servers * offer.setup.lambda_count) if offer.setup.lambda_count else "-",
        offer.setup.mode,
        offer.layout,
        f"{offer.server_bytes / 2**30:.1f} GiB, {100 * share:.0f} %",
        "-" if disk is None or not offer.scratch_bytes else f"{offer.scratch_bytes / 1e9:.1f} GB {disk.name}",
        duration(offer.seconds_per_epoch),
        duration(offer.seconds),
        dollars(offer.usd),
        f"{offer.value:.3g}",
    )


def shown(plan: Plan) -> list[Offer]:
    """The offers that a table has room for: the best, and the naive choice."""
    best = list(plan.offers[:SHOWN])
    return best if plan.naive is None or plan.naive in best else [*best, plan.naive]


def reason(plan: Plan) -> str:
    """Why the chosen one, in a sentence."""
    chosen, naive, request = plan.chosen, plan.naive, plan.request
    if request.deadline_s is not None and request.budget_usd is None:
        why = f"the cheapest that ends within {duration(request.deadline_s)}"
    elif request.budget_usd is not None and request.deadline_s is None:
        why = f"the fastest for at most {dollars(request.budget_usd)}"
    elif request.deadline_s is not None:
        why = f"worth most of those that end within {duration(request.deadline_s)} for at most {dollars(request.budget_usd or 0)}"
    else:
        why = "worth most, 1 / (time × dollars)"
    said = f"{chosen.setup}: {why}: {duration(chosen.seconds)} and {dollars(chosen.usd)}"
    if naive is None or naive.setup == chosen.setup:
        return f"{said}."
    return (
        f"{said}, {chosen.value / naive.value:.2f} times the value of {naive.setup.fleet} without Lambdas "
        f"({duration(naive.seconds)}, {dollars(naive.usd)})."
    )


def about_lambdas(plan: Plan) -> str | None:
    """Whether Lambdas pay on the chosen machines, with the arithmetic."""
    threads, lambdas = plan.threads, plan.lambdas
    if lambdas is None:
        return None
    setup = lambdas.setup
    instance = setup.fleet.rental.instance
    on_cores, on_lambdas = plan.estimates.tensor_seconds(setup)
    core_second = setup.fleet.rental.usd_h / 3600 / instance.vcpu
    lambda_second = plan.estimates.lambda_prices.usd_per_gb_second * plan.estimates.lambda_gb
    epochs = lambdas.epochs
    billed = lambdas.lambda_gb_seconds / plan.estimates.lambda_gb / epochs
    verdict = "pay" if lambdas.value > threads.value else "do not pay"
    return (
        f"Lambdas {verdict} here: the tensor tasks of an epoch take {_count(on_cores)} core-seconds, which cost "
        f"{dollars(on_cores * core_second)} on {setup.fleet.rental} ({dollars(core_second)} each); on {setup.fleet.servers * setup.lambda_count} "
        f"Lambdas they take {_count(on_lambdas)} s of computing and {_count(billed)} s billed, waiting for rows included, "
        f"which cost {dollars(billed * lambda_second)} ({dollars(lambda_second)} each), and the epoch takes "
        f"{duration(lambdas.seconds_per_epoch)} instead of {duration(threads.seconds_per_epoch)}: in all {dollars(lambdas.usd)} and "
        f"{duration(lambdas.seconds)} instead of {dollars(threads.usd)} and {duration(threads.seconds)}."
    )


def commands(plan: Plan) -> list[str]:
    """Commands that train as planned."""
    setup, request = plan.chosen.setup, plan.request
    fleet, model = setup.fleet, request.model
    words = ["siafu", "train", request.name, "--model", model.name, "--hidden", str(model.hidden)]
    words += ["--layers", str(model.layers), "--epochs", str(plan.chosen.epochs)]
    words += ["--evaluate-every", str(request.evaluate_every), "--mode", setup.mode]
    if model.name in ATTENTION:
        words += ["--heads", str(model.heads)]
    if fleet.servers > 1:
        words += ["--servers", str(fleet.servers), "--cluster", "auto"]
    if model.precision != "fp32":
        words += ["--precision", model.precision]
    if plan.chosen.layout != "vertices":
        words += ["--layout", plan.chosen.layout]
    if plan.chosen.spares:
        words += ["--memory", f"{plan.chosen.memory_bytes // 10**6}MB"]
    if plan.chosen.scratch_bytes:
        words += ["--scratch", str(SCRATCH)]
    if setup.lambda_count:
        words += ["--lambdas", "aws", "--lambda-count", str(fleet.servers * setup.lambda_count)]
    train = shlex.join([*words, "--instance", str(fleet.rental)])
    if fleet.servers == 1:
        return [train]
    on = "aws-spot" if fleet.rental.spot else "aws"
    up = f"siafu cluster up --on {on} --machines {fleet.servers} --instance {fleet.rental.instance.name}"
    return [up, train]


def about_memory(plan: Plan) -> str | None:
    """How the chosen servers fit their memory; None: as they are."""
    chosen = plan.chosen
    if not chosen.spares:
        return None
    how, disk = "; ".join(chosen.measures), chosen.setup.disk
    if disk is not None and chosen.scratch_bytes:
        where = f"{chosen.scratch_bytes / 1e9:,.1f} GB of tables on the disk of each machine ({disk.name}), mounted at {SCRATCH}"
        how = f"{how}; {where}" if how else where
    return (
        f"Memory is saved: {how}. So each server takes {chosen.server_bytes / 1e9:,.1f} of {chosen.memory_bytes / 1e9:,.1f} GB, and an epoch takes "
        f"{duration(chosen.spared_seconds)} more, its share of an evaluation included."
    )


def left_out(plan: Plan) -> str | None:
    """Machines on which nothing fits, with the least that would do; None: there are none."""
    if not plan.left_out:
        return None
    said = [
        f"{each.instance.name} ({each.memory_bytes / 1e9:,.1f} GB for a server, which needs at least {each.least_bytes / 1e9:,.1f} GB "
        f"and {each.scratch_bytes / 1e9:,.1f} GB of disk)"
        for each in plan.left_out
    ]
    servers = plan.left_out[0].servers
    return f"left out, since nothing fits on {servers:,} of them: {', '.join(said)}"


def on_this_machine(plan: Plan) -> str | None:
    """Time of the training on this machine; None: it is not known, or it does not fit."""
    if plan.here is None:
        return None
    epoch, total = plan.here
    return f"On this machine, with nothing rented: {duration(epoch)} an epoch, {duration(total)} in all."


def legend(plan: Plan) -> str:
    """Words of the table that are not everybody's."""
    naive = (
        "; naive: the dearest machine, as few of it as hold the graph, on demand, without Lambdas"
        if plan.naive is not None
        else ""
    )
    return f"value: 1 / (seconds × dollars), more is better{naive}"


def basis(plan: Plan) -> Iterator[str]:
    """Sources of the figures."""
    measured = (
        f"what was measured on this machine, {plan.measured}"
        if plan.own
        else f"the figures of a reference machine that come with Siafu ({plan.measured.processor}); "
        "run 'siafu calibrate' to plan with this machine's"
    )
    yield f"{plan.book.name}; times simulated with {measured}"
    others = "the others cannot be 5 % better" if plan.complete else "those that promise most"
    yield (
        f"{plan.simulations} of {plan.setups} ways were simulated, {others}; memory by the list of arrays that 'siafu train' makes"
    )
    if (missing := left_out(plan)) is not None:
        yield missing


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"
