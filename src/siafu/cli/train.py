"""`siafu train`: train a model on a dataset, and save the run."""

import json
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from siafu.base.errors import BadInput, Interrupted
from siafu.cli import recipe as options_of
from siafu.cli.outcome import refuse_other_summary, report_many, report_one, scores
from siafu.cli.recipe import Recipe, describe_graph
from siafu.cli.voice import Voice

if TYPE_CHECKING:
    from siafu.graph import Graph
    from siafu.serverless.platforms.platform import Platform
    from siafu.training.run import Run

_PIPELINE = "How the work is laid out"
_LAMBDAS = "Lambdas: serverless threads for tensor tasks"
_COST = "What it costs"


def train(
    dataset: options_of.Dataset,
    model: Annotated[str, typer.Option(help="gcn, gat, sage or gin.")] = "gcn",
    hidden: options_of.Hidden = 64,
    layers: options_of.Layers = 2,
    epochs: Annotated[int, typer.Option(min=1, help="How often to go over the graph.")] = 200,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.01,
    dropout: options_of.Dropout = 0.5,
    input_dropout: options_of.InputDropout = 0.0,
    weight_decay: Annotated[float, typer.Option(help="L2 penalty on the weights.")] = 5e-4,
    decay: Annotated[
        str, typer.Option(help="What weight decay falls on: all parameters, or the first layer's.")
    ] = "all",
    optimizer: Annotated[str, typer.Option(help="adam, adamw or sgd.")] = "adam",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first weights and of dropout.")] = 0,
    act: options_of.Act = None,
    heads: options_of.Heads = None,
    out_heads: options_of.OutHeads = None,
    aggr: options_of.Aggr = None,
    norm: options_of.Norm = None,
    residual: options_of.Residual = False,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many epochs that were no better.")
    ] = None,
    evaluate_every: Annotated[int, typer.Option(min=1, help="Epochs from one evaluation to the next.")] = 1,
    runs: Annotated[int, typer.Option(min=1, help="Train with so many seeds; mean and deviation.")] = 1,
    precision: options_of.GatherPrecision = "fp32",
    normalize_features: Annotated[
        bool, typer.Option("--normalize-features", help="Scale each vertex's features to sum to 1.")
    ] = False,
    mode: Annotated[
        str,
        typer.Option(
            help="sync: a barrier after every step; pipe: tasks overlap, same result; async: gathers read what is there.",
            rich_help_panel=_PIPELINE,
        ),
    ] = "pipe",
    staleness: Annotated[
        int,
        typer.Option(
            min=0,
            help="Epochs that an interval may be ahead of the slowest (async).",
            rich_help_panel=_PIPELINE,
        ),
    ] = 0,
    servers: Annotated[
        int,
        typer.Option(
            min=1,
            help="Graph servers, each with a part of the graph: in this process, or on a cluster.",
            rich_help_panel=_PIPELINE,
        ),
    ] = 1,
    intervals: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Parts of a server's vertices that are worked on one by one. [default: as many as pay]",
            rich_help_panel=_PIPELINE,
        ),
    ] = None,
    partition: Annotated[
        str,
        typer.Option(
            help="Which vertices a server owns: auto (the one saved in the store, or the best method), metis, stream, "
            "contiguous or hash.",
            rich_help_panel=_PIPELINE,
        ),
    ] = "auto",
    weights: Annotated[
        str,
        typer.Option(
            help="Versions of the weights in use at a time: stash, any number; 2bw, two; flush, one.",
            rich_help_panel=_PIPELINE,
        ),
    ] = "stash",
    weight_servers: Annotated[
        int,
        typer.Option(
            min=1, help="Servers that share the weights and their updates.", rich_help_panel=_PIPELINE
        ),
    ] = 1,
    update_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Gradients that make an update, whoever's come first (async). [default: an epoch's]",
            rich_help_panel=_PIPELINE,
        ),
    ] = None,
    exact_above: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Go on exactly once the validation accuracy is at least this (async).",
            rich_help_panel=_PIPELINE,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="auto|ADDRESS",
            help="Run the servers on a Ray cluster: the one on this machine, or at an address.",
            rich_help_panel=_PIPELINE,
        ),
    ] = None,
    lambdas: Annotated[
        str,
        typer.Option(
            help="Where tensor tasks run: off (threads), local (Lambdas on this machine) or aws (AWS Lambda).",
            rich_help_panel=_LAMBDAS,
        ),
    ] = "off",
    lambda_count: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Lambdas at most, or as many as prove best. [default: local: one a core; aws: auto]",
            rich_help_panel=_LAMBDAS,
        ),
    ] = None,
    lambda_function: Annotated[
        str, typer.Option(help="The function's name or ARN (aws).", rich_help_panel=_LAMBDAS)
    ] = "siafu",
    lambda_qualifier: Annotated[
        str | None, typer.Option(help="Its version or alias (aws).", rich_help_panel=_LAMBDAS)
    ] = None,
    lambda_host: Annotated[
        str | None,
        typer.Option(
            help="This machine's address as the function reaches it (aws). [default: the one in its own network]",
            rich_help_panel=_LAMBDAS,
        ),
    ] = None,
    region: Annotated[
        str | None, typer.Option(help="AWS's region. [default: as AWS's tools]", rich_help_panel=_LAMBDAS)
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="A profile of AWS's own tools.", rich_help_panel=_LAMBDAS)
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="What speaks AWS's protocol in its place.", rich_help_panel=_LAMBDAS
        ),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE[:spot]",
            help="What it runs on, such as c5.2xlarge, so that its cost is known. [default: as on the type most like this machine]",
            rich_help_panel=_COST,
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Prices of your own. [default: $SIAFU_PRICES]", rich_help_panel=_COST
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's directory. [default: runs/DATASET-MODEL-DATE]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    checkpoint_every: Annotated[
        float, typer.Option(min=0, help="Seconds from one checkpoint to the next; 0: after every epoch.")
    ] = 10.0,
    trace: Annotated[
        str,
        typer.Option(
            help="Epochs whose tasks are traced, for Perfetto and the report: sampled (the first, some more, the last), "
            "full or off."
        ),
    ] = "sampled",
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write metrics for TensorBoard, too.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Say also why the model is run as it is.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but what is wrong.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object as the last line of stdout.")
    ] = False,
) -> None:
    """Train a model on a whole graph, and save the run.

    Ctrl-C saves a checkpoint and says how to go on.
    """
    if resume and out is None:
        raise BadInput("--resume needs --out: name the directory of the run to go on with")
    if resume and overwrite:
        raise BadInput("--resume goes on with a run and --overwrite replaces it: choose one")
    recipe = Recipe.of(
        model,
        hidden=hidden,
        layers=layers,
        dropout=dropout,
        input_dropout=input_dropout,
        act=act,
        heads=heads,
        out_heads=out_heads,
        aggr=aggr,
        norm=norm,
        residual=residual,
        precision=precision,
    )

    import siafu
    from siafu.graph.store import is_store

    graph = siafu.load(dataset)
    voice = Voice(quiet, verbose)
    voice.say(describe_graph(graph))
    directory = out or _new_directory(Path("runs"), f"{graph.name}-{model}")
    options = {
        "epochs": epochs,
        "lr": lr,
        "weight_decay": weight_decay,
        "decay": decay,
        "optimizer": optimizer,
        "patience": patience,
        "evaluate_every": evaluate_every,
        "normalize_features": normalize_features,
        "mode": mode,
        "staleness": staleness,
        "servers": servers,
        "intervals": intervals,
        "partition": partition,
        "weights": weights,
        "weight_servers": weight_servers,
        "update_every": update_every,
        "exact_above": exact_above,
        "lambdas": _platform(
            lambdas, lambda_function, lambda_qualifier, lambda_host, region, profile, endpoint
        ),
        "lambda_count": _count(lambda_count),
        "cluster": cluster,
        "instance": instance,
        "prices": prices,
        "overwrite": overwrite,
        "checkpoint_every": checkpoint_every,
        "trace": trace,
        "tensorboard": tensorboard,
        "dataset": str(Path(dataset).resolve()) if is_store(Path(dataset)) else dataset,
    }
    try:
        if runs == 1:
            run = _train_once(graph, recipe, directory, seed, options, resume=resume, voice=voice)
            summary = run.summary()
            report_one(summary, voice.say)
        else:
            seeds = range(seed, seed + runs)
            summary = _train_often(graph, recipe, directory, seeds, options, resume=resume, voice=voice)
            report_many(summary, directory, voice.say)
    except Interrupted as stopped:
        raise Interrupted(f"{stopped}: {_command_to_resume(directory)}", stopped.signal) from None
    if as_json:
        print(json.dumps(summary), flush=True)


def _count(given: str | None) -> int | str | None:
    return int(given) if given is not None and given.isdecimal() else given


def _platform(
    lambdas: str,
    function: str,
    qualifier: str | None,
    host: str | None,
    region: str | None,
    profile: str | None,
    endpoint: str | None,
) -> "str | Platform":
    if lambdas != "aws":
        return lambdas
    from siafu.serverless.deployment.aws import Place
    from siafu.serverless.platforms.platform import AwsPlatform

    return AwsPlatform.of(function, Place(region, profile, endpoint), qualifier=qualifier, host=host)


def _train_once(
    graph: "Graph",
    recipe: Recipe,
    directory: Path,
    seed: int,
    options: dict[str, Any],
    *,
    resume: bool,
    voice: Voice,
) -> "Run":
    import siafu
    from siafu.report.score import Target

    metric = Target.of(graph).metric
    model = recipe.build(graph, seed=seed)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    voice.say(
        f"{recipe.name}: {recipe.arguments['num_layers']} layers, {recipe.arguments['hidden_channels']} wide, "
        f"{parameters:,} parameters; up to {options['epochs']} epochs, lr {options['lr']:g}, seed {seed}"
    )
    with voice.progress(options["epochs"], metric) as progress:
        return siafu.train(
            graph, model, seed=seed, out=directory, resume=resume, progress=progress, **options
        )


def _train_often(
    graph: "Graph",
    recipe: Recipe,
    directory: Path,
    seeds: range,
    options: dict[str, Any],
    *,
    resume: bool,
    voice: Voice,
) -> dict[str, Any]:
    from siafu.report.files.run_directory import RunDirectory, write_json

    refuse_other_summary(directory / "summary.json")
    summaries = []
    for seed in seeds:
        path = directory / f"seed-{seed}"
        begun = resume and RunDirectory(path).exists
        summary = _train_once(graph, recipe, path, seed, options, resume=begun, voice=voice).summary()
        voice.say(f"seed {seed}: {scores(summary)}")
        summaries.append(summary)
    together = {
        "dataset": summaries[0]["dataset"],
        "model": summaries[0]["model"],
        "metric": summaries[0]["metric"],
        "seeds": list(seeds),
        **_mean_and_deviation(summaries, "train_accuracy"),
        **_mean_and_deviation(summaries, "val_accuracy"),
        **_mean_and_deviation(summaries, "test_accuracy"),
        "seconds_total": sum(summary["seconds_total"] for summary in summaries),
        "seconds_per_epoch": statistics.median(summary["seconds_per_epoch"] for summary in summaries),
        "peak_rss_bytes": max(summary["peak_rss_bytes"] for summary in summaries),
        "cost_usd": sum(summary["cost_usd"] or 0.0 for summary in summaries),
        "path": str(directory),
        "runs": summaries,
    }
    write_json(directory / "summary.json", together)
    return together


def _mean_and_deviation(summaries: list[dict[str, Any]], field: str) -> dict[str, float | None]:
    values = [summary[field] for summary in summaries]
    if None in values:
        return {field: None, f"{field}_std": None}
    return {field: statistics.mean(values), f"{field}_std": statistics.stdev(values)}


def _new_directory(parent: Path, stem: str) -> Path:
    """A name that no run has yet."""
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in stem)
    name = f"{safe}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = parent / name, 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path


def _command_to_resume(directory: Path) -> str:
    given = [word for word in sys.argv[1:] if word not in ("--overwrite", "--resume")]
    if not any(word == "--out" or word.startswith("--out=") for word in given):
        given += ["--out", str(directory)]
    return shlex.join(["siafu", *given, "--resume"])
