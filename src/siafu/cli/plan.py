"""`siafu plan`: which machines train a graph best for the money."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siafu.base.choices import refuse_other_model, refuse_other_precision
from siafu.base.errors import BadInput
from siafu.base.option import argument, option, same_option
from siafu.cli.common import NUMBER, WORD, refuse_unknown_dataset, say, show_table
from siafu.cli.declared import json_flag, out_file
from siafu.cli.early import refuse_prices
from siafu.options import Options, Session
from siafu.training.recipe import Recipe

if TYPE_CHECKING:
    from siafu.planning.planner import Plan
    from siafu.planning.spot.offer_risk import LossRate, OfferRisk
    from siafu.virtual.graph_shape import GraphShape

_size = partial(option, panel="The graph's sizes, in place of a name")
_limit = partial(option, panel="What must hold")
_REPLAYS = 1000


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a graph that is not there."""

    vertices: int | None = _size(None, "How many.", least=1)
    edges: int | None = _size(None, "How many; an undirected one counts twice.", least=0)
    features: int | None = _size(None, "Of each vertex.", least=1)
    classes: int | None = _size(None, "How many.", least=1)
    train_share: float = _size(0.66, "Share of the vertices that are trained on.")
    locality: float = _size(
        0.0, "Share of the edges that a partition keeps on one server, beyond chance: 0 to 1."
    )

    def shape(self, dataset: str | None) -> "str | GraphShape":
        """The dataset that is named, or what is given of one."""
        given = (self.vertices, self.edges, self.features, self.classes)
        names = ("--vertices", "--edges", "--features", "--classes")
        missing = [name for name, count in zip(names, given, strict=True) if count is None]
        if dataset is None and missing:
            raise BadInput(
                f"nothing to plan for: name a dataset or a store, or give {', '.join(names)} (missing: {', '.join(missing)})"
            )
        if dataset is not None and len(missing) < len(names):
            raise BadInput(f"{dataset} has its own sizes: leave out {', '.join(names)}, or the name")
        if dataset is not None:
            return dataset
        from siafu.virtual.graph_shape import GraphShape

        vertices, edges, features, classes = (count or 0 for count in given)
        return GraphShape(vertices, edges, features, classes, train=self.train_share, locality=self.locality)


def plan(
    sizes: Sizes,
    dataset: str | None = argument("[NAME|PATH]", "A dataset's name, or a store's path.", None),
    model: str = same_option(Recipe, "model"),
    hidden: int = same_option(Recipe, "hidden"),
    layers: int = same_option(Recipe, "layers"),
    heads: int | None = same_option(Recipe, "heads"),
    precision: str = same_option(Recipe, "precision"),
    layout: str = same_option(Options, "layout", "auto"),
    epochs: int = same_option(Options, "epochs"),
    evaluate_every: int = same_option(Options, "evaluate_every", 10),
    deadline: str | None = _limit(None, "Such as 90s, 15m, 1h30m.", metavar="TIME"),
    budget: float | None = _limit(None, "Dollars at most.", metavar="USD"),
    spot: bool = _limit(False, "Rent machines that may be taken away."),
    loss_rate: float | None = _limit(None, "With --spot: losses in an hour of one machine.", metavar="RATE"),
    trace: list[Path] | None = _limit(
        None,
        "With --spot: machines that came and went (docs/spot.md); may be given several times.",
        unset="none",
    ),
    instance: list[str] | None = _limit(
        None, "A type to choose from; may be given several times.", unset="all"
    ),
    most_servers: int = _limit(100, "Machines at most.", least=1),
    no_lambdas: bool = _limit(False, "Leave Lambdas out."),
    no_disks: bool = _limit(False, "Leave disks out: all tables are in memory."),
    prices: Path | None = same_option(Session, "prices"),
    out: Path | None = out_file("Draw time against dollars.", metavar="SVG"),
    as_json: bool = json_flag(),
) -> None:
    """Say which machines, how many, with or without Lambdas and in which mode, train a graph best for the money.

    Without a limit, what is worth most: 1 / (time × dollars). With a deadline the cheapest, with a budget the fastest.
    """
    if out is not None and out.suffix.lower() != ".svg":
        raise BadInput(f"cannot tell what to draw to {out}: name a file that ends in .svg")
    from siafu.planning.durations import seconds_in

    if deadline is not None:
        seconds_in(deadline)
    refuse_other_model(model)
    refuse_other_precision(precision)
    for each in instance or (None,):
        refuse_prices(each, prices)
    if dataset is not None:
        refuse_unknown_dataset(dataset)
    graph = sizes.shape(dataset)
    losses = _losses(loss_rate, trace or [], spot=spot)

    from siafu.base.storage.files import replace_text
    from siafu.planning.plan import plan as planned

    found = planned(
        graph,
        model,
        hidden=hidden,
        layers=layers,
        heads=heads or 8,
        epochs=epochs,
        evaluate_every=evaluate_every,
        deadline=deadline,
        budget=budget,
        spot=spot,
        instances=instance or (),
        most_servers=most_servers,
        lambdas=not no_lambdas,
        disks=not no_disks,
        layout=layout,
        precision=precision,
        prices=prices,
        name=None if dataset else "STORE",
    )
    if out is not None:
        from siafu.planning.plot import plot

        replace_text(out, plot(found))
    risk = None if losses is None else _risk(found, losses)
    if as_json:
        print(json.dumps(_summary(found) | ({} if risk is None else {"risk": risk.summary()})))
        return
    _show(found, risk)
    if out is not None:
        say(f"drawn in {out}")


def _losses(rate: float | None, traces: list[Path], *, spot: bool) -> "LossRate | None":
    """Losses to be reckoned with; None: none were given."""
    if rate is None and not traces:
        return None
    if not spot:
        raise BadInput("--loss-rate and --trace are about machines that may be taken away: add --spot")
    if rate is not None and traces:
        raise BadInput("give --loss-rate or --trace, not both: a trace has its own rate")

    from siafu.planning.spot.offer_risk import LossRate
    from siafu.planning.spot.trace import read_trace

    if traces:
        return LossRate.in_traces(tuple(read_trace(path) for path in traces))
    assert rate is not None
    return LossRate(rate)


def _risk(found: "Plan", losses: "LossRate") -> "OfferRisk":
    from siafu.planning.spot.offer_risk import offer_risk

    return offer_risk(found.chosen, found.estimates, losses, _REPLAYS)


def _show(found: "Plan", risk: "OfferRisk | None") -> None:
    from siafu.planning import words

    shape, model = found.request.shape, found.request.model
    print(
        f"{found.request.name}: {shape.vertices:,} vertices, {shape.edges:,} edges, {shape.features} features, {shape.classes} classes; "
        f"{model.name}, {model.layers} layers, {model.hidden} wide, {found.request.epochs} epochs"
    )
    marks = {id(found.naive): "naive", id(found.chosen): "→"}
    rows = [(marks.get(id(each), ""), *words.row(each)) for each in words.shown(found)]
    texts = ("", "machines", "mode", "layout")
    columns = {name: WORD if name in texts else NUMBER for name in ("", *words.HEADERS)}
    show_table(columns, rows, styles={"→": "bold green"})
    print(words.legend(found))
    said = [words.about_memory(found), words.about_lambdas(found), words.on_this_machine(found)]
    print("", f"choice: {words.reason(found)}", *filter(None, said), sep="\n")
    if risk is not None:
        from siafu.planning.spot import risk_words

        print(*risk_words.lines(risk), sep="\n")
    print("", *(f"  {command}" for command in words.commands(found)), sep="\n")
    print("", *words.basis(found), sep="\n")


def _summary(found: "Plan") -> dict[str, Any]:
    from siafu.planning import words

    request = found.request
    return {
        "dataset": request.name,
        "vertices": request.shape.vertices,
        "edges": request.shape.edges,
        "model": request.model.name,
        "epochs": request.epochs,
        "deadline_seconds": request.deadline_s,
        "budget_usd": request.budget_usd,
        "chosen": found.chosen.summary(),
        "naive": None if found.naive is None else found.naive.summary(),
        "lambdas": None if found.lambdas is None else found.lambdas.summary(),
        "offers": [each.summary() for each in found.offers],
        "front": [found.offers.index(each) for each in found.front],
        "reason": words.reason(found),
        "about_lambdas": words.about_lambdas(found),
        "about_memory": words.about_memory(found),
        "commands": words.commands(found),
        "left_out": [
            {
                "instance": each.instance.name,
                "servers": each.servers,
                "memory_bytes": each.memory_bytes,
                "least_bytes": each.least_bytes,
                "scratch_bytes": each.scratch_bytes,
            }
            for each in found.left_out
        ],
        "this_machine": None
        if found.here is None
        else {"seconds_per_epoch": found.here[0], "seconds": found.here[1]},
        "prices": found.book.name,
        "calibration": {"host": found.measured.host, "made": found.measured.made, "own": found.own},
        "setups": found.setups,
        "simulations": found.simulations,
    }
