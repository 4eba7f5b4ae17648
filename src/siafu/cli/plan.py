"""`siafu plan`: which machines train a graph best for the money."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from siafu.base.errors import BadInput
from siafu.cli.declared import flag
from siafu.cli.recipe import Recipe
from siafu.options import Options

if TYPE_CHECKING:
    from siafu.planning.planner import Plan
    from siafu.virtual.graph_shape import GraphShape

_SIZES = "The graph's sizes, in place of a name"
_LIMITS = "What must hold"


def plan(
    dataset: Annotated[
        str | None, typer.Argument(metavar="[NAME|PATH]", help="A dataset's name, or a store's path.")
    ] = None,
    vertices: Annotated[int | None, typer.Option(min=1, rich_help_panel=_SIZES, help="How many.")] = None,
    edges: Annotated[
        int | None,
        typer.Option(min=0, rich_help_panel=_SIZES, help="How many; an undirected one counts twice."),
    ] = None,
    features: Annotated[
        int | None, typer.Option(min=1, rich_help_panel=_SIZES, help="Of each vertex.")
    ] = None,
    classes: Annotated[int | None, typer.Option(min=1, rich_help_panel=_SIZES, help="How many.")] = None,
    train_share: Annotated[
        float, typer.Option(rich_help_panel=_SIZES, help="Share of the vertices that are trained on.")
    ] = 0.66,
    locality: Annotated[
        float,
        typer.Option(
            rich_help_panel=_SIZES,
            help="Share of the edges that a partition keeps on one server, beyond chance: 0 to 1.",
        ),
    ] = 0.0,
    model: Annotated[str, flag(Recipe, "model")] = "gcn",
    hidden: Annotated[int, flag(Recipe, "hidden")] = 64,
    layers: Annotated[int, flag(Recipe, "layers")] = 2,
    heads: Annotated[int | None, flag(Recipe, "heads")] = None,
    epochs: Annotated[int, flag(Options, "epochs")] = 200,
    evaluate_every: Annotated[int, flag(Options, "evaluate_every")] = 10,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", rich_help_panel=_LIMITS, help="Such as 90s, 15m, 1h30m.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="USD", rich_help_panel=_LIMITS, help="Dollars at most.")
    ] = None,
    spot: Annotated[
        bool, typer.Option("--spot", rich_help_panel=_LIMITS, help="Rent machines that may be taken away.")
    ] = False,
    instance: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=_LIMITS, help="A type to choose from; may be given several times. [default: all]"
        ),
    ] = None,
    most_servers: Annotated[
        int, typer.Option(min=1, rich_help_panel=_LIMITS, help="Machines at most.")
    ] = 100,
    no_lambdas: Annotated[
        bool, typer.Option("--no-lambdas", rich_help_panel=_LIMITS, help="Leave Lambdas out.")
    ] = False,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Prices of your own. [default: $SIAFU_PRICES]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="SVG", help="Draw time against dollars.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say which machines, how many, with or without Lambdas and in which mode, train a graph best for the money.

    Without a limit, what is worth most: 1 / (time × dollars). With a deadline the cheapest, with a budget the fastest.
    """
    if out is not None and out.suffix.lower() != ".svg":
        raise BadInput(f"cannot tell what to draw to {out}: name a file that ends in .svg")
    sizes = {"--vertices": vertices, "--edges": edges, "--features": features, "--classes": classes}
    _check(dataset, sizes)

    from siafu.base.files import replacing
    from siafu.planning.plan import plan as planned

    found = planned(
        dataset or _shape(sizes, train_share, locality),
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
        prices=prices,
        name=None if dataset else "STORE",
    )
    if out is not None:
        from siafu.planning.plot import plot

        with replacing(out) as file:
            file.write(plot(found).encode())
    if as_json:
        print(json.dumps(_summary(found)))
        return
    _show(found)
    if out is not None:
        print(f"drawn in {out}", file=sys.stderr)


def _check(dataset: str | None, sizes: dict[str, int | None]) -> None:
    missing = [name for name, count in sizes.items() if count is None]
    if dataset is None and missing:
        raise BadInput(
            f"nothing to plan for: name a dataset or a store, or give {', '.join(sizes)} (missing: {', '.join(missing)})"
        )
    if dataset is not None and len(missing) < len(sizes):
        raise BadInput(f"{dataset} has its own sizes: leave out {', '.join(sizes)}, or the name")


def _shape(sizes: dict[str, int | None], train: float, locality: float) -> "GraphShape":
    from siafu.virtual.graph_shape import GraphShape

    vertices, edges, features, classes = (count or 0 for count in sizes.values())
    return GraphShape(vertices, edges, features, classes, train=train, locality=locality)


def _show(found: "Plan") -> None:
    from rich.console import Console
    from rich.table import Table

    from siafu.planning import words

    shape, model = found.request.shape, found.request.model
    print(
        f"{found.request.name}: {shape.vertices:,} vertices, {shape.edges:,} edges, {shape.features} features, {shape.classes} classes; "
        f"{model.name}, {model.layers} layers, {model.hidden} wide, {found.request.epochs} epochs"
    )
    rows = [(_mark(each, found), *words.row(each)) for each in words.shown(found)]
    if sys.stdout.isatty():
        table = Table(box=None, pad_edge=False)
        for number, header in enumerate(("", *words.HEADERS)):
            table.add_column(header, justify="left" if number in (0, 1, 3) else "right", no_wrap=True)
        for row in rows:
            table.add_row(*row, style="bold green" if row[0] == "→" else None)
        Console().print(table)
    else:
        for line in _plain([("", *words.HEADERS), *rows]):
            print(line)
    print()
    print(f"choice: {words.reason(found)}")
    if (said := words.about_lambdas(found)) is not None:
        print(said)
    if (here := words.on_this_machine(found)) is not None:
        print(here)
    print()
    for command in words.commands(found):
        print(f"  {command}")
    print()
    for line in words.basis(found):
        print(line)


def _mark(offer: Any, found: "Plan") -> str:
    if offer == found.chosen:
        return "→"
    return "naive" if offer == found.naive else ""


def _plain(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


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
        "commands": words.commands(found),
        "this_machine": None
        if found.here is None
        else {"seconds_per_epoch": found.here[0], "seconds": found.here[1]},
        "prices": found.book.name,
        "calibration": {"host": found.measured.host, "made": found.measured.made, "own": found.own},
        "setups": found.setups,
        "simulations": found.simulations,
    }
